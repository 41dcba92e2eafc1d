package cli

import (
	"path/filepath"
	"testing"
)

// ambit import passes only addresses with known schemes to git, never an option or a command. The clone has the name
// of the repository.
func TestRepositories(t *testing.T) {
	for src, want := range map[string]string{
		"https://example.com/a/b.git": "b",
		"git@example.com:a/b.git":     "b",
		"ssh://git@example.com/b.git": "b",
		"file:///a/b.git":             "b",
		"ext::sh -c evil.git":         "",
		"--upload-pack=evil.git":      "",
		"-c.git":                      "",
		"http://example.com/b.git":    "",
		"https://example.com/b":       "",
		// The folders for the next three addresses always exist, so ambit clones nothing.
		"https://example.com/...git":   "..",
		"https://example.com/..git":    ".",
		"https://example.com/.git":     ".",
		"https://example.com/a/..git/": "",
	} {
		if got := repository.MatchString(src); got != (want != "") {
			t.Errorf("repository.MatchString(%q) = %t", src, got)
		}
		if want == "" {
			continue
		}
		if got := cloneTo(src, filepath.Join("folder", "agent.json")); got != filepath.Join("folder", want) {
			t.Errorf("cloneTo(%q) = %q, want the folder %q", src, got, want)
		}
	}
}
