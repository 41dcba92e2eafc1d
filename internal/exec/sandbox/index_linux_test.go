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

// abuses is the number of attacks in docs/sandbox-abuse.md.
const abuses = 25

var namedTest = regexp.MustCompile("`(internal/[a-z/]+)\\.(Test\\w+)(?:/([^`]+))?`")

// TestAbuseIndex compares docs/sandbox-abuse.md with the source. The page must list tests for each
// attack. Every listed test and case must exist. Every test in abuse_linux_test.go must be listed.
func TestAbuseIndex(t *testing.T) {
	if again() {
		t.Skip("other runs of these tests already check the source")
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
				t.Errorf("the page has number %d with %d tests, want number %d with at least one test", number, len(tests), next)
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
		t.Errorf("the page ends with number %d, want %d", next-1, abuses)
	}
	for name := range testsIn(t, ".", "abuse_linux_test.go") {
		if strings.HasPrefix(name, "Test") && !named["internal/exec/sandbox."+name] {
			t.Errorf("%s is not on the page", name)
		}
	}
}

// testsIn returns the functions in the test files of a folder, or only in the given files.
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

// tries reports whether a test contains the name of a case as a string literal. It searches the
// test function, and the probe function that the test runs in the sandbox.
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
