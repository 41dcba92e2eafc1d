//go:build unix

// Package docs checks the documents against the program. It runs the commands on every Markdown page and compares the
// output with the output on the page. A page can give a reason not to run a command.
//
// The comment of readPage describes how to write a page. All commands of a page run in one shell, in an empty home
// with a copy of the directory agents. In these commands ambit is the test binary, so documents and code have the same
// version.
package docs

import (
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

var update = flag.Bool("update", false, "write the reference pages")

// TestMain makes the test binary run as ambit if it is called by that name.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "ambit", "mcl-tools", "findagent-mcp":
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

// root is the root directory of the repository.
const root = "../../.."

// pages returns the paths of all documents.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "agents/README.md", "deploy/README.md"}
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(path, ".md") {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPages runs the commands of every page.
func TestPages(t *testing.T) {
	bin := ambit(t)
	for _, page := range pages(t) {
		t.Run(page, func(t *testing.T) {
			steps, err := readPage(filepath.Join(root, page))
			if err != nil {
				t.Fatal(err)
			}
			steps = slices.DeleteFunc(steps, func(s step) bool { return s.reason != "" && !proving })
			if len(steps) == 0 {
				return // nothing to run
			}
			t.Parallel()
			s := newShell(t, bin, filepath.Dir(page), needs(t, page))
			for _, st := range steps {
				s.do(page, st)
			}
		})
	}
}

// needs returns additional environment variables for a page. The comment <!-- needs: postgres --> on a page
// makes the URL of a database available as $STORE.
func needs(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "<!-- needs: postgres -->") {
		return nil
	}
	store, err := statetest.Database(t.Context())
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return []string{"STORE=" + store}
}

// ambit creates a directory for PATH that contains this test program under the names of ambit.
func ambit(t *testing.T) (bin string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin = t.TempDir()
	program := filepath.Join(bin, "ambit")
	if os.Link(self, program) != nil { // the directory is on another file system
		from, err := os.Open(self)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		to, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(to, from); err != nil {
			t.Fatal(err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"mcl-tools", "findagent-mcp"} {
		if err := os.Symlink("ambit", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}
