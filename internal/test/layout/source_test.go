// Package layout checks the source code of the whole repository: ARCHITECTURE.md lists every package, packages
// import only lower packages, every package has a comment, files are short, and every agent in the repository
// works.
package layout

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	root   = "../../.."
	module = "github.com/ambit-run/ambit/"
)

// A file is one Go file of this module.
type file struct {
	path   string // the path from the root of the repository, with slashes
	syntax *ast.File
	lines  int
}

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }
func (f file) dir() string  { return path.Dir(f.path) }

// imports returns the packages of this module that the file imports.
func (f file) imports(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, spec := range f.syntax.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: %v", f.path, err)
		}
		if in, ok := strings.CutPrefix(name, module); ok {
			found = append(found, in)
		}
	}
	return found
}

// source returns every Go file of the module, for all systems.
func source(t *testing.T) []file {
	t.Helper()
	files, err := read()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("found only %d files", len(files))
	}
	return files
}

var read = sync.OnceValues(func() ([]file, error) {
	var files []file
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == root {
				return nil
			}
			// A nested module has its own layout.
			_, other := os.Stat(filepath.Join(name, "go.mod"))
			if other == nil || slices.Contains([]string{"node_modules", "testdata", "bin"}, d.Name()) || strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		from, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		files = append(files, file{filepath.ToSlash(from), syntax, strings.Count(string(text), "\n")})
		return nil
	})
	return files, err
})

// TestFileLength checks that no file is too long.
func TestFileLength(t *testing.T) {
	const limit = 600
	for _, f := range source(t) {
		if f.lines > limit {
			t.Errorf("%s has %d lines: split it, because the limit is %d", f.path, f.lines, limit)
		}
	}
}

// TestPackageComments requires exactly one package comment for each package.
func TestPackageComments(t *testing.T) {
	comments := map[string][]string{}
	tests := map[string]bool{}
	for _, f := range source(t) {
		dir := f.dir()
		if only, seen := tests[dir]; !seen || only {
			tests[dir] = f.isTest()
		}
		if f.syntax.Doc == nil {
			continue
		}
		comments[dir] = append(comments[dir], f.path)
		name := f.syntax.Name.Name
		if text := f.syntax.Doc.Text(); name != "main" && !strings.HasPrefix(text, "Package "+name+" ") {
			t.Errorf("%s: the package comment begins with %q, want \"Package %s\"", f.path, strings.SplitN(text, "\n", 2)[0], name)
		}
	}
	for dir, only := range tests {
		switch docs := comments[dir]; {
		case len(docs) > 1:
			t.Errorf("%s has %d package comments: %s", dir, len(docs), strings.Join(docs, ", "))
		case len(docs) == 0 && !only:
			t.Errorf("%s has no package comment", dir)
		}
	}
}

// TestPublicPackages checks which packages other modules can import. Each of these packages must have examples
// with checked output.
func TestPublicPackages(t *testing.T) {
	packages, tests := map[string]bool{}, map[string][]*ast.File{}
	for _, f := range source(t) {
		switch {
		case f.syntax.Name.Name == "main" || strings.HasPrefix(f.path, "internal/"):
		case f.isTest():
			tests[f.dir()] = append(tests[f.dir()], f.syntax)
		default:
			packages[f.dir()] = true
		}
	}
	// The packages agents and docs/api are outside internal only because they embed the files of their
	// directories.
	want := []string{"agent", "agents", "docs/api", "manifest", "tooluri"}
	if got := slices.Sorted(maps.Keys(packages)); !slices.Equal(got, want) {
		t.Errorf("the packages outside internal are %q, want %q", got, want)
	}
	for public := range packages {
		checked := 0
		for _, e := range doc.Examples(tests[public]...) {
			if e.Output == "" {
				t.Errorf("%s: the example %s shows no output", public, e.Name)
			}
			checked++
		}
		if checked == 0 {
			t.Errorf("%s has no example", public)
		}
	}
}
