package literal_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
)

// FuzzScan compares Scan with a naive search, for any words in any text.
func FuzzScan(f *testing.F) {
	f.Add("abc\nBCA\ncab\naa\nabcabcabcabc\nc-c", "abcABCaabcabcabcabc-c", uint8(40))
	f.Add("abc\nca", strings.Repeat("abcAB-", 50), uint8(3))
	f.Add("\xe2\x80\x8b\nghp_\nAKIA", "x\xe2\x80\x8bGHP_akia", uint8(0))
	f.Fuzz(func(t *testing.T, list, text string, pad uint8) {
		// The text is padded, because only a long text is split into four lanes.
		text = ascii(strings.Repeat(".", int(pad)) + text + strings.Repeat("a", int(pad)))
		words := slices.DeleteFunc(strings.Split(ascii(list), "\n"), func(w string) bool { return w == "" })
		if len(words)*len(text) > 1<<14 {
			return // too slow for the naive search
		}
		s, err := literal.New(words, 8)
		if err != nil {
			t.Fatal(err)
		}
		got := sorted(scan(s, []byte(text)))
		if want := sorted(naive(words, []byte(text), 8)); !slices.Equal(got, want) {
			t.Errorf("%q in %q: got %v, want %v", words, text, got, want)
		}
		if s.Contains([]byte(text)) != (len(got) > 0) {
			t.Errorf("%q in %q: Contains and Scan disagree", words, text)
		}
	})
}

// ascii converts a text to ASCII, because the naive search also folds the case of other letters.
func ascii(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] &= 0x7f
	}
	return string(b)
}
