//go:build unix

package docs

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	seedRow  = regexp.MustCompile(`^\| ([A-Z]\d+) \|`)
	seedTest = regexp.MustCompile("^`([a-z0-9_/]+)\\.(Test[A-Za-z0-9]+)(?:/([^`]+))?`$")
)

// tested contains the test functions in a package's test files, and the names that their subtests can have.
type tested struct{ functions, names map[string]bool }

// TestSeeds checks the tables of docs/seeds.md. Every row has an id, a requirement, and tests
// or a deferral. Every test exists.
func TestSeeds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "seeds.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, packages := map[string]bool{}, map[string]tested{}
	for line := range strings.Lines(string(text)) {
		if !seedRow.MatchString(line) {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 {
			t.Errorf("a row has %d cells, want 3: %s", len(cells), line)
			continue
		}
		id, requirement := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1])
		if rows[id] || requirement == "" {
			t.Errorf("%s appears twice or has no requirement", id)
		}
		rows[id] = true
		tests := strings.TrimSpace(cells[2])
		if tests == "" && strings.HasPrefix(requirement, "deferred: ") {
			continue
		}
		for name := range strings.SplitSeq(tests, ", `") {
			m := seedTest.FindStringSubmatch("`" + strings.TrimPrefix(name, "`"))
			if m == nil {
				t.Errorf("%s: %q is not a test, such as `manifest.TestCorpus`", id, name)
				continue
			}
			p, ok := packages[m[1]]
			if !ok {
				p = testsOf(t, filepath.Join(root, m[1]))
				packages[m[1]] = p
			}
			if !p.functions[m[2]] {
				t.Errorf("%s: the package %s has no test %s", id, m[1], m[2])
			}
			if m[3] != "" && !p.names[subtest(m[3])] {
				t.Errorf("%s: the tests of %s do not contain the name %q", id, m[1], m[3])
			}
		}
	}
	if len(rows) < 179 {
		t.Errorf("the page has %d requirements, want at least 179", len(rows))
	}
}

// subtest writes the name of a subtest in the form that the flag -run accepts.
func subtest(name string) string { return strings.ReplaceAll(name, " ", "_") }

// testsOf reads the tests in a directory, for all build tags. A subtest is named by a string in a test file, or by a
// file under testdata.
func testsOf(t *testing.T, dir string) tested {
	t.Helper()
	found := tested{map[string]bool{}, map[string]bool{}}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		tree, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil {
					found.functions[n.Name.Name] = true
				}
			case *ast.BasicLit:
				if name, err := strconv.Unquote(n.Value); err == nil && n.Kind == gotoken.STRING {
					found.names[subtest(name)] = true
				}
			}
			return true
		})
	}
	err = filepath.WalkDir(filepath.Join(dir, "testdata"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			found.names[e.Name()] = true
			found.names[strings.TrimSuffix(e.Name(), filepath.Ext(e.Name()))] = true
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
