//go:build prove

package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
)

// verb runs ambit with --json in this process and decodes its output into document.
func verb(t *testing.T, document any, args ...string) (code int) {
	t.Helper()
	var out, log bytes.Buffer
	code = cli.Run(t.Context(), append(args, "--json"), strings.NewReader(""), &out, &log)
	if err := json.Unmarshal(out.Bytes(), document); err != nil {
		t.Fatalf("ambit %s printed %q: %v; %s", strings.Join(args, " "), out.String(), err, log.String())
	}
	if t.Failed() {
		t.Logf("ambit %s: %s\n%s", strings.Join(args, " "), out.String(), log.String())
	}
	return code
}

type verified struct {
	OK      bool
	Servers []struct {
		Alias, Error, Message string
		Missing, Unexpected   []string
		Digest                struct{ Declared, Actual, Status string } `json:"package_digest"`
	}
	Error struct{ Message, Hint string }
}

// cleanHome creates an empty AMBIT_HOME. The package store in this folder is read-only and cannot be removed. So
// cleanHome makes all folders writable at the end of the test.
func cleanHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("AMBIT_HOME", home)
	t.Cleanup(func() {
		_ = filepath.WalkDir(home, func(path string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	return home
}

const referenceVersion = "2026.8.31"

// reference describes a manifest that uses one of the MCP reference servers.
type reference struct {
	pkg, version, digest string
	args                 []string
	tools                []string
}

func (r reference) write(t *testing.T) {
	t.Helper()
	tools := []any{}
	for _, name := range r.tools {
		tools = append(tools, map[string]any{"name": name, "side_effect_class": "read"})
	}
	b, err := json.MarshalIndent(map[string]any{
		"schema_version": 1, "agent": "matrix://agent/reference", "allowed_side_effects": []string{"read"},
		"servers": []any{map[string]any{
			"alias": "ref", "transport": "stdio", "command": "npx", "args": append([]string{"-y", r.pkg + "@" + r.version}, r.args...),
			"version": r.version, "package_digest": r.digest, "tools": tools,
		}},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("agent.json", b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestProveReferenceServers locks, verifies and calls the MCP reference servers from the npm registry. It then checks
// that ambit verify names every kind of difference.
func TestProveReferenceServers(t *testing.T) {
	for _, tt := range []struct {
		name, tool, input string
		args              []string
	}{
		{"server-filesystem", "list_allowed_directories", `{}`, []string{"."}},
		{"server-everything", "echo", `{"message":"hello"}`, nil},
		{"server-memory", "read_graph", `{}`, nil},
		{"server-sequential-thinking", "sequentialthinking", `{"thought":"x","thoughtNumber":1,"totalThoughts":1,"nextThoughtNeeded":false}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := cleanHome(t)
			t.Chdir(t.TempDir())
			ref := reference{
				pkg: "@modelcontextprotocol/" + tt.name, version: referenceVersion, args: tt.args,
				digest: "sha256:" + strings.Repeat("0", 64), tools: []string{"no_such_tool"},
			}
			verify := func(what string, code int) verified {
				t.Helper()
				var v verified
				if got := verb(t, &v, "verify", "agent.json"); got != code || len(v.Servers) != 1 {
					t.Fatalf("%s: ambit verify exits with %d, want %d: %+v", what, got, code, v)
				}
				return v
			}

			// The refusal to lock a wrong manifest lists the advertised tools.
			ref.write(t)
			var v verified
			code := verb(t, &v, "lock", "agent.json")
			if code == 3 && os.Getenv("CI") != "true" {
				t.Skipf("this test needs the npm registry: %+v", v)
			}
			if code != 1 || len(v.Servers) != 1 || !slices.Equal(v.Servers[0].Missing, ref.tools) {
				t.Fatalf("ambit lock exits with %d, want 1 and the missing tools: %+v", code, v)
			}
			ref.tools = v.Servers[0].Unexpected
			ref.write(t)
			var locked struct {
				Servers []struct {
					Digest string `json:"package_digest"`
					Tools  []string
				}
			}
			if code := verb(t, &locked, "lock", "agent.json"); code != 0 || len(locked.Servers) != 1 || len(locked.Servers[0].Tools) != len(ref.tools) {
				t.Fatalf("ambit lock exits with %d, want 0 and one server with all tools: %+v", code, locked)
			}
			ref.digest = locked.Servers[0].Digest
			v = verify("as locked", 0)
			if d := v.Servers[0].Digest; d.Status != "verified" || d.Declared != ref.digest || d.Actual != ref.digest {
				t.Errorf("got the package digest %+v, want %s", d, ref.digest)
			}
			var result struct {
				Content []struct{ Text string }
				IsError bool `json:"is_error"`
			}
			if code := verb(t, &result, "call", "agent.json", tt.tool, "--input", tt.input); code != 0 || result.IsError || len(result.Content) == 0 {
				t.Errorf("ambit call exits with %d, want 0 and a result: %+v", code, result)
			}

			// The manifest first lists one tool fewer than the server, and then one tool more.
			less := ref
			less.tools = ref.tools[1:]
			if len(less.tools) == 0 {
				less.tools = []string{"another"}
			}
			less.write(t)
			if v = verify("one less", 1); !slices.Equal(v.Servers[0].Unexpected, ref.tools[:1]) {
				t.Errorf("one tool less: %+v", v)
			}
			more := ref
			more.tools = append(slices.Clone(ref.tools), "one_more")
			more.write(t)
			if v = verify("one more", 1); !slices.Equal(v.Servers[0].Missing, []string{"one_more"}) || len(v.Servers[0].Unexpected) != 0 {
				t.Errorf("one tool more: %+v", v)
			}

			// The manifest names another version, first with the old digest and then with another one.
			swapped := ref
			swapped.version = "2025.11.25"
			swapped.write(t)
			v = verify("another version", 1)
			if s := v.Servers[0]; s.Error != "server_drifted" || !strings.Contains(s.Message, "2025.11.25") || !strings.Contains(s.Message, referenceVersion) {
				t.Errorf("another version: %+v", s)
			}
			swapped.digest = "sha256:" + strings.Repeat("a", 64)
			swapped.write(t)
			if v = verify("another version and digest", 1); v.Servers[0].Error != "server_drifted" || v.Servers[0].Digest.Status != "mismatch" {
				t.Errorf("ambit verify does not report another version and digest: %+v", v)
			}

			// One bit of a file in the package store is changed.
			ref.write(t)
			file, restore := flip(t, filepath.Join(home, "packages"))
			v = verify("tampered with", 1)
			if s := v.Servers[0]; s.Error != "server_drifted" || s.Digest.Status != "mismatch" || !strings.Contains(s.Message, file) {
				t.Errorf("tampered with %s: %+v", file, s)
			}
			restore()
			verify("restored", 0)
		})
	}
}

// flip changes one bit of a file in the package store. It returns the path of the file in its package.
func flip(t *testing.T, store string) (file string, restore func()) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(store, "*", "*", "tree", "node_modules", "zod", "package.json"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no file to change was found in %s: %v", store, err)
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		t.Helper()
		if err := os.Chmod(found[0], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(found[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(found[0], 0o444); err != nil {
			t.Fatal(err)
		}
	}
	bad := bytes.Clone(b)
	bad[len(bad)/2] ^= 1
	put(bad)
	return "node_modules/zod/package.json", func() { put(b) }
}

// TestProveShippedAgents verifies the shipped agents with an empty home and the shipped lock file.
func TestProveShippedAgents(t *testing.T) {
	agents, err := filepath.Abs("../../agents")
	if err != nil {
		t.Fatal(err)
	}
	cleanHome(t)
	for _, name := range []string{"default", "neo", "forge"} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			var v verified
			code := verb(t, &v, "verify", filepath.Join(agents, name+".json"))
			if code == 3 && os.Getenv("CI") != "true" {
				t.Skipf("this test needs the npm registry: %+v", v)
			}
			if code != 0 || !v.OK {
				t.Fatalf("ambit verify exits with %d, want 0: %+v", code, v)
			}
			for _, s := range v.Servers {
				if s.Digest.Status != "verified" {
					t.Errorf("%s: %s", s.Alias, fmt.Sprint(s.Digest))
				}
			}
		})
	}
}
