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

// hold takes the lock that writers of the store queue for, as a process does that
// is stopped in the middle of a write, and returns what lets go of it.
func (h *house) hold() (release func()) {
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

// queued reports whether somebody waits for that lock: whoever does has the turn.
func (h *house) queued() bool {
	h.t.Helper()
	f, err := os.OpenFile(filepath.Join(h.home(), "state.db.turn"), os.O_RDWR, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK
}

// keepLocked is a process that writes to the store at a place, says so, and stays in
// the middle of it until its input ends.
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

// While another process keeps the store locked, a call with an effect waits and
// nothing is done; reads are answered, since their record is in the daybook. When
// the lock is free the call goes on, once.
func TestStoreLocked(t *testing.T) {
	h := newHouse(t, "-", 0)
	d := h.serve()
	if a, err := d.pay(); err != nil || a.status != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	release := h.hold()
	defer release()
	got := make(chan outcome, 1)
	go func() { a, err := d.pay(); got <- outcome{a, err} }()
	h.until("the call waits for the store", h.queued)
	if a, err := d.call("look"); err != nil || a.status != 200 {
		t.Errorf("a read meanwhile: %+v, %v", a, err)
	}
	if n := h.done(); n != 1 {
		t.Errorf("%d effects while nothing could be written down", n)
	}
	release()
	if o := <-got; o.err != nil || o.a.status != 200 {
		t.Errorf("when the lock was free: %+v", o)
	}
	if n := h.done(); n != 2 {
		t.Errorf("%d effects of 2 calls", n)
	}
	if allowed := count(h.decisions(), "allow"); allowed != 3 {
		t.Errorf("the journal tells of %d calls, not 3", allowed)
	}
	h.whole()
}

// A store whose file is deleted, or replaced by a copy from before, is not
// written any more: its calls are refused, without effect.
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
			h := newHouse(t, "-", 0)
			d := h.serve()
			if a, err := d.pay(); err != nil || a.status != 200 {
				t.Fatalf("%+v, %v", a, err)
			}
			if err := spoil(filepath.Join(h.home(), "state.db")); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				a, err := d.pay()
				if err != nil || a.Error.Code != "store_unavailable" || !strings.Contains(a.Error.Message, "moved or removed") {
					t.Errorf("%+v, %v", a, err)
				}
			}
			if n := h.done(); n != 1 {
				t.Errorf("%d effects while nothing could be written down", n)
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
