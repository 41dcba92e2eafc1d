package cli

import (
	"path/filepath"
	"testing"
)

// What git is given is an address of a known kind, no option and no program, and
// the clone lies in a folder of its own.
func TestRepositories(t *testing.T) {
	for src, want := range map[string]string{
		"https://example.com/a/b.git":  "b",
		"git@example.com:a/b.git":      "b",
		"ssh://git@example.com/b.git":  "b",
		"file:///a/b.git":              "b",
		"ext::sh -c evil.git":          "",
		"--upload-pack=evil.git":       "",
		"-c.git":                       "",
		"http://example.com/b.git":     "",
		"https://example.com/b":        "",
		"https://example.com/...git":   "..", // there already, as the next ones are, so that nothing is cloned
		"https://example.com/..git":    ".",
		"https://example.com/.git":     ".",
		"https://example.com/a/..git/": "",
	} {
		if got := isRepository(src); got != (want != "") {
			t.Errorf("%q is a repository: %t", src, got)
		}
		if want == "" {
			continue
		}
		if got := cloneTo(src, filepath.Join("folder", "agent.json")); got != filepath.Join("folder", want) {
			t.Errorf("%q is cloned into %q", src, got)
		}
	}
}
