package guard_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// The engine returns matches within the text and in order, and a second scan returns the same matches. This fuzz test
// is not in package secret, because the tests there have large imports that would slow down fuzzing.
func FuzzSecrets(f *testing.F) {
	for _, s := range []string{
		"x=" + pat, `\u0067` + pat[1:], "https://u:p%67@example.com/?t=%67" + pat[1:], pat[:6] + "\u200b" + pat[6:],
		"-----BEGIN RSA PRIVATE KEY-----\nMIIB", "curl -u a:b -H 'x: y'", "eyJhbGciOiJIUzI1NiJ9.e30.", base64.StdEncoding.EncodeToString([]byte(pat)),
	} {
		f.Add([]byte(s))
	}
	e := secret.Standard()
	f.Fuzz(func(t *testing.T, text []byte) {
		matches := e.Scan(text, nil, nil)
		last := 0
		for _, m := range matches {
			if m.Start < last || m.End <= m.Start || m.End > len(text) || m.Rule == "" {
				t.Fatalf("in %q, the match %v is invalid or overlaps the match that ends at %d", text, m, last)
			}
			last = m.End
		}
		if again := e.Scan(text, nil, nil); !slices.Equal(again, matches) {
			t.Fatalf("in %q, the first scan found %v, the second %v", text, matches, again)
		}
	})
}

// A credential that ambit stores is found in any context and any encoding.
func FuzzKnown(f *testing.F) {
	f.Add("kn0wn-cr3dential", "a", "b", uint8(0))
	f.Add(`with "quotes" & ünïcode`, "", "=", uint8(5))
	f.Add(`{"private_key":"line one\nline two"}`, "x", "", uint8(2))
	f.Fuzz(func(t *testing.T, value, before, after string, how uint8) {
		known, err := secret.NewKnown([]secret.Value{{Name: "SLOT", Secret: value}})
		if err != nil {
			t.Fatal(err)
		}
		if len(value) < 12 { // the context changes too many base64 characters of a shorter value
			return
		}
		var text string
		switch how % 6 {
		case 0:
			text = before + value + after
		case 1:
			text = before + url.QueryEscape(value) + after
		case 2:
			text = before + strings.ToUpper(hex.EncodeToString([]byte(value))) + after
		case 3:
			text = base64.StdEncoding.EncodeToString([]byte(before + value + after))
		case 4:
			text = base64.URLEncoding.EncodeToString([]byte(before + value + after))
		case 5:
			quoted, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.ContainsAny(value, "<>&\u2028\u2029\b\f\x7f") || strings.ToValidUTF8(value, "") != value {
				return // JSON allows several spellings of these characters
			}
			text = before + string(quoted) + after
		}
		found := known.Find([]byte(text))
		if len(found) == 0 {
			t.Fatalf("%q is not found in %q", value, text)
		}
		if got := known.Replace(text, func(string) string { return "" }); len(got) >= len(text) {
			t.Fatalf("%q is still in %q", value, got)
		}
	})
}
