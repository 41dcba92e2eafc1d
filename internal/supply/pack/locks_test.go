package pack

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A lock file is read again only if it changed. A file that was written a moment ago is always read, because its next
// change could get the same modification time.
func TestLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), LockName)
	write := func(agent string, age time.Duration) {
		t.Helper()
		at := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(path, []byte(`{"version": 1, "agents": {"`+agent+`": {"servers": {}}}}`), 0o600),
			os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(l *Locks, agent string) *Lock {
		t.Helper()
		lock, err := l.Read(path)
		if err != nil || len(lock.Agents) != 1 || lock.Agents[agent] == nil {
			t.Fatalf("want the lock file with the agent %s, got %+v, %v", agent, lock, err)
		}
		return lock
	}
	l := new(Locks)
	if _, err := l.Read(path); !errors.Is(err, LockMissing) {
		t.Errorf("a missing file: %v", err)
	}
	write("a", time.Hour)
	again := func(l *Locks, agent string) bool {
		first := read(l, agent)
		return read(l, agent) == first
	}
	if !again(l, "a") || again(nil, "a") {
		t.Error("only a *Locks that is not nil keeps the content of an unchanged file")
	}
	write("b", time.Minute) // the same size
	read(l, "b")
	write("c", -time.Hour) // from the future
	if again(l, "c") {
		t.Error("the content of a file that may still be written was kept")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Read(path); !errors.Is(err, LockMissing) {
		t.Errorf("a removed file: %v", err)
	}
}
