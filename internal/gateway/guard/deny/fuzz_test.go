package deny_test

import (
	"regexp"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/deny"
)

// The search for words never hides a match: if the regular expression alone matches a text, the list finds it too. All
// matches are inside the text.
func FuzzFind(f *testing.F) {
	for regex, text := range map[string]string{
		`launch(?:es|ed|ing)?\s+codes`: "xx launch\tcodes yy",
		`(?:reveal\s+){2,3}the`:        "reveal\nreveal reveal the codes",
		`[s\x{17f}]ecret`:              "kelvin \u212aelvin and \u017fecret",
		`reveal.{0,40}codes`:           "reveal the 99 codes",
		`\W(?:été|codes)`:              "été reveal codes",
		`^a.b|\bk[e3]lvin$`:            "K3LVIN",
		`\b{17f}Be`:                    "x{17f}Be",
		`(?:a|b|c)x{20,}`:              "axxxxxxxxxxxxxxxxxxxxxxxx",
	} {
		f.Add(regex, []byte(text))
	}
	f.Fuzz(func(t *testing.T, regex string, text []byte) {
		l, err := deny.Compile([]deny.Pattern{{Name: "one", Regex: regex}})
		if err != nil {
			if deny.Check(regex) == nil {
				t.Fatalf("Check accepts %q, but Compile returns %v", regex, err)
			}
			return
		}
		if _, found := find(l, text); !found && len(text) > 0 && regexp.MustCompile("(?i:"+regex+")").Match(text) {
			t.Fatalf("%q is not found in %q", regex, text)
		}
		hits, err := l.FindAll(t.Context(), text)
		for _, h := range hits {
			if h.Start < 0 || h.End < h.Start || h.End > len(text) {
				t.Fatalf("%q is found in %q at %d to %d", regex, text, h.Start, h.End)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
