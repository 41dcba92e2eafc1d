package call

import "testing"

func TestHintFor(t *testing.T) {
	for hint, want := range map[string]string{
		"see: ambit verify PATH; or ambit lock --update PATH": "see: ambit verify a.json; or ambit lock --update a.json",
		"store it: ambit secret set PATH TOKEN":               "store it: ambit secret set a.json TOKEN",
		"put it on the PATH":                                  "put it on the PATH",
		"ambit verify PATHS":                                  "ambit verify PATHS",
		"run ambit and look at the PATH":                      "run ambit and look at the PATH",
	} {
		if got := HintFor(hint, "a.json"); got != want {
			t.Errorf("%q became %q, want %q", hint, got, want)
		}
	}
}
