package pii_test

import (
	"slices"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/pii"
)

// For any text and any member name, the spans are within the text and in order. A second search finds the same
// spans.
func FuzzFind(f *testing.F) {
	for _, s := range [][2]string{
		{"anna@example.org, 4111 1111 1111 1111", ""},
		{"+1 (415) 555-2671 or 0049 30 901820", "phoneNumber"},
		{"DE89 3704 0044 0532 0130 00", "iban"},
		{"536-22-1234", "ssn"},
		{"born March 12th, 1980; 12.3.1980", "date_of_birth"},
		{"2001:db8::1 aa-bb-cc-dd-ee-ff aabb.ccdd.eeff 8.8.8.8", ""},
		{"ﬁ@ﬁ.com ４１１１１１１１１１１１１１１１ 1\u200b2", "key"},
		{"é anna@example.org", ""},
		{"anna@example.org@example.org", ""},
		{"C01X00T47 0x52908400098527886E0F7030069857D2E4169EE7", "passport_no"},
	} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	finder, err := pii.New(pii.Categories)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, key []byte) {
		spans := finder.Find(text, key, nil)
		last := 0
		for _, s := range spans {
			if s.Start < last || s.End <= s.Start || s.End > len(text) || !slices.Contains(pii.Categories, s.Category) {
				t.Fatalf("in %q, the span %v is invalid or overlaps the span that ends at %d", text, s, last)
			}
			last = s.End
		}
		if again := finder.Find(text, key, nil); !slices.Equal(again, spans) {
			t.Fatalf("in %q, the first search found %v, the second %v", text, spans, again)
		}
	})
}
