package egress

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
)

// fill replaces a placeholder that is a whole header value, or follows a scheme, or is the user name or password of
// Basic authentication. It changes no other header.
func FuzzFill(f *testing.F) {
	const placeholder = "ambit-placeholder-1"
	const value = "s3cret-" + placeholder // a placeholder inside the inserted secret stays
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for _, header := range []string{
		"", placeholder, "Bearer " + placeholder, "basic " + placeholder, "Basic !", "Basic", "x" + placeholder,
		placeholder + placeholder, "Bearer x " + placeholder, "pad " + placeholder, "Bearer  " + placeholder,
		"Basic " + encode("me:"+placeholder), "Basic " + encode(placeholder+":"), "Basic " + encode(placeholder),
		"Basic " + encode("x"+placeholder+":"), "Basic " + encode("me:"+placeholder+"x"),
	} {
		f.Add(header)
	}
	whole := regexp.MustCompile(`^((?i:bearer|basic|token|apikey|bot) )?` + placeholder + `$`)
	pair := regexp.MustCompile(`(?s)^(` + placeholder + `|[^:]*)(?:(:)(` + placeholder + `|.*))?$`)
	s := &swapper{swaps: []Swap{{Placeholder: placeholder, Value: func() string { return value }}}}
	f.Fuzz(func(t *testing.T, header string) {
		want := whole.ReplaceAllString(header, "${1}"+value)
		if len(header) > 6 && strings.EqualFold(header[:6], "Basic ") {
			if plain, err := base64.StdEncoding.DecodeString(header[6:]); err == nil {
				part := pair.FindStringSubmatch(string(plain))
				for i := range part {
					if part[i] == placeholder {
						part[i] = value
					}
				}
				want = header[:6] + encode(part[1]+part[2]+part[3])
			}
		}
		if got := s.fill(header); got != want {
			t.Errorf("%q became %q, want %q", header, got, want)
		}
	})
}
