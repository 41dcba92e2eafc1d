//go:build linux && prove

// Package imports_test imports the configurations of real tool servers, as a new user does.
package imports_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
)

var only = flag.String("server", "", "import only this server")

const (
	atOnce   = 2                // how many imports run at the same time
	patience = 15 * time.Minute // the time limit for one server, including the download of its package
)

// row is a tool server in testdata/servers.json. In arguments and settings, $WORK is a folder of the user.
type row struct {
	Package string
	Args    []string
	Env     map[string]string
	// Secrets are the values in Args and Env that an import must not copy.
	Secrets []string
	// Says is a part of the sentence that the import prints if the server does not work yet. The sentence says what to
	// do.
	Says string
}

// TestImports imports each server without its credentials. Either the server works, or the import says in one sentence
// what to do. No secret is copied.
func TestImports(t *testing.T) {
	sandboxtest.Need(t)
	text, err := os.ReadFile("testdata/servers.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) < 30 {
		t.Fatalf("testdata/servers.json has %d servers, want at least 30; %v", len(rows), err)
	}
	ambit := filepath.Join(t.TempDir(), "ambit")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", ambit, "../../../cmd/ambit")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var mu sync.Mutex
	works, tried := 0, 0
	var all sync.WaitGroup
	turn := make(chan struct{}, atOnce)
	for _, r := range rows {
		if *only != "" && r.Package != *only {
			continue
		}
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			problem, err := imported(t, ambit, r)
			mu.Lock()
			defer mu.Unlock()
			tried++
			switch {
			case err != nil:
				t.Errorf("%s: %v", r.Package, err)
			case problem == "":
				works++
				t.Logf("%s: works", r.Package)
			case r.Says == "" || !strings.Contains(problem, r.Says):
				t.Errorf("%s: got %q, want %q", r.Package, problem, r.Says)
			default:
				t.Logf("%s: %s", r.Package, problem)
			}
		})
	}
	all.Wait()
	t.Logf("%d of %d servers work after the import; for the others, it says what to do", works, tried)
}

// imported imports a server. It returns "" if the server works, and otherwise the reason and the hint.
func imported(t *testing.T, ambit string, r row) (problem string, err error) {
	dir, err := os.MkdirTemp("", "imports-")
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { remove(t, dir) })
	expand := strings.NewReplacer("$WORK", dir)
	args := []string{"-y", r.Package}
	for _, arg := range r.Args {
		args = append(args, expand.Replace(arg))
	}
	env := map[string]string{}
	for name, value := range r.Env {
		env[name] = expand.Replace(value)
	}
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"server": map[string]any{"command": "npx", "args": args, "env": env},
	}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "mcp.json"), text, 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, ambit, "import", "mcp.json", "-o", "agent.json", "--start")
	cmd.Dir, cmd.WaitDelay = dir, 10*time.Second
	cmd.Env = append(os.Environ(), "AMBIT_HOME="+filepath.Join(dir, "home"), "NO_COLOR=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	failed := cmd.Run()
	manifest, err := os.ReadFile(filepath.Join(dir, "agent.json"))
	if err != nil {
		return "", fmt.Errorf("%w\n%s%s", err, out.String(), log.String())
	}
	for _, secret := range r.Secrets {
		if bytes.Contains(manifest, []byte(secret)) || strings.Contains(out.String()+log.String(), secret) {
			return "", fmt.Errorf("the import copies a secret")
		}
	}
	if failed == nil && strings.Contains(out.String(), "agent.json is locked") {
		return "", nil
	}
	reason := refusal.FindStringSubmatch(out.String())
	if reason == nil {
		return "", fmt.Errorf("no reason and hint in: %v\n%s%s", failed, out.String(), log.String())
	}
	return strings.Join(strings.Fields(reason[1]), " "), nil
}

// refusal matches a refused server's reason and hint in the output.
var refusal = regexp.MustCompile(`(?s)✗ server  \S+\n(.*?    hint: [^\n]+)`)

// remove removes a folder. The packages in it are read-only.
func remove(t *testing.T, dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}
