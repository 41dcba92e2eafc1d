package pii

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nyaruka/phonenumbers"
)

// The tables say the same as the library that they were made from.
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
					t.Errorf("+%d %s: %v, the library says %v", code, national, got, want)
				}
			}
		}
	}
	if checked < 1000 || valid < 50 {
		t.Errorf("checked %d, of which %d are valid: too few", checked, valid)
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
				t.Errorf("%s: %q: %v", region, text, got)
			}
		}
		// Fewer than seven digits are too few without a country code.
		text := phonenumbers.Format(number, phonenumbers.NATIONAL)
		if len(phonenumbers.GetNationalSignificantNumber(number)) >= 7 && len(f.Find([]byte(text), []byte("phone"), nil)) != 1 {
			t.Errorf("%s: %q is not found under the name phone", region, text)
		}
	}
}
