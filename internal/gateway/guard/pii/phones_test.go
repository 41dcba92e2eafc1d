package pii

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nyaruka/phonenumbers"
)

var update = flag.Bool("update", false, "write phones.txt from the phonenumbers module in go.mod, and the table in the guide")

// The table must match the module phonenumbers in the version of go.mod. Production code does not import that module,
// because loading its metadata takes 7 ms and 5 MB before main runs.
func TestPhonesAreCurrent(t *testing.T) {
	all, err := phonenumbers.MetadataCollection()
	if err != nil {
		t.Fatal(err)
	}
	lengths := map[int]map[int]bool{}
	for _, m := range all.GetMetadata() {
		code := int(m.GetCountryCode())
		if lengths[code] == nil {
			lengths[code] = map[int]bool{}
		}
		for _, d := range []*phonenumbers.PhoneNumberDesc{
			m.GetFixedLine(), m.GetMobile(), m.GetTollFree(), m.GetPremiumRate(), m.GetSharedCost(), m.GetVoip(),
			m.GetPersonalNumber(), m.GetPager(), m.GetUan(), m.GetVoicemail(), m.GetGeneralDesc(),
		} {
			for _, n := range d.GetPossibleLength() {
				if n > 0 && d.GetNationalNumberPattern() != "NA" {
					lengths[code][int(n)] = true
				}
			}
		}
	}
	var want strings.Builder
	for _, code := range slices.Sorted(maps.Keys(lengths)) {
		fmt.Fprintln(&want, code, strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(lengths[code]))), "[]"))
	}
	if *update {
		if err := os.WriteFile("phones.txt", []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		phonesText = want.String()
	}
	if phonesText != want.String() {
		t.Error("phones.txt is not current; run: go generate ./internal/gateway/guard/pii")
	}
}

func TestExamplesOfEveryRegionAreFound(t *testing.T) {
	f, err := New([]string{Phone})
	if err != nil {
		t.Fatal(err)
	}
	for region := range phonenumbers.GetSupportedRegions() {
		number := phonenumbers.GetExampleNumber(region)
		for _, format := range []phonenumbers.PhoneNumberFormat{phonenumbers.INTERNATIONAL, phonenumbers.E164} {
			text := "x " + phonenumbers.Format(number, format) + " y"
			if got := f.Find([]byte(text), nil, nil); len(got) != 1 || text[got[0].Start:got[0].End] != text[2:len(text)-2] {
				t.Errorf("%s: Find(%q) returned %v", region, text, got)
			}
		}
		// A number of fewer than seven digits is not found without a country code.
		text := phonenumbers.Format(number, phonenumbers.NATIONAL)
		if len(phonenumbers.GetNationalSignificantNumber(number)) >= 7 && len(f.Find([]byte(text), []byte("phone"), nil)) != 1 {
			t.Errorf("%s: %q is not found in a member named phone", region, text)
		}
	}
}
