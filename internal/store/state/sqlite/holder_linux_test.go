package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

// A process that is stopped during a write holds the lock for ever. A write of another
// process is refused in time with an error that names the stopped process. After the
// process continues, both can write.
func TestStoppedNeighbour(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	s := testOpen(t, file, migrations.List())
	neighbour := exec.CommandContext(t.Context(), os.Args[0])
	neighbour.Env = append(os.Environ(), envKeeper+"="+file)
	neighbour.Stderr = os.Stderr
	in, err := neighbour.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := neighbour.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(said, err)
	}
	pid := neighbour.Process.Pid
	send := func(signal syscall.Signal, wait int) {
		t.Helper()
		if err := errors.Join(syscall.Kill(pid, signal), awaited(pid, wait)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	refused := func(words ...string) {
		t.Helper()
		err := s.Write(ctx, func(state.Tx) error { t.Error("it was begun"); return nil })
		if !errors.Is(err, state.ErrLocked) {
			t.Fatalf("Write returned %v", err)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not say %q", err, word)
			}
		}
	}

	shortly(t)
	refused(fmt.Sprintf("process %d", pid), filepath.Base(os.Args[0])[:4], "Wait until it finishes")
	send(syscall.SIGSTOP, syscall.WUNTRACED)
	refused(fmt.Sprintf("kill -CONT %d", pid))
	refused("is stopped") // later writes, too
	if n := read(t, s, `SELECT count(*) FROM logs WHERE born = 1`); n != 0 {
		t.Errorf("what is not committed is read: %d", n)
	}

	send(syscall.SIGCONT, syscall.WCONTINUED)
	if err := errors.Join(in.Close(), neighbour.Wait()); err != nil {
		t.Fatal(err)
	}
	lockTime = time.Minute
	if err := s.Write(ctx, func(tx state.Tx) error {
		_, err := tx.Exec(`UPDATE logs SET born = born + 1`)
		return err
	}); err != nil {
		t.Error(err)
	}
	if n := read(t, s, `SELECT born FROM logs`); n != 2 {
		t.Errorf("of two writes there is %d", n)
	}
}

// awaited waits for the state change of a child that option selects.
func awaited(pid, option int) error {
	for {
		if _, err := syscall.Wait4(pid, nil, option, nil); err != syscall.EINTR {
			return err
		}
	}
}
