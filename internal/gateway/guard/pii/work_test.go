package pii

import (
	"bytes"
	"strings"
	"testing"
)

// hostile lists texts. Each is repeated, to find texts that take much work. The first is prose, with which the others
// are compared.
var hostile = []struct{ name, text string }{
	{"prose", "The meeting on 12 March begins at 10:30. Please bring 2 copies of the report, and write to the team. "},
	{"digits", "1 2 3 4 5 6 7 8 9 "},
	{"digits with two spaces", "0  1  "},
	{"pairs", "12 34 56 78 "},
	{"threes", "312 443 201 "},
	{"fours", "4539 1234 5678 9017 1 "},
	{"dashes", "12-34-56-78-"},
	{"dots", "1.1.1.1.1."},
	{"colons", "a:1:b:2:"},
	{"double colons", "::1::"},
	{"pluses", "+1+49+1 4+"},
	{"parentheses", "(1(212)(1"},
	{"letters and digits", "AB12 CD34 EF56 "},
	{"IBAN", "DE89 3704 0044 0532 0130 01 "},
	{"unbroken IBAN", "DE89370400440532013001 "},
	{"card", "4539123456789018 "},
	{"valid card", "4539123456789017 "},
	{"valid Turkish id", "10000000146 "},
	{"eleven digits", "12345678901 "},
	{"nine digits", "123456789 "},
	{"all labels", "ssn bsn sin tfn acn nif afm 123456789 "},
	{"labels", "tax id tax id number passport "},
	{"phone label", "tel 1234567 "},
	{"phone words", "number is number is 1 "},
	{"requests", "call me at 1 "},
	{"wallet", "1DMJBBgLpxBjeync7oGFf4E7xonk7bCJna "},
	{"bech32", "bc1qsauz4pv8ugecdahs2hx8vhdncek86dh0nfvxt8 "},
	{"emails", "a@b.co "},
	{"bad emails", "a.b.c.d@e.f.g.h@"},
	{"long domain", "a@" + strings.Repeat("b.", 120) + "zz "},
	{"dates", "born 12 March 1980 "},
	{"French", "2 69 05 49 588 157 81 "},
	{"MAC", "aa-bb-cc-dd-ee-"},
	{"NINO", "AB 12 34 56 "},
	{"region", "german 0171 2345678 "},
	{"labels after", "12345678901 tax id citizen"},
	{"one long token", "1a"},
}

func newSearcher(t testing.TB) *search {
	f, err := New(Categories)
	if err != nil {
		t.Fatal(err)
	}
	return f.newSearch()
}

// maxWork is the number of bytes that a search may look at for each byte of the text.
const maxWork = 24

// The work for a text is linear, whatever the text repeats.
func TestWorkIsLinear(t *testing.T) {
	s := newSearcher(t)
	for _, h := range hostile {
		for _, key := range []string{"", "phone", "some_long_name_of_a_member_passport_number"} {
			text := []byte(strings.Repeat(h.text, 1+(64<<10)/len(h.text)))
			s.find(text, []byte(key), nil)
			if ratio := float64(s.work) / float64(len(text)); ratio > maxWork {
				t.Errorf("%s, key %q: the search read %.1f bytes for each byte of text", h.name, key, ratio)
			} else if testing.Verbose() && key == "" {
				t.Logf("%-20s %5.1f", h.name, ratio)
			}
		}
	}
}

// FuzzWork looks for texts whose search takes much work.
func FuzzWork(f *testing.F) {
	for _, h := range hostile {
		f.Add([]byte(h.text), []byte("phone"))
		f.Add([]byte(h.text), []byte{})
	}
	s := newSearcher(f)
	f.Fuzz(func(t *testing.T, unit, key []byte) {
		if len(unit) == 0 || len(unit) > 400 {
			return
		}
		text := bytes.Repeat(unit, 1+(8<<10)/len(unit))
		s.find(text, key, nil)
		if s.work > maxWork*len(text)+1000 {
			t.Fatalf("%q repeated: the search read %.1f bytes for each byte of text", unit, float64(s.work)/float64(len(text)))
		}
	})
}

// BenchmarkFind measures the speed on texts that take much work. Compare each result with prose.
func BenchmarkFind(b *testing.B) {
	for _, h := range hostile {
		b.Run(strings.ReplaceAll(h.name, " ", "_"), func(b *testing.B) {
			s := newSearcher(b)
			text := []byte(strings.Repeat(h.text, 1+(64<<10)/len(h.text)))
			b.SetBytes(int64(len(text)))
			var spans []Span
			for b.Loop() {
				spans = s.find(text, nil, spans[:0])
			}
		})
	}
}
