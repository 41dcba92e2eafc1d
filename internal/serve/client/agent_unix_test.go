//go:build unix

package client

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A copy has the permissions of its original, except that only the owner can write it. The umask does
// not matter.
func TestStageOpenness(t *testing.T) {
	from, agents := t.TempDir(), filepath.Join(t.TempDir(), "agents")
	was := syscall.Umask(0)
	defer syscall.Umask(was)
	modes := []struct {
		name       string
		from, want os.FileMode
	}{
		{".", 0o777, 0o755},
		{"open", 0o755, 0o755},
		{"open/main.py", 0o644, 0o644},
		{"open/run", 0o775, 0o755},
		{"open/for-all", 0o666, 0o644},
		{"open/fixed", 0o444, 0o644},
		{"open/own", 0o600, 0o600},
		{"closed", 0o700, 0o700},
		{"closed/main.py", 0o644, 0o644},
	}
	for _, m := range modes {
		path, err := filepath.Join(from, m.name), error(nil)
		if m.from&0o111 == 0 || m.name == "open/run" {
			err = os.WriteFile(path, nil, 0o600)
		} else {
			err = os.MkdirAll(path, 0o700)
		}
		if err := errors.Join(err, os.Chmod(path, m.from)); err != nil {
			t.Fatal(err)
		}
	}
	syscall.Umask(0o077)
	s, err := Stage(agents, "x", from, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, m := range modes {
		if info, err := os.Stat(filepath.Join(agents, "x", m.name)); err != nil || info.Mode().Perm() != m.want {
			t.Errorf("%s is %v, want %v (%v)", m.name, info.Mode(), m.want, err)
		}
	}
	if info, err := os.Stat(agents); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the agents folder is %v (%v)", info.Mode(), err)
	}
}

// A pipe in the place of a client's file does not block ambit. While ambit waits, it also holds the lock of the ledger.
func TestFileThatIsAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := readSnapshot(path)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the pipe was read as a file")
		}
	case <-time.After(time.Minute):
		t.Fatal("opening the pipe still blocks")
	}
}
