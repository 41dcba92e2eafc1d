package secret

import (
	"strings"
	"testing"
)

// A list of formats is refused if a format cannot be compared from left to right, or has no literal to search for.
func TestBadFormats(t *testing.T) {
	for list, want := range map[string]string{
		"no tab":                          "has no tab",
		"x\t(":                            "missing closing",
		"x\tabc(?i)def":                   "ignore case",
		"x\tabc(?:de){2}":                 "repeats a group",
		"x\tabc^":                         "cannot be used here",
		"x\tabc[é]{4}":                    "other than ASCII",
		"x\tabc(?:d|[é])":                 "other than ASCII",
		"x\tabc[a-z]{2,5}def":             "can contain the beginning",
		"x\tabc[a-z]{2,5}[c-f]{3}":        "can contain the beginning",
		"x\t[a-z]{5}":                     "no literal",
		"x\t[a-z]{5,9}-[A-Z]{30}":         "no literal",
		"# a comment\n\nx\tabc[a-z]{5,9}": "",
		"x\tabc[a-z]+\ny\tdef[0-9]*":      "",
	} {
		_, err := build(list)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got the error %v, want %q", list, err, want)
		}
	}
}
