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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

// A process that is stopped during a write holds the lock until it continues. A write of another process fails
// in time, with an error that names the stopped process. After the process continues, both processes can write.
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
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
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
		err := s.Write(ctx, func(state.Tx) error { t.Error("the write began although another process holds the lock"); return nil })
		if !errors.Is(err, state.ErrLocked) {
			t.Fatalf("Write returned the error %v, want ErrLocked", err)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("the error %q does not contain %q", err, word)
			}
		}
	}

	shortly(t)
	refused(fmt.Sprintf("process %d", pid), filepath.Base(os.Args[0])[:4], "Wait until the process finishes")
	send(syscall.SIGSTOP, syscall.WUNTRACED)
	refused(fmt.Sprintf("kill -CONT %d", pid))
	refused("is suspended") // a later write fails too
	if n := read(t, s, `SELECT count(*) FROM logs WHERE born = 1`); n != 0 {
		t.Errorf("a read returned %d uncommitted rows", n)
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
		t.Errorf("the column born contains %d, want 2 after both writes", n)
	}
}

// findHolder finds the holder of a lock while many other locks are released and acquired.
func TestHolderAmongMany(t *testing.T) {
	lock := func(name string) *os.File {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		return f
	}
	dir := t.TempDir()
	var others []*os.File
	for i := range 300 {
		others = append(others, lock(filepath.Join(dir, fmt.Sprint(i))))
	}
	held := lock(filepath.Join(dir, "held"))
	done := make(chan struct{})
	var churn sync.WaitGroup
	churn.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			fd := int(others[i%len(others)].Fd())
			syscall.Flock(fd, syscall.LOCK_UN)
			syscall.Flock(fd, syscall.LOCK_EX)
		}
	})
	missed := 0
	for range 200 {
		if h, ok := findHolder(held.Name()); !ok || h.pid != os.Getpid() {
			missed++
		}
	}
	close(done)
	churn.Wait()
	if missed > 0 {
		t.Errorf("findHolder missed the holder %d times out of 200", missed)
	}
}

// awaited waits for a state change of a child process; option selects which changes count.
func awaited(pid, option int) error {
	for {
		if _, err := syscall.Wait4(pid, nil, option, nil); err != syscall.EINTR {
			return err
		}
	}
}
