//go:build prove

package pack

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The reference servers can be fetched, started from the store, and locked. Fetching them into
// another store results in the same tree. A modified file is detected.
func TestProveReferenceServers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := newStore(t)
	for _, c := range []struct {
		name, digest string
		tools        int
	}{
		{"server-filesystem", "sha256:a239da270c403c42eb03e1ca7cca07c858085819797b74856ddbb91b50491b1a", 14},
		{"server-memory", "sha256:53a606a0e2d8622214808c85e9986db08ff343520d95b64d386039d024eb504c", 9},
		{"server-sequential-thinking", "sha256:b47c367af4bc1ef96cec096e67151899a29317c42009f0ac53a0d51b85c2c71d", 1},
		{"server-everything", "sha256:c293b5e0ed41ed1eaba712e55929846eec78315475ce5751bdc3f8671e5383d6", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			ref := Ref{Kind: NPM, Name: "@modelcontextprotocol/" + c.name, Version: "2026.8.31"}
			start := time.Now()
			p := fetchReal(t, s, ref, Want{})
			t.Logf("fetched in %v", time.Since(start).Round(time.Millisecond))
			if p.Digest != c.digest {
				t.Errorf("got the digest %s, want %s", p.Digest, c.digest)
			}
			var args []string
			if c.name == "server-filesystem" {
				args = []string{t.TempDir()}
			}
			tools := listTools(t, p.Argv(args))
			if c.tools > 0 && len(tools) != c.tools {
				t.Errorf("got %d tools, want %d", len(tools), c.tools)
			}

			path := filepath.Join(t.TempDir(), LockName)
			_, err := UpdateLock(path, func(l *Lock) error {
				l.Keep(p)
				server := &LockedServer{Package: p.Locked(nil), Tools: map[string]LockedTool{}}
				for name, raw := range tools {
					tool, err := LockTool(raw)
					if err != nil {
						return err
					}
					server.Tools[name] = tool
				}
				l.Agents["matrix://agent/x"] = &LockedAgent{Servers: map[string]*LockedServer{"s": server}}
				return nil
			})
			check(t, err)
			l, err := ReadLock(path)
			check(t, err)
			want := l.Want(l.Server("matrix://agent/x", "s").Package)

			elsewhere := newStore(t)
			start = time.Now()
			q := fetchReal(t, elsewhere, ref, want)
			t.Logf("fetched again from the lock in %v", time.Since(start).Round(time.Millisecond))
			if q.Tree != p.Tree {
				t.Errorf("got the tree %s, want %s", q.Tree, p.Tree)
			}
			var times []time.Duration
			for range 9 {
				start := time.Now()
				_, err := elsewhere.Open(ref, want)
				check(t, err)
				times = append(times, time.Since(start).Round(time.Millisecond))
			}
			slices.Sort(times)
			t.Logf("opened in %v to %v, median %v", times[0], times[8], times[4])

			file := filepath.Join(q.Dir, dirTree, "node_modules", "@modelcontextprotocol", "sdk", "package.json")
			b, err := os.ReadFile(file)
			check(t, err)
			b[len(b)/2] ^= 1
			check(t, errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, b, 0), os.Chmod(file, sealedFile)))
			if _, err := elsewhere.Open(ref, want); !errors.Is(err, Tampered) {
				t.Errorf("opening a modified package: got %v, want %s", err, Tampered)
			}
		})
	}
}

// listTools starts a server and requests its tools over stdio.
func listTools(t *testing.T, argv []string) map[string]json.RawMessage {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = t.TempDir(), []string{"PATH=/nonexistent", "HOME=" + t.TempDir()}
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`)
	check(t, err)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var m struct {
			ID     int `json:"id"`
			Result struct {
				Tools []json.RawMessage `json:"tools"`
			} `json:"result"`
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID != 2 {
			continue
		}
		tools := map[string]json.RawMessage{}
		for _, raw := range m.Result.Tools {
			var named struct {
				Name string `json:"name"`
			}
			check(t, json.Unmarshal(raw, &named))
			tools[named.Name] = raw
		}
		return tools
	}
	t.Fatalf("the server did not answer: %v", lines.Err())
	return nil
}
