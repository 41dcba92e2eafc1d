package literal_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
)

// Any words in any text, against the search that looks everywhere.
func FuzzScan(f *testing.F) {
	f.Add("abc\nBCA\ncab\naa\nabcabcabcabc\nc-c", "abcABCaabcabcabcabc-c", uint8(40))
	f.Add("abc\nca", strings.Repeat("abcAB-", 50), uint8(3))
	f.Add("\xe2\x80\x8b\nghp_\nAKIA", "x\xe2\x80\x8bGHP_akia", uint8(0))
	f.Fuzz(func(t *testing.T, list, text string, pad uint8) {
		// Four lanes are walked in a long text only.
		text = ascii(strings.Repeat(".", int(pad)) + text + strings.Repeat("a", int(pad)))
		words := slices.DeleteFunc(strings.Split(ascii(list), "\n"), func(w string) bool { return w == "" })
		if len(words)*len(text) > 1<<14 {
			return // too much for the search that looks everywhere
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
			t.Errorf("%q in %q: contained, or not, unlike what is found", words, text)
		}
	})
}

// ascii is a text with nothing but ASCII in it, for the other search folds all
// letters and not only these.
func ascii(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] &= 0x7f
	}
	return string(b)
}
