//go:build prove

package deny_test

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// corpus decodes one of the public corpora in the folder CORPORA.
func corpus(t *testing.T, name string, into any) {
	t.Helper()
	folder := os.Getenv("CORPORA")
	if folder == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("the environment variable CORPORA is not set")
		}
		t.Skip("set the environment variable CORPORA to the folder with the corpora")
	}
	f, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// At most one in a hundred harmless prompts with many trigger words is denied.
func TestCorporaBenignPromptsPass(t *testing.T) {
	var prompts []struct{ Prompt, Category string }
	corpus(t, "notinject-benign.json.gz", &prompts)
	l := defaults(t)
	denied := 0
	for _, p := range prompts {
		if h, ok := find(l, []byte(p.Prompt)); ok {
			denied++
			t.Logf("denied as %s (%s): %.120q", h.Pattern, h.View, p.Prompt)
		}
	}
	t.Logf("benign prompts denied: %d of %d", denied, len(prompts))
	if denied*100 > len(prompts) {
		t.Errorf("more than 1 %% of the benign prompts are denied")
	}
}

// TestCorporaIndirectInjections logs how many indirect injections are denied. They contain no typical phrase, so a
// deny list cannot find most of them.
func TestCorporaIndirectInjections(t *testing.T) {
	var attacks map[string]map[string][]string
	corpus(t, "bipia-attacks-train.json.gz", &attacks)
	l := defaults(t)
	for kind, groups := range attacks {
		n, found := 0, 0
		for _, texts := range groups {
			for _, text := range texts {
				n++
				if _, ok := find(l, []byte(text)); ok {
					found++
				}
			}
		}
		if n == 0 {
			t.Errorf("%s: nothing to measure", kind)
		}
		t.Logf("%s: %d of %d denied", kind, found, n)
	}
}
