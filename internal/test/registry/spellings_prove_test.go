//go:build prove

package registry_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestSpellingsReachTheFile checks that the filesystem server reads a file by several spellings of its path.
// A policy rule about the directory must apply to all spellings, and to ~, which is the home of the sandbox to the server.
func TestSpellingsReachTheFile(t *testing.T) {
	home := newHome(t)
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", work)
	secret := place(t, filepath.Join(work, "secret", "key.txt"), "the key itself")
	place(t, filepath.Join(work, "open.txt"), "for all")
	place(t, filepath.Join(home, "config.toml"), fmt.Sprintf("[server.\"registry.openmcp.org/filesystem\"]\nwork = %q\n", work))
	file := place(t, filepath.Join(t.TempDir(), "reader.json"), `{"id": "org:example/agent:reader-v1", "required_mcp_servers": [
		{"server_id": "registry.openmcp.org/filesystem", "version": ">=1.0.0", "permission_scopes": ["read"]}]}`)
	ambit(t, 0, nil, "grant", "reader", "--server", "registry.openmcp.org/filesystem", "--scope", "read")
	ambit(t, 0, nil, "lock", file)
	c := run(t, file)
	spellings := []string{secret, "secret/key.txt", "open/../secret/key.txt", work + "/open/.././secret//key.txt"}
	read := func(path string) (string, int) {
		a := c.call("read_text_file", fmt.Sprintf(`{"path":%q}`, path))
		if a.Error != nil {
			return "", a.Error.Code
		}
		return string(a.Result), 0
	}
	for _, path := range spellings {
		if got, code := read(path); !strings.Contains(got, "the key itself") {
			t.Errorf("the server does not read %s: %s %d", path, got, code)
		}
	}
	place(t, filepath.Join(home, "policy.cedar"), fmt.Sprintf(`permit (principal == Agent::"reader", action, resource) when { resource.scopes.contains("read") };
forbid (principal, action, resource) when { context.paths_any_under.contains(%q) };`, filepath.Dir(secret)))
	ambit(t, 0, nil, "policy", "check")
	waitUntil(t, func() bool { _, code := read(secret); return code == -32001 })
	for _, path := range append(spellings, "~/secret/key.txt") {
		if got, code := read(path); code != -32001 {
			t.Errorf("reading the forbidden path %s: got %s, code %d", path, got, code)
		}
	}
	if got, _ := read(filepath.Join(work, "open.txt")); !strings.Contains(got, "for all") {
		t.Errorf("reading a path that is not forbidden: got %s", got)
	}
}
