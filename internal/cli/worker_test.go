//go:build linux

package cli_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// programHome is a home with programs for one test.
type programHome struct {
	t     *testing.T
	dir   string
	store string // the --store flag; empty for the store in the home
}

func newProgramHome(t *testing.T) *programHome {
	t.Helper()
	sandboxtest.Need(t)
	h := &programHome{t: t, dir: t.TempDir()}
	t.Setenv("AMBIT_HOME", filepath.Join(h.dir, "home"))
	t.Setenv("COVENANT_HOME", h.dir)
	return h
}

// program writes a Python program. The lines in more are added to its manifest.
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

// dispatch runs ambit dispatch and checks its exit code.
func (h *programHome) dispatch(want int, args ...string) (stdout, stderr string) {
	h.t.Helper()
	if h.store != "" {
		args = append(args, "--store", h.store)
	}
	var out, errOut bytes.Buffer
	if code := cli.Run(h.t.Context(), append([]string{"dispatch"}, args...), strings.NewReader(""), &out, &errOut); code != want {
		h.t.Fatalf("%v: exit code %d, want %d: %s%s", args, code, want, out.String(), errOut.String())
	}
	return out.String(), errOut.String()
}

// worker starts a worker and waits until it accepts dispatches.
func (h *programHome) worker(args ...string) *process {
	h.t.Helper()
	return start(h.t, append([]string{"worker", "--json", "--store", h.store}, args...)...)
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
		if !strings.Contains(p.output(), "msg=thinking agent=echo") {
			t.Errorf("the output of the worker is %q, want the program's stderr in it", p.output())
		}
		p.stop()
	})
}

// A worker takes tasks for the programs in the folders that --agents names.
func TestWorkerAgents(t *testing.T) {
	onPostgres(t, func(t *testing.T, url string) {
		h := newProgramHome(t)
		h.store = url
		h.program("echo", "off", "answer(i['text'])")
		t.Setenv("COVENANT_HOME", "")
		p := h.worker("--agents", filepath.Join(h.dir, "agents"))
		t.Setenv("COVENANT_HOME", h.dir) // set only for the process that dispatches
		if out, _ := h.dispatch(0, "echo", "hello", "--json"); !strings.Contains(out, `"text": "hello"`) {
			t.Error(out)
		}
		p.stop()
	})
	if out, stderr := exitsWith(t, 2, "worker", "--store", "postgres://nowhere.invalid/x", "--agents", "nosuch"); !strings.Contains(stderr, "there is no folder nosuch") {
		t.Errorf("a missing folder: %s%s", out, stderr)
	}
}

// After a reload, a worker runs dispatches to new programs, and running dispatches continue.
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
		p.waitFor("msg=begun agent=slow")
		h.program("later", "off", "answer('later')")
		if err := os.Rename(filepath.Join(h.dir, "agents", "slow", "agent.toml"), filepath.Join(h.dir, "agents", "slow", "gone")); err != nil {
			t.Fatal(err)
		}
		p.signal(syscall.SIGHUP)
		if out, _ := h.dispatch(0, "later", "x", "--json"); !strings.Contains(out, `"text": "later"`) {
			t.Error(out)
		}
		if out := <-slow; !strings.Contains(out, `"text": "slow"`) {
			t.Error(out)
		}
		p.waitFor("reloaded: added later, removed slow")
	})
}

// If a daemon cannot isolate programs, workers run the intents posted to the daemon. The daemon returns the
// answers.
func TestWorkersOfADaemon(t *testing.T) {
	onPostgres(t, func(t *testing.T, url string) {
		h := newProgramHome(t)
		h.store = url
		h.program("echo", "off", "print('thinking', file=sys.stderr)\nanswer(i['text'])")
		p := h.worker("--concurrency", "2")
		t.Setenv("PATH", bareFolder(t)) // no bubblewrap
		d := startDaemon(t, "--store", url)
		if !strings.Contains(d.output(), "dispatches are left to workers") {
			t.Errorf("the output of the daemon is %q, want a warning that dispatches are left to workers", d.output())
		}
		if status, text := d.ask("POST", "/api/v1/intents", `{"agent":"echo","text":"at once"}`); status != http.StatusOK || !strings.Contains(text, `"at once"`) {
			t.Errorf("%d %s", status, text)
		}
		status, text := d.ask("POST", "/api/v1/intents", `{"agent":"echo","text":"later","wait":false}`)
		var posted struct {
			ID string `json:"intent_id"`
		}
		if err := json.Unmarshal([]byte(text), &posted); err != nil || status != http.StatusAccepted {
			t.Fatalf("%d %s", status, text)
		}
		for deadline := time.Now().Add(time.Minute); !strings.Contains(text, `"state":"done"`); time.Sleep(20 * time.Millisecond) {
			if _, text = d.ask("GET", "/api/v1/intents/"+posted.ID, ""); time.Now().After(deadline) {
				t.Fatal(text)
			}
		}
		if !strings.Contains(text, `"later"`) || strings.Count(p.output(), "msg=thinking agent=echo") != 2 {
			t.Errorf("the daemon returned %s, want the answer to the second intent; the worker's output is %q",
				text, p.output())
		}
	})
}

// bareFolder returns a folder that contains only ambit.
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

// Limits that are too large for a time.Duration or for any machine do not overflow.
func TestLargestAmounts(t *testing.T) {
	h := newProgramHome(t)
	const most = "9223372036854775807"
	// Converted to nanoseconds, these values would overflow. The results would be negative, very short, and
	// arbitrary.
	for _, ms := range []string{"10000000000000", "18446744073710", most} {
		h.program("patient", "off", "answer('x')", "cpu_ms_per_task = "+ms, "memory_mb = "+most, "disk_mb = "+most)
		if out, _ := h.dispatch(0, "patient", "x", "--json"); !strings.Contains(out, `"text": "x"`) {
			t.Errorf("%s: %s", ms, out)
		}
	}
}
