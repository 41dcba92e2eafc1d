package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

// keep writes to a store, prints a line, and holds the lock until its standard input is closed.
func keep(file string) error {
	s, err := Open(context.Background(), file)
	if err != nil {
		return err
	}
	err = s.Write(context.Background(), func(tx state.Tx) error {
		if _, err := tx.Exec(`UPDATE logs SET born = 1`); err != nil {
			return err
		}
		fmt.Println("locked")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
	return errors.Join(err, s.Close())
}

// shortly sets lockTime to a short time.
func shortly(t *testing.T) {
	t.Helper()
	before := lockTime
	lockTime = 10 * time.Millisecond
	t.Cleanup(func() { lockTime = before })
}

// Opening a store that needs an upgrade waits for the lock, but only for lockTime. A canceled call of Open
// leaves nothing behind.
func TestOpeningIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	first := testOpen(t, file, migrations.List())
	if err := first.enter(); err != nil {
		t.Fatal(err)
	}
	more := append(migrations.List(), "CREATE TABLE more (n BIGINT);\n")

	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if _, err := open(ctx, file, more); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled open returned %v, want context.Canceled", err)
	}
	shortly(t)
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := open(ctx, file, more); !errors.Is(err, state.ErrLocked) {
		t.Errorf("an open that waited longer than lockTime returned %v, want ErrLocked", err)
	}
	testOpen(t, file, migrations.List()) // without an upgrade, opening the store does not wait
	if err := home.Unlock(first.lock); err != nil {
		t.Fatal(err)
	}
	lockTime = time.Minute
	if n := read(t, testOpen(t, file, more), `SELECT count(*) FROM more`); n != 0 {
		t.Errorf("the new table has %d rows, want 0", n)
	}
}

// A program can hold SQLite's own lock without using ambit's lock file. Write then fails with
// ErrLocked.
func TestForeignLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	s, foreign := testOpen(t, file, migrations.List()), testOpen(t, file, migrations.List())
	s.writer.SetBusyTimeout(time.Millisecond)
	if err := foreign.writer.exec(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	if err := write(s, `UPDATE logs SET born = 2`); !errors.Is(err, state.ErrLocked) {
		t.Errorf("Write returned the error %v, want ErrLocked", err)
	}
	if err := foreign.writer.exec(`ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if err := write(s, `UPDATE logs SET born = 3`); err != nil {
		t.Errorf("after the lock was released, Write returned the error %v, want none", err)
	}
}

// A waiting process has itself locked turnFile. The error message must not name this process as the
// holder of the lock.
func TestWaiterIsNotToBlame(t *testing.T) {
	s := &store{file: filepath.Join(t.TempDir(), "state.db")}
	turns, err := os.Create(s.file + ".turn")
	if err != nil {
		t.Fatal(err)
	}
	defer turns.Close()
	if err := home.Lock(turns); err != nil {
		t.Fatal(err)
	}
	err = s.locked(time.Now())
	if !errors.Is(err, state.ErrLocked) || strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("got error %v, want ErrLocked without the id of this process", err)
	}
}
