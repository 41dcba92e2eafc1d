package manifest_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestCorpus parses every bad manifest under testdata/bad and compares its problems with the golden file next to it.
// The name of a manifest starts with the code that must be reported, as in CODE-why.json. So the flag -update cannot
// hide a missing code. If the name contains -strict-, the manifest is parsed with Options.Strict.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*/*")
	if err != nil {
		t.Fatal(err)
	}
	cases, codes := 0, map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, ".golden") {
			continue
		}
		cases++
		name := filepath.Base(file)
		code, _, ok := strings.Cut(name, "-")
		if !ok {
			t.Errorf("%s is not named CODE-why", file)
			continue
		}
		codes[code] = true
		t.Run(name, func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m, _ := manifest.Parse(name, src, manifest.Options{Strict: strings.Contains(name, "-strict-")})
			got := listing(m)
			if !strings.Contains(got, " "+code+" ") {
				t.Errorf("%s is not reported:\n%s", code, got)
			}
			compareGolden(t, file+".golden", got)
		})
	}
	if cases < 150 {
		t.Errorf("the corpus contains %d bad manifests, want at least 150", cases)
	}
	for _, r := range manifest.Rules() {
		// Only very large files break the first three rules, and GP031 depends on the catalogue; other tests break them.
		elsewhere := []string{diag.TooLarge.Code, diag.TooManyValues.Code, diag.TooMany.Code, "GP031"}
		if !codes[r.Code] && !slices.Contains(elsewhere, r.Code) {
			t.Errorf("no bad manifest in the corpus breaks %s (%s)", r.Code, r.Title)
		}
	}
}

// listing formats every problem of m: its location, severity, code, pointer, message and hint.
func listing(m *manifest.Manifest) string {
	var b strings.Builder
	fmt.Fprintf(&b, "dialect %s\n", m.Dialect)
	for _, d := range m.Diagnostics {
		fmt.Fprintf(&b, "%d:%d %s %s %s\n  %s\n", d.Line, d.Column, d.Severity, d.Code, d.Pointer, d.Message)
		if d.Hint != "" {
			fmt.Fprintf(&b, "  hint: %s\n", d.Hint)
		}
	}
	return b.String()
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (create the file with: go test ./manifest -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (if the new text is right, run: go test ./manifest -update)\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}
