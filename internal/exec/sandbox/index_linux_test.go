package sandbox

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// abuses is how many things programs are known to try.
const abuses = 25

var namedTest = regexp.MustCompile("`(internal/[a-z/]+)\\.(Test\\w+)(?:/([^`]+))?`")

// TestAbuseIndex holds docs/sandbox-abuse.md to the source: every number has
// tests, each of them exists with its case, and none of this package's own
// attempts is missing there.
func TestAbuseIndex(t *testing.T) {
	if again() {
		t.Skip("the source is looked at once")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "sandbox-abuse.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]map[string]*ast.FuncDecl{}
	named := map[string]bool{}
	next := 1
	for line := range strings.Lines(string(page)) {
		tests := namedTest.FindAllStringSubmatch(line, -1)
		if number, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(line+"||", "|", 3)[1])); err == nil {
			if number != next || len(tests) == 0 {
				t.Errorf("number %d comes where %d should, with %d tests", number, next, len(tests))
			}
			next = number + 1
		}
		for _, m := range tests {
			where, name, tried := m[1], m[2], m[3]
			if sources[where] == nil {
				sources[where] = testsIn(t, filepath.Join("..", "..", "..", filepath.FromSlash(where)))
			}
			f := sources[where][name]
			if f == nil {
				t.Errorf("there is no %s in %s", name, where)
				continue
			}
			named[where+"."+name] = true
			if tried != "" && !tries(sources[where], f, tried) {
				t.Errorf("%s in %s has no case %q", name, where, tried)
			}
		}
	}
	if next != abuses+1 {
		t.Errorf("the page ends with number %d", next-1)
	}
	for name := range testsIn(t, ".", "abuse_linux_test.go") {
		if strings.HasPrefix(name, "Test") && !named["internal/exec/sandbox."+name] {
			t.Errorf("%s is not on the page", name)
		}
	}
}

// testsIn are the functions in the tests of a package, or in some files of them.
func testsIn(t *testing.T, dir string, files ...string) map[string]*ast.FuncDecl {
	t.Helper()
	if len(files) == 0 {
		files = []string{"*_test.go"}
	}
	all := map[string]*ast.FuncDecl{}
	for _, pattern := range files {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no tests in %s: %v", dir, err)
		}
		for _, path := range paths {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
					all[f.Name.Name] = f
				}
			}
		}
	}
	return all
}

// tries reports whether a test has a case of a name: in itself, or in the probe
// of the same name that it runs in the sandbox.
func tries(all map[string]*ast.FuncDecl, f *ast.FuncDecl, name string) (found bool) {
	look := func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			found = found || err == nil && text == name
		}
		return !found
	}
	ast.Inspect(f, look)
	if probe := all["probe"+strings.TrimPrefix(f.Name.Name, "Test")]; probe != nil {
		ast.Inspect(probe, look)
	}
	return found
}
