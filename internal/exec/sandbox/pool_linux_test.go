package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// prepared returns a pool that contains one sandbox for the given run.
func prepared(t *testing.T, interpreters bool, s Spec) *Pool {
	t.Helper()
	able(t)
	p := NewPool(2, interpreters)
	t.Cleanup(func() {
		p.Close()
		nothingLeft(t)
	})
	if err := p.Prepare(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return p
}

// taken runs a program with a pool, and reports whether the run used a prepared sandbox.
func taken(t *testing.T, p *Pool, s Spec) (Outcome, bool) {
	t.Helper()
	p.mu.Lock()
	waited := slices.Clone(p.spare)
	p.mu.Unlock()
	s.Pool = p
	out, err := Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return out, slices.ContainsFunc(waited, (*running).hasExited)
}

// TestPoolIsNeverReused checks that a run uses a prepared sandbox and sees no trace of an earlier run.
func TestPoolIsNeverReused(t *testing.T) {
	s := Spec{Argv: []string{"sh", "-c", "ls -A ~ /tmp; touch ~/a /tmp/b"}}
	p := prepared(t, false, s)
	for range 3 {
		out, took := taken(t, p, s)
		if len(strings.Fields(string(out.Stdout))) != 2 || out.ExitCode != 0 || !took {
			t.Errorf("got stdout %q, used a prepared sandbox: %t", out.Stdout, took)
		}
		if err := p.Prepare(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPoolFits checks that a sandbox is not used for a run of another shape.
func TestPoolFits(t *testing.T) {
	folder := t.TempDir()
	s := Spec{Argv: []string{"true"}, Mounts: []Mount{{Source: folder, To: "/agent"}}}
	for name, other := range map[string]func(*Spec){
		"other mounts": func(s *Spec) { s.Mounts = []Mount{{Source: folder, To: "/other"}} },
		"no mounts":    func(s *Spec) { s.Mounts = nil },
		"less memory":  func(s *Spec) { s.MemoryMB = 100 },
		"less disk":    func(s *Spec) { s.DiskMB = 10 },
		"fewer pids":   func(s *Spec) { s.PIDs = 20 },
		"less CPU":     func(s *Spec) { s.CPU = 0.5 },
		"with network": func(s *Spec) {
			s.Network = egress.NewNetwork(egress.NewDialer(egress.Switches{}), egress.Policy{}, nil)
		},
	} {
		p := prepared(t, false, s)
		differs := s
		other(&differs)
		if _, took := taken(t, p, differs); took {
			t.Errorf("%s: the run used a sandbox of another shape", name)
		}
		if _, took := taken(t, p, s); !took {
			t.Errorf("%s: a run of the same shape did not use the prepared sandbox", name)
		}
		p.Close()
	}
}

// TestPoolNotices checks that a sandbox is not used if a mounted folder was replaced.
func TestPoolNotices(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "agent")
	write := func(text string) {
		if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "f"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	s := Spec{Argv: []string{"cat", "/agent/f"}, Mounts: []Mount{{Source: folder, To: "/agent"}}}
	p := prepared(t, false, s)
	if err := os.Rename(folder, folder+".old"); err != nil {
		t.Fatal(err)
	}
	write("new")
	if out, _ := taken(t, p, s); string(out.Stdout) != "new" {
		t.Errorf("got stdout %q, want the content of the new folder", out.Stdout)
	}
}

// TestPoolDead checks that a run succeeds even if the prepared sandbox was killed.
func TestPoolDead(t *testing.T) {
	s := Spec{Argv: []string{"echo", "done"}}
	p := prepared(t, false, s)
	dead := p.spare[0]
	dead.group.kill()
	<-dead.exited
	if out, _ := taken(t, p, s); string(out.Stdout) != "done\n" {
		t.Errorf("got stdout %q, want %q", out.Stdout, "done\n")
	}
	// If a sandbox dies just after it was taken, execute returns a setup error.
	if err := p.Prepare(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	dying := p.take(shapeKey(s))
	dying.group.kill()
	<-dying.exited
	s.defaults()
	if _, _, err := dying.execute(t.Context(), &s, order(&s, ""), time.Now()); !isSetup(err) {
		t.Errorf("got error %v, want a setup error", err)
	}
}

func shapeKey(s Spec) string { s.defaults(); return shapeOf(&s).key() }

func isSetup(err error) bool { _, ok := errors.AsType[*setupError](err); return ok }

// TestPoolIsBounded checks that a full pool replaces its oldest sandbox, and that Close ends all sandboxes.
func TestPoolIsBounded(t *testing.T) {
	able(t)
	p := NewPool(2, false)
	for i := range 5 {
		if err := p.Prepare(t.Context(), Spec{MemoryMB: int64(100 + i)}); err != nil {
			t.Fatal(err)
		}
		if len(p.spare) > 2 {
			t.Fatalf("the pool has %d sandboxes, want at most 2", len(p.spare))
		}
	}
	if p.spare[0].shape.bounds.memory != 103<<20 || p.spare[1].shape.bounds.memory != 104<<20 {
		t.Error("the pool did not replace its oldest sandboxes")
	}
	p.Close()
	nothingLeft(t)
	if err := p.Prepare(t.Context(), Spec{}); !errors.Is(err, errClosed) {
		t.Errorf("Prepare after Close: got error %v, want %v", err, errClosed)
	}
	s := Spec{Argv: []string{"true"}, Pool: p}
	if _, err := Run(t.Context(), s); err != nil {
		t.Errorf("a run with a closed pool failed: %v", err)
	}
	nothingLeft(t)
}

// TestPoolClosedMeanwhile checks that Close also ends a sandbox that is being made.
func TestPoolClosedMeanwhile(t *testing.T) {
	able(t)
	for range 5 {
		p := NewPool(4, true)
		var asked sync.WaitGroup
		for i := range 3 {
			asked.Go(func() {
				err := p.Prepare(t.Context(), Spec{Argv: []string{"python3", "main.py"}, MemoryMB: int64(100 + i)})
				if err != nil && !errors.Is(err, errClosed) && !errors.Is(err, errEnded) {
					t.Error(err)
				}
			})
			asked.Go(func() {
				if _, err := Run(t.Context(), Spec{Argv: []string{"true"}, MemoryMB: int64(100 + i), Pool: p}); err != nil {
					t.Error(err)
				}
			})
		}
		making := func() (making, made int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.making, len(p.spare)
		}
		begun := time.Now()
		for now, made := making(); now+made == 0; now, made = making() {
			if time.Since(begun) > time.Minute {
				t.Fatal("no sandbox is being made")
			}
			time.Sleep(time.Millisecond)
		}
		p.Close()
		if now, made := making(); now+made > 0 {
			t.Errorf("after Close, %d sandboxes wait and %d are being made", made, now)
		}
		asked.Wait()
		nothingLeft(t)
	}
}

// TestPoolDiesWithAmbit checks that prepared sandboxes end when ambit is killed.
func TestPoolDiesWithAmbit(t *testing.T) {
	able(t)
	cmd := exec.Command(probe())
	cmd.Env = []string{"PROBE=keep", "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "up\n" || members(cmd.Process.Pid) < 6 {
		t.Errorf("got line %q, error %v and %d processes, want at least 6", line, err, members(cmd.Process.Pid))
	}
	orphaned(t, cmd)
}

// probeKeep acts as an ambit process with a pool; the test kills it.
func probeKeep() {
	p := NewPool(2, true)
	for _, argv := range [][]string{{"true"}, {"python3", "/agent/main.py"}} {
		if err := p.Prepare(context.Background(), Spec{Argv: argv}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("up")
	select {}
}

// TestInterpretersAhead checks that a program cannot detect that its interpreter was prestarted. None of the program's
// files is read before the run.
func TestInterpretersAhead(t *testing.T) {
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"main.py": `
import os, sys, inspect, threading, multiprocessing as m
import helper
class C: pass
def f(q): q.put(C.__module__)
if __name__ == '__main__':
    q = m.get_context('fork').SimpleQueue()
    p = m.get_context('fork').Process(target=f, args=(q,)); p.start(); p.join()
    print(sys.argv, sys.path[0], __file__, helper.x, q.get(), sys.stdin.read(), os.listdir('/proc/self/fd')[:3], sorted(n for n in globals() if not n.startswith('__')))
    print(os.getcwd(), os.environ['EXTRA'], getattr(sys, 'orig_argv', [])[1:])
`,
		"helper.py": "x = 'helped'\n",
		"main.cjs": `
const { Worker, isMainThread, parentPort } = require('worker_threads');
if (!isMainThread) { parentPort.postMessage('worker'); } else {
  const fs = require('fs');
  new Worker(__filename).on('message', m => console.log(m, process.argv.slice(1), require.main === module, __filename, fs.readFileSync(0) + '', process.cwd(), process.env.EXTRA));
}`,
		"main.mjs": `import fs from 'fs'; console.log(process.argv.slice(1), import.meta.url, fs.readFileSync(0) + '', await Promise.resolve(1));`,
		"bad.py":   "def :\n",
		"exit.py":  "import sys; sys.exit(7)\n",
		"exit.cjs": "process.exit(7)",
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ runtime, file string }{
		{"python3", "main.py"},
		{"node", "main.cjs"},
		{"node", "main.mjs"},
		{"python3", "bad.py"},
		{"python3", "exit.py"},
		{"node", "exit.cjs"},
		{"python3", "missing.py"},
		{"node", "missing.cjs"},
	} {
		t.Run(tt.file, func(t *testing.T) {
			write("helper.py", files["helper.py"])
			s := Spec{
				Argv: []string{tt.runtime, "/agent/" + tt.file, "--flag", "word"}, Dir: "/agent", Stdin: []byte("input"), Env: []string{"EXTRA=more"},
				Mounts: []Mount{{Source: folder, To: "/agent"}},
			}
			if tt.file != "missing.py" && tt.file != "missing.cjs" {
				write(tt.file, "this is not what runs\n")
			}
			p := prepared(t, true, s)
			if p.spare[0].shape.interpreter != tt.runtime {
				t.Fatal("the interpreter is not prestarted")
			}
			// An interpreter that does not wait would exit during this other run.
			if _, err := Run(t.Context(), Spec{Argv: []string{tt.runtime, "--version"}}); err != nil {
				t.Fatal(err)
			}
			if p.spare[0].hasExited() {
				t.Fatal("the interpreter did not wait")
			}
			// The interpreter has started before the file of the program is written.
			if text, ok := files[tt.file]; ok {
				write(tt.file, text)
			}
			out, took := taken(t, p, s)
			plain, err := Run(t.Context(), s)
			if err != nil || !took || string(out.Stdout) != string(plain.Stdout) || out.ExitCode != plain.ExitCode {
				t.Errorf("used the prepared sandbox: %t; got exit code %d, %s\nwant %d, %s (error %v)", took, out.ExitCode, out.Stdout, plain.ExitCode, plain.Stdout, err)
			}
		})
	}
}

// TestNotAhead checks that the interpreter is not prestarted for a run whose settings could load code early.
func TestNotAhead(t *testing.T) {
	for _, s := range []Spec{
		{Argv: []string{"python3", "-c", "0"}},
		{Argv: []string{"python3"}},
		{Argv: []string{"sh", "main.sh"}},
		{Argv: []string{"/usr/bin/python3", "main.py"}},
		{Argv: []string{"python3", "main.py"}, Env: []string{"PYTHONSTARTUP=x"}},
		{Argv: []string{"node", "main.js"}, Env: []string{"NODE_OPTIONS=--require=/agent/x.js"}},
		{Argv: []string{"node", "main.js"}, Env: []string{"LD_PRELOAD=/agent/x.so"}},
	} {
		var sh shape
		if sh.prestart(&s); sh.interpreter != "" {
			t.Errorf("%v with environment %v is prestarted", s.Argv, s.Env)
		}
	}
	s := Spec{Argv: []string{"node", "main.js"}, Env: []string{"NODE_EXTRA_CA_CERTS=/authority.pem", "TOKEN=x"}}
	var sh shape
	if sh.prestart(&s); sh.interpreter != "node" {
		t.Error("an ordinary node program is not prestarted")
	}
}
