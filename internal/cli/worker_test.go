//go:build linux

package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/sandbox/sandboxtest"
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
	sandboxtest.Need(t)
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

// TestWorkerReload: a worker that is told so takes dispatches to programs that
// came later, and what it has under way goes on.
func TestWorkerReload(t *testing.T) {
	onPostgres(t, func(t *testing.T, url string) {
		h := newProgramHome(t)
		h.store = url
		h.program("slow", "off", "print('begun', file=sys.stderr, flush=True)\ntime.sleep(3)\nanswer('slow')")
		p := h.worker("--concurrency", "2")
		slow := make(chan string, 1)
		go func() {
			var out, errOut bytes.Buffer
			cli.Run(t.Context(), []string{"dispatch", "slow@local", "x", "--json", "--store", url}, strings.NewReader(""), &out, &errOut)
			slow <- out.String() + errOut.String()
		}()
		p.until("[slow] begun")
		h.program("later", "off", "answer('later')")
		if err := os.Rename(filepath.Join(h.dir, "agents", "slow", "agent.toml"), filepath.Join(h.dir, "agents", "slow", "gone")); err != nil {
			t.Fatal(err)
		}
		if err := p.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if out, _ := h.dispatch(0, "later", "x", "--json"); !strings.Contains(out, `"text": "later"`) {
			t.Error(out)
		}
		if out := <-slow; !strings.Contains(out, `"text": "slow"`) {
			t.Error(out)
		}
		p.until("read again: taking dispatches to 1 program")
	})
}

// until waits for a word in what a process tells.
func (p *process) until(word string) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.said(), word); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("it never says %q: %s", word, p.said())
		}
	}
}

// TestWorkersOfADaemon: what is posted at a daemon that cannot isolate programs
// is done by workers, and the daemon has the answer.
func TestWorkersOfADaemon(t *testing.T) {
	onPostgres(t, func(t *testing.T, url string) {
		h := newProgramHome(t)
		h.store = url
		h.program("echo", "off", "print('thinking', file=sys.stderr)\nanswer(i['text'])")
		p := h.worker("--concurrency", "2")
		t.Setenv("PATH", bareFolder(t)) // no bubblewrap
		d := h.start("serve", "--json", "--listen", "127.0.0.1:0", "--store", url)
		var ready struct {
			URL     string
			KeyFile string `json:"key_file"`
		}
		if !d.stdout.Scan() || json.Unmarshal(d.stdout.Bytes(), &ready) != nil {
			t.Fatalf("the daemon does not start: %s", d.said())
		}
		if !strings.Contains(d.said(), "dispatches are left to workers") {
			t.Errorf("the daemon says %q", d.said())
		}
		key, err := os.ReadFile(ready.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(method, path, body string) (int, string) {
			req, err := http.NewRequestWithContext(t.Context(), method, ready.URL+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(text)
		}
		if status, text := ask("POST", "/api/v1/intents", `{"agent":"echo","text":"at once"}`); status != http.StatusOK || !strings.Contains(text, `"at once"`) {
			t.Errorf("%d %s", status, text)
		}
		status, text := ask("POST", "/api/v1/intents", `{"agent":"echo","text":"later","wait":false}`)
		var posted struct {
			ID string `json:"intent_id"`
		}
		if err := json.Unmarshal([]byte(text), &posted); err != nil || status != http.StatusAccepted {
			t.Fatalf("%d %s", status, text)
		}
		for deadline := time.Now().Add(time.Minute); !strings.Contains(text, `"state":"done"`); time.Sleep(20 * time.Millisecond) {
			if _, text = ask("GET", "/api/v1/intents/"+posted.ID, ""); time.Now().After(deadline) {
				t.Fatal(text)
			}
		}
		if !strings.Contains(text, `"later"`) || strings.Count(p.said(), "[echo] thinking") != 2 {
			t.Errorf("%s; the worker says %q", text, p.said())
		}
	})
}

// bareFolder has the test's own ambit, and nothing else.
func bareFolder(t *testing.T) string {
	t.Helper()
	file, err := exec.LookPath("ambit")
	dir := t.TempDir()
	if err == nil {
		err = os.Symlink(file, filepath.Join(dir, "ambit"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLargestAmounts: bounds that are more than any machine can count are bounds
// all the same.
func TestLargestAmounts(t *testing.T) {
	h := newProgramHome(t)
	const most = "9007199254740992"
	// As nanoseconds, these are below zero, almost nothing, and some time.
	for _, ms := range []string{"10000000000000", "18446744073710", most} {
		h.program("patient", "off", "answer('x')", "cpu_ms_per_task = "+ms, "memory_mb = "+most, "disk_mb = "+most)
		if out, _ := h.dispatch(0, "patient", "x", "--json"); !strings.Contains(out, `"text": "x"`) {
			t.Errorf("%s: %s", ms, out)
		}
	}
}
