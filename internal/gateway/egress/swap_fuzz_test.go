package egress

import (
	"encoding/base64"
	"strings"
	"testing"
)

// fill replaces every placeholder in a header exactly once, including those in Basic
// authentication. A header without a placeholder is not changed.
func FuzzFill(f *testing.F) {
	const placeholder = "ambit-placeholder-1"
	const value = "s3cret-" + placeholder // a placeholder in an inserted secret stays
	f.Add("Authorization", "Bearer "+placeholder)
	f.Add("Authorization", "basic "+base64.StdEncoding.EncodeToString([]byte("me:"+placeholder)))
	f.Add("Authorization", "Basic !")
	f.Add("X-Key", placeholder+placeholder+" Basic")
	f.Add("X-Key", "")
	s := &swapper{swaps: []Swap{{Placeholder: placeholder, Value: func() string { return value }}}}
	plain := func(name, header string) string {
		scheme, rest, _ := strings.Cut(header, " ")
		if text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil && name == "Authorization" && strings.EqualFold(scheme, "Basic") {
			return scheme + " " + string(text)
		}
		return header
	}
	f.Fuzz(func(t *testing.T, name, header string) {
		got, want := plain(name, s.fill(name, header)), strings.ReplaceAll(plain(name, header), placeholder, value)
		if got != want {
			t.Errorf("%s: %q became %q, want %q", name, header, got, want)
		}
	})
}
