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

// A neighbour is stopped in the middle of a write to the store, and nobody lets it go
// on. Calls are refused in time, without effect, in words that say who it is. One
// that had its effect before is unknown, to its caller and then to the journal. When
// the neighbour goes on, so do calls.
func TestStoppedNeighbour(t *testing.T) {
	h := newHouse(t, "", 0)
	d := h.serve()
	h.goesOn(d, 0)
	got := make(chan outcome, 1)
	go func() { a, err := d.pay(); got <- outcome{a, err} }()
	h.until("the call has its effect", func() bool { return h.done() == 2 })
	pid, goOn := h.stopped()
	h.open()
	blames := func(words string) bool {
		return strings.Contains(words, fmt.Sprintf("process %d", pid)) && strings.Contains(words, fmt.Sprintf("kill -CONT %d", pid))
	}
	if o := <-got; o.err != nil || o.a.Error.Effect != "unknown" || !blames(o.a.Error.Message) {
		t.Errorf("whose call had its effect is told %+v", o)
	}
	if a, err := d.pay(); err != nil || a.Error.Code != "store_unavailable" || a.Error.Effect != "none" || !blames(a.Error.Message) {
		t.Errorf("whoever calls is told %+v, %v", a, err)
	}
	if _, stderr, code := h.ambit("call", h.agent, "pay"); code != 1 || !blames(stderr) {
		t.Errorf("another process exits with %d: %s", code, stderr)
	}
	if n := h.done(); n != 2 {
		t.Errorf("%d effects while nothing could be written down", n)
	}
	goOn()
	h.until("the journal tells of both", func() bool {
		list := h.decisions()
		return count(list, "allow") == 1 && count(list, "unknown") == 1
	})
	if stdout, stderr, code := h.ambit("journal", "show", "--unknown"); code != 0 || strings.Count(stdout, "pay") != 1 {
		t.Errorf("nobody is shown it: %s %s", stdout, stderr)
	}
	h.goesOn(d, 2)
	h.whole()
}

// The machine of the database is gone, and nobody said so. Calls are refused in a
// few seconds, without effect, whether the connection had just been used or was at
// rest; when the machine is back they go on.
func TestHalfOpenPostgres(t *testing.T) {
	for name, rest := range map[string]time.Duration{"in use": 0, "at rest": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := statetest.NewCluster(t)
			w := newWire(t, cluster.Socket())
			h := newHouse(t, "-", 0)
			d := h.serve("--store", "postgres://ambit@"+w.address()+"/postgres?sslmode=disable")
			if a, err := d.pay(); err != nil || a.status != 200 {
				t.Fatalf("%+v, %v", a, err)
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
					t.Errorf("the caller is told %+v", o)
				}
			case <-time.After(25 * time.Second):
				t.Error("nobody tells the caller anything")
			}
			if n := h.done(); n != 1 {
				t.Errorf("%d effects while nothing could be written down", n)
			}
			w.broken.Store(false)
			h.until("calls work again", func() bool { a, err := d.pay(); return err == nil && a.status == 200 })
			if n := h.done(); n != 2 {
				t.Errorf("%d effects", n)
			}
			h.whole("--store", cluster.Place())
		})
	}
}

// stopped starts a process that holds the lock, and stops it. It goes on, and ends, when it is told.
func (h *house) stopped() (pid int, goOn func()) {
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
