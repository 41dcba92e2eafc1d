//go:build prove

package secret_test

import (
	"bytes"
	"go/build"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// texts is a kind of benign text: the files below some folders whose names match an expression.
type texts struct {
	name    string
	folders []string
	files   *regexp.Regexp
}

// kindSize is how much text of each kind is scanned.
const kindSize = 60 << 20

// samples matches the paths of tests and examples. They contain credentials on purpose, so their findings are counted
// separately.
var samples = regexp.MustCompile(`(?i)test|example|sample|mock|fixture|gitleaks|detect_secrets|oauthlib|[-_.]spec\.`)

// A scan of text without secrets makes fewer than one finding per megabyte, in each kind of text, and scans it to its
// end. The texts are files of Go, of Debian, of the modules in Go's cache and of npm packages, and generated answers,
// logs and lock files. Folders that are not on this machine are left out.
func TestBenignTexts(t *testing.T) {
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := []string{strings.TrimSpace(string(out))}
	bench := filepath.Join("..", "..", "..", "..", "bench")
	packages := []string{filepath.Join(bench, "node_modules"), "/usr/lib/node_modules", "/usr/share/nodejs"}
	goTree := []string{filepath.Join(build.Default.GOROOT, "src"), filepath.Join(build.Default.GOROOT, "test")}
	debian, python := []string{"/usr/share", "/usr/lib"}, []string{"/usr/lib/python3", "/usr/lib/python3.11", "/usr/lib/python3.12", "/usr/lib/python3.13"}
	everywhere := slices.Concat(packages, modules, goTree, debian)
	files := func(endings string) *regexp.Regexp { return regexp.MustCompile(`(` + endings + `)$`) }
	total := 0
	for _, kind := range []texts{
		{"Go", goTree, files(`\.go`)},
		{"Go modules", modules, files(`\.go`)},
		{"JavaScript of npm packages", packages, files(`\.[cm]?js`)},
		{"TypeScript of npm packages", packages, files(`\.[cm]?ts`)},
		{"Python of Debian", python, files(`\.py`)},
		{"lock files", slices.Concat(modules, packages, []string{bench}), files(`go\.sum|go\.mod|\.lock|lock\.json|package\.json`)},
		{"Markdown", everywhere, files(`\.(md|rst)`)},
		{"HTML, XML and SVG", everywhere, files(`\.(html|xml|svg|css)`)},
		{"JSON and YAML", everywhere, files(`\.(json|ya?ml)`)},
		{"CSV and other text", everywhere, files(`\.(csv|tsv|txt)`)},
		{"lists and logs of Debian", []string{"/var/lib/dpkg", "/var/log"}, files(`\.(list|md5sums|log)|/status|/available`)},
	} {
		real, tests := measure(t, kind)
		if total += real.size; real.size > 0 {
			real.report(t, true)
			tests.report(t, false)
		}
	}
	if total < 50<<20 {
		t.Errorf("only %d MB of files were scanned", total>>20)
	}
	r := rand.New(rand.NewPCG(7, 7))
	for name, record := range records(r) {
		var text bytes.Buffer
		for text.Len() < 10<<20 {
			text.WriteString(record() + "\n")
		}
		c := &counts{name: name, rules: map[string]int{}}
		c.scan(t, name, text.Bytes())
		c.report(t, true)
		total += c.size
	}
	if total < 200<<20 {
		t.Errorf("only %d MB were scanned, want 200", total>>20)
	}
	t.Logf("%d MB in all", total>>20)
}

// counts counts the findings in a kind of text.
type counts struct {
	name        string
	size, found int
	rules       map[string]int
}

func (c *counts) scan(t *testing.T, name string, text []byte) {
	c.size += len(text)
	for _, m := range secret.Standard().Scan(text, nil, nil) {
		c.rules[m.Rule]++
		if c.found++; c.rules[m.Rule] <= 5 {
			t.Logf("%s: %s in %s: %.60q", c.name, m.Rule, name, text[m.Start:m.End])
		}
		if m.Rule == secret.RuleUnscanned {
			t.Errorf("%s: %s was not scanned from byte %d of %d", c.name, name, m.Start, len(text))
		}
	}
}

// report logs the numbers. If limited is set, the texts may have one finding per megabyte at most.
func (c *counts) report(t *testing.T, limited bool) {
	t.Logf("%-40s %6.1f MB %5d findings %v", c.name, float64(c.size)/1e6, c.found, c.rules)
	if limited && c.found > c.size/1_000_000 {
		t.Errorf("%s: %d findings in %d bytes", c.name, c.found, c.size)
	}
}

// measure scans the files of a kind of text. It returns the numbers of the samples separately.
func measure(t *testing.T, kind texts) (real, tests *counts) {
	real = &counts{name: kind.name, rules: map[string]int{}}
	tests = &counts{name: kind.name + ", tests and examples", rules: map[string]int{}}
	for _, folder := range kind.folders {
		err := filepath.WalkDir(folder, func(p string, d fs.DirEntry, err error) error {
			if os.IsNotExist(err) || os.IsPermission(err) {
				return nil
			}
			if err != nil || !d.Type().IsRegular() || !kind.files.MatchString(p) {
				return err
			}
			c := real
			if samples.MatchString(strings.TrimPrefix(p, folder)) {
				c = tests
			}
			if c.size > kindSize {
				return nil
			}
			text, err := os.ReadFile(p)
			c.scan(t, p, text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return real, tests
}
