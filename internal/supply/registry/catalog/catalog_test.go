package catalog_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

// The shipped catalogue is complete. Every entry has a license and a description, and every tool is
// in a scope. The scope named read contains no tool that changes something.
func TestShipped(t *testing.T) {
	c, err := catalog.Open(home.At(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"filesystem", "bash", "git", "fetch", "memory", "browser", "database"} {
		if c.Entries["registry.openmcp.org/"+name] == nil {
			t.Errorf("the catalogue has no entry for %s", name)
		}
	}
	for id, e := range c.Entries {
		if e.License == "" || e.Description == "" {
			t.Errorf("%s has no license or no description", id)
		}
		covered := map[string]bool{}
		for _, tools := range e.Scopes {
			for _, tool := range tools {
				covered[tool] = true
			}
		}
		for tool := range e.Tools {
			if !covered[tool] {
				t.Errorf("%s: no scope covers %s", id, tool)
			}
		}
		for _, tool := range e.Scopes["read"] {
			if class := e.Tools[tool]; class != agent.Read && class != agent.Network {
				t.Errorf("%s: the scope read covers the tool %s, whose class is %s", id, tool, class)
			}
		}
	}
	if got := c.ScopeTools("registry.openmcp.org/bash", "execute"); !slices.Equal(got, []string{"execute"}) {
		t.Errorf("the scope execute covers %v, want only the tool execute", got)
	}
	if got := c.ScopeTools("registry.openmcp.org/bash", "read"); got != nil {
		t.Errorf("an unmapped scope covers %v, want no tools", got)
	}
}

const digest = "sha256:a239da270c403c42eb03e1ca7cca07c858085819797b74856ddbb91b50491b1a"

func TestAdd(t *testing.T) {
	h := home.At(t.TempDir())
	e := &catalog.Entry{
		Version: "1.2.3", Package: catalog.Package{Kind: catalog.NPM, Name: "x", Version: "1.2.3", Digest: digest},
		Tools: map[string]agent.SideEffect{"look": agent.Read}, Scopes: map[string][]string{"read": {"look"}},
	}
	if err := catalog.Add(h, "registry.openmcp.org/git", e); err != nil {
		t.Fatal(err)
	}
	if err := catalog.Add(h, "example.com/y", e); err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Entries["registry.openmcp.org/git"]; got.Version != "1.2.3" || !got.Added {
		t.Errorf("the user's entry does not override the shipped entry: %+v", got)
	}
	if c.Entries["example.com/y"] == nil || c.Entries["registry.openmcp.org/bash"] == nil {
		t.Error("an entry is missing from the catalogue")
	}
}

// Add reports all problems of an invalid entry together and writes no file.
func TestAddRefuses(t *testing.T) {
	h := home.At(t.TempDir())
	err := catalog.Add(h, "example.com/y", &catalog.Entry{
		Version: "1.x", Package: catalog.Package{Kind: "npm", Name: "--evil", Version: "^1"},
		Tools: map[string]agent.SideEffect{"look": "harmless"}, Scopes: map[string][]string{"read": {"gone"}},
	})
	for _, want := range []string{`"1.x"`, `"--evil"`, `"^1"`, "SHA-256", `"harmless"`, `"gone"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not reported: %v", want, err)
		}
	}
	if _, err := os.Stat(catalog.File(h)); err == nil {
		t.Error("Add wrote the file although the entry is invalid")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a/b":{"version":"1.0.0","description":"","package":{"kind":"npm","name":"x","version":"1.0.0","digest":"` + digest + `"},"tools":{"t":"read"},"scopes":{"s":["t"]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := catalog.Parse("x", text)
		if err != nil {
			return
		}
		for id, e := range entries {
			if len(e.Problems()) > 0 {
				t.Errorf("Parse accepted the entry %s with the problems %v", id, e.Problems())
			}
		}
	})
}
