package main

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/nyaruka/phonenumbers"
)

// region has the data that decides whether a number can be dialled in a country.
type region struct {
	ID        string `json:"id"`
	Code      int    `json:"code"`
	Prefix    string `json:"prefix,omitzero"`    // what is dialled before a number inside the country
	Transform string `json:"transform,omitzero"` // what such a number becomes
	Leading   string `json:"leading,omitzero"`   // distinguishes regions with the same code
	Lengths   []int  `json:"lengths"`
	Number    string `json:"number"` // every kind of number there is
}

// phones is the part of libphonenumber's metadata that validity needs.
func phones() ([]byte, error) {
	all, err := phonenumbers.MetadataCollection()
	if err != nil {
		return nil, err
	}
	var out struct {
		From    string   `json:"from"`
		Regions []region `json:"regions"`
	}
	out.From = "libphonenumber through github.com/nyaruka/phonenumbers, Apache License 2.0, Copyright (C) The Libphonenumber Authors"
	for _, m := range all.GetMetadata() {
		r := region{
			ID: m.GetId(), Code: int(m.GetCountryCode()), Prefix: m.GetNationalPrefixForParsing(),
			Transform: m.GetNationalPrefixTransformRule(), Leading: m.GetLeadingDigits(),
		}
		var kinds []string
		for _, d := range []*phonenumbers.PhoneNumberDesc{
			m.GetFixedLine(), m.GetMobile(), m.GetTollFree(), m.GetPremiumRate(), m.GetSharedCost(), m.GetVoip(),
			m.GetPersonalNumber(), m.GetPager(), m.GetUan(), m.GetVoicemail(),
		} {
			if p := d.GetNationalNumberPattern(); p != "" && p != "NA" && !slices.Contains(kinds, p) {
				kinds = append(kinds, p)
				for _, n := range d.GetPossibleLength() {
					if n > 0 && !slices.Contains(r.Lengths, int(n)) {
						r.Lengths = append(r.Lengths, int(n))
					}
				}
			}
		}
		// A kind that names no lengths has those of the country.
		for _, n := range m.GetGeneralDesc().GetPossibleLength() {
			if n > 0 && !slices.Contains(r.Lengths, int(n)) {
				r.Lengths = append(r.Lengths, int(n))
			}
		}
		slices.Sort(r.Lengths)
		r.Number = strings.Join(kinds, "|")
		out.Regions = append(out.Regions, r)
	}
	slices.SortFunc(out.Regions, func(a, b region) int {
		if a.Code != b.Code {
			return a.Code - b.Code
		}
		return strings.Compare(a.ID, b.ID)
	})
	return json.Marshal(out, json.Deterministic(true))
}
