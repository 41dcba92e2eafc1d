//go:build linux && prove

package faults

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// TestStoppedNeighbour stops another process while it writes to the store. Calls are refused in time and
// without effect, and the error names the process. A call that already had its effect gets an unknown
// outcome, in its answer and in the journal. When the process continues, calls work again.
func TestStoppedNeighbour(t *testing.T) {
	h := newFixture(t, "", 0)
	d := h.serve()
	h.recovers(d, 0)
	got := make(chan outcome, 1)
	go func() { a, err := d.pay(); got <- outcome{a, err} }()
	h.until("the call has its effect", func() bool { return h.done() == 2 })
	pid, resume := h.stopped()
	h.open()
	names := func(message string) bool {
		return strings.Contains(message, fmt.Sprintf("process %d", pid)) && strings.Contains(message, fmt.Sprintf("kill -CONT %d", pid))
	}
	if o := <-got; o.err != nil || o.a.Error.Effect != "unknown" || !names(o.a.Error.Message) {
		t.Errorf("the caller whose call had its effect got %+v", o)
	}
	if a, err := d.pay(); err != nil || a.Error.Code != "store_unavailable" || a.Error.Effect != "none" || !names(a.Error.Message) {
		t.Errorf("a later caller got %+v, %v", a, err)
	}
	if _, stderr, code := h.ambit("call", h.agent, "pay"); code != 1 || !names(stderr) {
		t.Errorf("a call of another process: got exit code %d: %s", code, stderr)
	}
	if n := h.done(); n != 2 {
		t.Errorf("there were %d effects, want 2: a call had an effect while the store was locked", n)
	}
	resume()
	h.until("the journal has both calls", func() bool {
		list := h.decisions()
		return count(list, "allow") == 1 && count(list, "unknown") == 1
	})
	if stdout, stderr, code := h.ambit("journal", "show", "--unknown"); code != 0 || strings.Count(stdout, "pay") != 1 {
		t.Errorf("the unknown call is not listed: %s %s", stdout, stderr)
	}
	h.recovers(d, 2)
	h.whole()
}

// TestHalfOpenPostgres cuts off the database without closing its connections. Calls are refused within seconds
// and without effect, on busy and on idle connections. They work again when the database can be reached.
func TestHalfOpenPostgres(t *testing.T) {
	for name, rest := range map[string]time.Duration{"busy": 0, "idle": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := statetest.NewCluster(t)
			w := newWire(t, cluster.Socket())
			h := newFixture(t, "-", 0)
			d := h.serve("--store", "postgres://ambit@"+w.address()+"/postgres?sslmode=disable")
			if a, err := d.pay(); err != nil || a.status != 200 {
				t.Fatalf("the call returned %+v, %v", a, err)
			}
			<-time.After(rest)
			w.broken.Store(true)
			got := make(chan outcome, 1)
			begun := time.Now()
			go func() { a, err := d.pay(); got <- outcome{a, err} }()
			select {
			case o := <-got:
				t.Logf("after %v: %+v", time.Since(begun), o)
				if o.err != nil || o.a.Error.Code != "store_unavailable" || o.a.Error.Effect != "none" || o.a.Error.Message == "" {
					t.Errorf("the caller got %+v", o)
				}
			case <-time.After(25 * time.Second):
				t.Error("the caller got no answer within 25 seconds")
			}
			if n := h.done(); n != 1 {
				t.Errorf("there were %d effects, want 1: a call had an effect while the database was gone", n)
			}
			w.broken.Store(false)
			h.until("calls work again", func() bool { a, err := d.pay(); return err == nil && a.status == 200 })
			if n := h.done(); n != 2 {
				t.Errorf("there were %d effects, want 2", n)
			}
			h.whole("--store", cluster.Place())
		})
	}
}

// stopped starts a process that holds the lock of the store, and suspends it. The function resume lets the
// process continue and exit.
func (h *fixture) stopped() (pid int, resume func()) {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), os.Args[0], neighbour, filepath.Join(h.home(), "state.db"))
	in, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	pid = cmd.Process.Pid
	if _, err = bufio.NewReader(out).ReadString('\n'); err == nil {
		err = unix.Kill(pid, unix.SIGSTOP)
	}
	if err == nil {
		_, err = unix.Wait4(pid, nil, unix.WUNTRACED, nil)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return pid, func() {
		h.t.Helper()
		if err := errors.Join(unix.Kill(pid, unix.SIGCONT), in.Close(), cmd.Wait()); err != nil {
			h.t.Fatal(err)
		}
	}
}
