package manifest_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestCorpus reads every bad manifest under testdata/bad and compares its
// problems with the golden file beside it. A file is named after the code it
// is there for, CODE-why.json, so that -update cannot make a wrong answer the
// expected one. A name with -strict- is read strictly.
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
		t.Errorf("the corpus holds %d bad manifests, fewer than 150", cases)
	}
	for _, r := range manifest.Rules() {
		// These need a file too large to keep; other tests make them.
		if !codes[r.Code] && r.Code != diag.TooLarge.Code && r.Code != diag.TooManyValues.Code && r.Code != diag.TooMany.Code {
			t.Errorf("no bad manifest in the corpus breaks %s (%s)", r.Code, r.Title)
		}
	}
}

// listing is one line for each problem: where, what, and what to do.
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
		t.Fatalf("%v (make it with: go test ./manifest -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (if that is right: go test ./manifest -update)\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}
