package adversary

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the root directory of the repository.
const root = "../../.."

// promise is a row of the table in docs/threat-model.md.
type promise struct {
	id, text, mechanism string
	tests               []string // package directory and test name, such as "internal/gateway/gate TestDecide"
}

var (
	rowStart = regexp.MustCompile(`^\| (P\d{2,3}) \|`)
	testName = regexp.MustCompile("`([a-z0-9_/]+) ((?:Test|Fuzz)[A-Za-z0-9]+(?:/[a-z-]+)?)`")
)

// promises returns the rows of the table.
func promises(t *testing.T) []promise {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	var list []promise
	for line := range strings.Lines(string(text)) {
		if !rowStart.MatchString(line) {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			t.Fatalf("a row has %d cells, want 4: %s", len(cells), line)
		}
		p := promise{id: strings.TrimSpace(cells[0]), text: strings.TrimSpace(cells[1]), mechanism: strings.TrimSpace(cells[2])}
		for _, m := range testName.FindAllStringSubmatch(cells[3], -1) {
			p.tests = append(p.tests, m[1]+" "+m[2])
		}
		list = append(list, p)
	}
	return list
}

// TestEveryPromiseHasItsTest checks that every promise of the document names at least one test, and that each test
// exists.
func TestEveryPromiseHasItsTest(t *testing.T) {
	list := promises(t)
	if len(list) < 60 {
		t.Fatalf("the table has only %d promises", len(list))
	}
	seen := map[string]bool{}
	declared := map[string]map[string]bool{}
	for _, p := range list {
		if seen[p.id] {
			t.Errorf("%s appears twice", p.id)
		}
		seen[p.id] = true
		if p.text == "" || p.mechanism == "" || len(p.tests) == 0 {
			t.Errorf("%s lacks a promise, a mechanism or a test", p.id)
		}
		for _, name := range p.tests {
			dir, test, _ := strings.Cut(name, " ")
			if declared[dir] == nil {
				declared[dir] = testsIn(t, filepath.Join(root, dir))
			}
			test, script, is := strings.Cut(test, "/")
			if _, err := os.Stat(filepath.Join(root, dir, "testdata", script+".txtar")); is && err != nil {
				t.Errorf("%s names the script %s in %s, which does not exist", p.id, script, dir)
			}
			if !declared[dir][test] {
				t.Errorf("%s names %s in %s, which does not exist", p.id, test, dir)
			}
		}
	}
}

// testsIn returns the names of the tests in a directory, for all build tags.
func testsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}

// removal describes how to remove one mechanism. TestWithoutItsMechanism replaces a text in a file, and then the test
// of the promise must fail.
type removal struct {
	id   string // the number of the promise in docs/threat-model.md
	file string
	old  string
	new  string
	// pkg and test identify the test that must fail; the document names the same test.
	pkg  string
	test string
}

// TestRemovalsFit checks the list of removals. The text of each removal must occur once in its file. The document must
// name the test of each removal. Every promise must have a removal.
func TestRemovalsFit(t *testing.T) {
	named, removed := map[string][]string{}, map[string]bool{}
	for _, r := range removals {
		removed[r.id] = true
	}
	for _, p := range promises(t) {
		if named[p.id] = p.tests; !removed[p.id] {
			t.Errorf("no removal removes the mechanism of %s", p.id)
		}
	}
	for _, r := range removals {
		text, err := os.ReadFile(filepath.Join(root, r.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), r.old); n != 1 {
			t.Errorf("%s: %q occurs %d times in %s, want 1", r.id, r.old, n, r.file)
		}
		want, found := strings.TrimPrefix(r.pkg, "./")+" "+r.test, false
		for _, have := range named[r.id] {
			found = found || have == want
		}
		if !found {
			t.Errorf("%s: the document does not name %s", r.id, want)
		}
	}
}
