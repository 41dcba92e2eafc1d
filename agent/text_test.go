package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

func TestPlaceholders(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "[] []",
		"no braces":               "[] []",
		"/a/{b}/c?d={e.f-1}&{_g}": "[{b 3 6 } {e.f-1 11 18 } {_g 19 23 }] []",
		`{"a": {}, "b": {c}}`:     "[{c 15 18 }] [0 6 7 18]",
		"{{x}}":                   "[{x 1 4 }] [0 4]",
		"{1} {a b} {":             "[] [0 2 4 8 10]",
		"}{a}":                    "[{a 1 4 }] [0]",
		"?a={b?}&c={d*}":          "[{b 3 7 ?} {d 10 14 *}] []",
		"{?} {a?*} {a??} {a? {a*": "[] [0 2 4 8 10 14 16 20]",
		"{ü}":                     "[] [0 3]",
	} {
		found, stray := agent.Placeholders(text)
		if got := fmt.Sprint(found, " ", stray); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func FuzzPlaceholders(f *testing.F) {
	f.Add("/a/{b}?{{c}}{")
	f.Fuzz(func(t *testing.T, text string) {
		found, stray := agent.Placeholders(text)
		braces, last := len(stray), 0
		for _, p := range found {
			if p.Start < last || text[p.Start:p.End] != "{"+p.Name+p.Modifier+"}" || p.Name == "" {
				t.Fatalf("%q: %+v", text, p)
			}
			braces, last = braces+2, p.End
		}
		if want := strings.Count(text, "{") + strings.Count(text, "}"); braces != want {
			t.Errorf("%q: got %d braces in placeholders and stray, want %d", text, braces, want)
		}
	})
}

func TestCovers(t *testing.T) {
	slot := agent.Slot{Hosts: []string{"example.com", "api.example.org"}}
	for host, want := range map[string]bool{
		"example.com": true, "EXAMPLE.com": true, "a.b.example.com": true, "example.com.": true, "api.example.org": true,
		"example.org": false, "evilexample.com": false, "example.com.evil.test": false, "com": false, "": false, "xample.com": false,
		"api.example.org..": false,
	} {
		if got := slot.Covers(host); got != want {
			t.Errorf("Covers(%q) = %v, want %v", host, got, want)
		}
	}
	if agent.Covers([]string{""}, "example.com") || agent.Covers(nil, "example.com") {
		t.Error("an empty list of hosts, or an empty host, covers example.com")
	}
}
