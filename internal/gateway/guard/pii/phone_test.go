package pii

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nyaruka/phonenumbers"
)

// The tables accept the same numbers as the library from which they were generated.
func TestPhonesAgreeWithTheLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	checked, valid := 0, 0
	for code, regions := range phones().codes {
		for _, n := range regions {
			for range 8 {
				size := n.Lengths[r.IntN(len(n.Lengths))]
				national := make([]byte, size)
				for i := range national {
					national[i] = byte('0' + r.IntN(10))
				}
				if national[0] == '0' {
					national[0] = '7'
				}
				number, err := phonenumbers.Parse(fmt.Sprintf("+%d%s", code, national), "")
				if err != nil || number.GetItalianLeadingZero() || fmt.Sprint(number.GetNationalNumber()) != string(national) {
					continue
				}
				got := false
				for _, other := range regions {
					got = got || other.valid(string(national))
				}
				checked++
				if got {
					valid++
				}
				if want := phonenumbers.IsValidNumber(number); got != want {
					t.Errorf("+%d %s: got %v, but the library returns %v", code, national, got, want)
				}
			}
		}
	}
	if checked < 1000 || valid < 50 {
		t.Errorf("only %d numbers were checked, and %d of them are valid", checked, valid)
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
