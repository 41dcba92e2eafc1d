//go:build unix

package daemon

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Where a server can write a file, it can also create a pipe. Opening a pipe that has no writer would block.
func TestLockThatIsAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ambit.lock")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := readBounded(path)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the pipe was read as a lock file")
		}
	case <-time.After(time.Minute):
		t.Fatal("opening the pipe still blocks")
	}
}
