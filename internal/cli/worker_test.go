//go:build linux

package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/sandbox"
	"github.com/ambit-run/ambit/internal/state/statetest"
)

// programHome is a home with programs for one test.
type programHome struct {
	t     *testing.T
	dir   string
	store string // empty is the home's own
}

func newProgramHome(t *testing.T) *programHome {
	t.Helper()
	if err := sandbox.Check(t.Context(), sandbox.Standard, ""); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	h := &programHome{t: t, dir: t.TempDir()}
	t.Setenv("AMBIT_HOME", filepath.Join(h.dir, "home"))
	t.Setenv("COVENANT_HOME", h.dir)
	return h
}

// program writes a program in python; more is added to its manifest.
func (h *programHome) program(name, network, code string, more ...string) {
	h.t.Helper()
	folder := filepath.Join(h.dir, "agents", name)
	manifest := "[agent]\nid = \"" + name + "@local\"\nname = \"" + name + "\"\nversion = \"0.1.0\"\nruntime = \"python3\"\nentry = \"main.py\"\n" +
		"[resources]\nnetwork = \"" + network + "\"\n" + strings.Join(more, "\n") + "\n"
	head := "import json, os, sys, time\ni = json.loads(sys.stdin.readline())\n" +
		"def answer(text): print(json.dumps({'intent_id': i['id'], 'status': 'ok', 'text': text, 'sources': []}))\n"
	for file, text := range map[string]string{"agent.toml": manifest, "main.py": head + code + "\n"} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			h.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil {
			h.t.Fatal(err)
		}
	}
}

// dispatch runs the verb and wants an exit code.
func (h *programHome) dispatch(want int, args ...string) (stdout, stderr string) {
	h.t.Helper()
	if h.store != "" {
		args = append(args, "--store", h.store)
	}
	var out, errOut bytes.Buffer
	if code := cli.Run(h.t.Context(), append([]string{"dispatch"}, args...), strings.NewReader(""), &out, &errOut); code != want {
		h.t.Fatalf("%v: exit code %d: %s%s", args, code, out.String(), errOut.String())
	}
	return out.String(), errOut.String()
}

// process is ambit as a process of its own.
type process struct {
	*exec.Cmd
	t      *testing.T
	stdout *bufio.Scanner
	mu     sync.Mutex
	log    bytes.Buffer
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(text)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// start runs ambit until the test ends, or before.
func (h *programHome) start(args ...string) *process {
	h.t.Helper()
	p := &process{Cmd: exec.Command("ambit", args...), t: h.t}
	p.Stderr = p
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	p.stdout = bufio.NewScanner(out)
	h.t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if h.t.Failed() {
			h.t.Logf("%v: %s", args, p.said())
		}
	})
	return p
}

// worker starts one and waits until it takes dispatches.
func (h *programHome) worker(args ...string) *process {
	h.t.Helper()
	p := h.start(append([]string{"worker", "--json", "--store", h.store}, args...)...)
	if !p.stdout.Scan() || !json.Valid(p.stdout.Bytes()) {
		h.t.Fatalf("the worker does not start: %s", p.said())
	}
	return p
}

// onPostgres runs a test with a new PostgreSQL database.
func onPostgres(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	statetest.Places(t, func(t *testing.T, place string) {
		if strings.HasPrefix(place, "postgres://") {
			test(t, place)
		}
	})
}

func TestWorker(t *testing.T) {
	onPostgres(t, func(t *testing.T, url string) {
		h := newProgramHome(t)
		h.store = url
		h.program("echo", "off", "print('thinking', file=sys.stderr)\nanswer(i['text'] + ' ' + i['priority'])")
		p := h.worker("--concurrency", "2")
		out, _ := h.dispatch(0, "echo", "hello", "--json", "--priority", "high")
		if !strings.Contains(out, `"text": "hello high"`) {
			t.Error(out)
		}
		if !strings.Contains(p.said(), "[echo] thinking") {
			t.Errorf("the worker says %q", p.said())
		}
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- p.Wait() }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%v: %s", err, p.said())
			}
		case <-time.After(time.Minute):
			t.Error("the worker does not end")
		}
	})
}
