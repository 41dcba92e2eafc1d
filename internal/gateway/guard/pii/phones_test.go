package pii

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/nyaruka/phonenumbers"
)

var update = flag.Bool("update", false, "write phones.json.gz from the phonenumbers module in go.mod")

// The table must match the phonenumbers module in go.mod. Production code does not import that module, because
// loading its metadata takes 7 ms and 5 MB before main runs.
func TestPhonesAreCurrent(t *testing.T) {
	want, err := phoneTable()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if _, err := z.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("phones.json.gz", packed.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile("phones.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, want) {
		t.Errorf("phones.json.gz is not current (%v); run: go generate ./internal/gateway/guard/pii", err)
	}
}

// phoneTable returns the part of libphonenumber's metadata that decides whether a number is valid.
func phoneTable() ([]byte, error) {
	all, err := phonenumbers.MetadataCollection()
	if err != nil {
		return nil, err
	}
	var out struct {
		From    string    `json:"from"`
		Regions []*region `json:"regions"`
	}
	out.From = "libphonenumber through github.com/nyaruka/phonenumbers, Apache License 2.0, " +
		"Copyright (C) The Libphonenumber Authors"
	for _, m := range all.GetMetadata() {
		r := &region{
			ID: m.GetId(), Code: int(m.GetCountryCode()), Prefix: m.GetNationalPrefixForParsing(),
			Transform: m.GetNationalPrefixTransformRule(), Leading: m.GetLeadingDigits(),
		}
		lengths := func(d *phonenumbers.PhoneNumberDesc) {
			for _, n := range d.GetPossibleLength() {
				if n > 0 && !slices.Contains(r.Lengths, int(n)) {
					r.Lengths = append(r.Lengths, int(n))
				}
			}
		}
		var kinds []string
		for _, d := range []*phonenumbers.PhoneNumberDesc{
			m.GetFixedLine(), m.GetMobile(), m.GetTollFree(), m.GetPremiumRate(), m.GetSharedCost(), m.GetVoip(),
			m.GetPersonalNumber(), m.GetPager(), m.GetUan(), m.GetVoicemail(),
		} {
			if p := d.GetNationalNumberPattern(); p != "" && p != "NA" && !slices.Contains(kinds, p) {
				kinds = append(kinds, p)
				lengths(d)
			}
		}
		lengths(m.GetGeneralDesc()) // for kinds of numbers that list no lengths of their own
		slices.Sort(r.Lengths)
		r.Number = strings.Join(kinds, "|")
		out.Regions = append(out.Regions, r)
	}
	slices.SortFunc(out.Regions, func(a, b *region) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), strings.Compare(a.ID, b.ID))
	})
	return json.Marshal(out, json.Deterministic(true))
}
