//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// hold takes the write lock of the store, like a process that is stopped during a write. It returns a function
// that releases the lock.
func (h *fixture) hold() (release func()) {
	h.t.Helper()
	f, err := os.OpenFile(filepath.Join(h.home(), "state.db.lock"), os.O_RDWR, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		h.t.Fatal(err)
	}
	return func() { f.Close() }
}

// queued reports whether a process waits for the lock.
func (h *fixture) queued() bool {
	h.t.Helper()
	f, err := os.OpenFile(filepath.Join(h.home(), "state.db.turn"), os.O_RDWR, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK
}

// keepLocked writes to the store, prints a line, and keeps the transaction open until its standard input
// is closed.
func keepLocked(place string) error {
	db, err := statetest.OpenPlace(context.Background(), place)
	if err != nil {
		return err
	}
	err = db.Write(context.Background(), func(tx state.Tx) error {
		if _, err := tx.Exec(`UPDATE logs SET born = born`); err != nil {
			return err
		}
		fmt.Println("locked")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
	return errors.Join(err, db.Close())
}

// TestStoreLocked locks the store from another process. A call with an effect waits and has no effect yet.
// Reads are answered, because their records go to the write-ahead log. When the lock is released, the waiting
// call is made once.
func TestStoreLocked(t *testing.T) {
	h := newFixture(t, "-", 0)
	d := h.serve()
	if a, err := d.pay(); err != nil || a.status != 200 {
		t.Fatalf("the call returned %+v, %v", a, err)
	}
	release := h.hold()
	defer release()
	got := make(chan outcome, 1)
	go func() { a, err := d.pay(); got <- outcome{a, err} }()
	h.until("the call waits for the store", h.queued)
	if a, err := d.call("look"); err != nil || a.status != 200 {
		t.Errorf("reading while the store is locked: got %+v, %v", a, err)
	}
	if n := h.done(); n != 1 {
		t.Errorf("there were %d effects, want 1: a call had an effect while the store was locked", n)
	}
	release()
	if o := <-got; o.err != nil || o.a.status != 200 {
		t.Errorf("after the lock was released, the call returned %+v", o)
	}
	if n := h.done(); n != 2 {
		t.Errorf("2 calls had %d effects", n)
	}
	if allowed := count(h.decisions(), "allow"); allowed != 3 {
		t.Errorf("the journal has %d calls, want 3", allowed)
	}
	h.whole()
}

// TestStoreReplaced deletes the store's file or replaces it with an older copy. Calls are refused without effect.
func TestStoreReplaced(t *testing.T) {
	for name, spoil := range map[string]func(store string) error{
		"deleted": os.Remove,
		"replaced": func(store string) error {
			if err := copyFile(store, store+".old"); err != nil {
				return err
			}
			return os.Rename(store+".old", store)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t, "-", 0)
			d := h.serve()
			if a, err := d.pay(); err != nil || a.status != 200 {
				t.Fatalf("the call returned %+v, %v", a, err)
			}
			if err := spoil(filepath.Join(h.home(), "state.db")); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				a, err := d.pay()
				if err != nil || a.Error.Code != "store_unavailable" || !strings.Contains(a.Error.Message, "moved or removed") {
					t.Errorf("the call returned %+v, %v", a, err)
				}
			}
			if n := h.done(); n != 1 {
				t.Errorf("there were %d effects, want 1: a call had an effect without a store", n)
			}
		})
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
