package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// urlOf returns the URL to pass to Open. It is empty for SQLite, because Open finds the SQLite database in the
// home.
func urlOf(place string) string {
	if strings.HasPrefix(place, "postgres") {
		return place
	}
	return ""
}

func opened(t *testing.T, h home.Home, url string) *Store {
	t.Helper()
	b, err := Open(t.Context(), h, url)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func note(t *testing.T, b *Store) error {
	t.Helper()
	return b.DB.Write(t.Context(), func(tx state.Tx) error {
		_, err := b.Journal.Append(tx, &journal.Record{Call: "c", Tool: "echo", Decision: journal.Allow})
		return err
	})
}

func nothing(state.Tx, *Store) error { return nil }

// After a rotation, the home still decrypts its old data and verifies its old signatures. A process with
// only the old root key can no longer sign.
func TestRotate(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		h, url := home.At(t.TempDir()), urlOf(place)
		old := opened(t, h, url)
		if err := note(t, old); err != nil {
			t.Fatal(err)
		}
		sealed := old.Keys.Seal("row 1", []byte("kept"))
		b := opened(t, h, url)
		if err := b.Rotate(t.Context(), h, "ada@local", nothing); err != nil {
			t.Fatal(err)
		}
		if err := note(t, b); err != nil {
			t.Errorf("writing to the rotated store failed: %v", err)
		}
		if _, err := old.Journal.Checkpoint(t.Context()); !errors.Is(err, journal.ErrHandedOver) {
			t.Errorf("signing with the old root key: got error %v, want ErrHandedOver", err)
		}
		if err := errors.Join(b.Close(), old.DB.Close()); err != nil {
			t.Fatal(err)
		}
		again := opened(t, h, url)
		defer again.Close()
		if got, err := again.Keys.OpenKept("row 1", sealed); err != nil || string(got) != "kept" {
			t.Errorf("decrypting data from before the rotation: got %q (error %v), want the original data", got, err)
		}
		report, err := again.Journal.Verify(context.WithoutCancel(t.Context()), journal.Check{})
		if err != nil || !report.OK || report.Key.String() == old.Journal.Key().String() {
			t.Errorf("verifying the journal: got the report %+v (error %v), want an intact journal with the new key",
				report, err)
		}
	})
}

// A rotation waits while another rotation holds the lock. A store that was opened before another rotation
// completed refuses to rotate.
func TestRotateOneByOne(t *testing.T) {
	h := home.At(t.TempDir())
	b := opened(t, h, "")
	defer b.Close()
	unlock, err := lockRoot(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Rotate(ctx, h, "ada@local", nothing); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "another process is rotating the root key") {
		t.Errorf("rotating while another rotation holds the lock: got error %v, want context.Canceled", err)
	}
	if identity.Rotating(h.Root()) {
		t.Error("a rotation that could not get the lock created a next root key")
	}
	unlock()
	late := opened(t, h, "")
	if err := b.Rotate(t.Context(), h, "ada@local", nothing); err != nil {
		t.Error(err)
	}
	if err := late.Rotate(t.Context(), h, "ada@local", nothing); err == nil || err.Error() != "another process has rotated the root key in the meantime; check the result and try again" {
		t.Errorf("rotating with a store opened before another rotation: got error %v, want an error about the other rotation",
			err)
	}
	if identity.Rotating(h.Root()) {
		t.Error("the refused rotation created a next root key")
	}
	if err := late.DB.Close(); err != nil {
		t.Error(err)
	}
}

// Rotate completes a rotation that failed. It also completes a rotation that was interrupted between
// changing the store and changing the key file.
func TestInterruptedRotation(t *testing.T) {
	h := home.At(t.TempDir())
	b := opened(t, h, "")
	was := b.Journal.Key().String()
	refused := errors.New("refused")
	if err := b.Rotate(t.Context(), h, "ada@local", func(state.Tx, *Store) error { return refused }); !errors.Is(err, refused) {
		t.Fatalf("got error %v, want the error of the callback", err)
	}
	if err := note(t, b); err != nil || b.Journal.Key().String() != was {
		t.Fatalf("a failed rotation changed the store: %v", err)
	}
	next, err := identity.NextKeys(h.Root())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Journal.HandOver(t.Context(), next.Signer(), "ada@local", nil); err != nil {
		t.Fatal(err)
	}
	// A daemon has not noticed the rotation. It writes a record to its write-ahead log, but not yet to the
	// database.
	b.Journal.StartWAL()
	err = b.Journal.Note(&journal.Record{Call: "late", Tool: "echo", Decision: journal.Allow})
	if err = errors.Join(err, b.DB.Close()); err != nil {
		t.Fatal(err)
	}
	// The process ended here. Only a rotation may use the store now.
	if b, err := Open(t.Context(), h, ""); !errors.Is(err, ErrInterrupted) || b != nil {
		t.Errorf("opening the store after an interrupted rotation: got error %v, want ErrInterrupted", err)
	}
	second, err := OpenToRotate(t.Context(), h, "")
	if err != nil {
		t.Fatal(err)
	}
	defer second.DB.Close()
	if _, err := second.Journal.Checkpoint(t.Context()); !errors.Is(err, journal.ErrHandedOver) {
		t.Errorf("signing with the old root key: got error %v, want ErrHandedOver", err)
	}
	if err := second.Rotate(t.Context(), h, "ada@local", nothing); err != nil {
		t.Fatal(err)
	}
	if err := second.Journal.Post(t.Context()); err != nil {
		t.Errorf("posting the record of the write-ahead log failed: %v", err)
	}
	report, err := second.Journal.Verify(t.Context(), journal.Check{})
	if err != nil || !report.OK || !second.Keys.Signer().Equal(next.Signer()) {
		t.Errorf("verifying the journal: got the report %+v (error %v), want an intact journal with the new key",
			report, err)
	}
}

// A rotation creates a new root key if a completed rotation left its file behind.
func TestRotateAfterLeftBehind(t *testing.T) {
	h := home.At(t.TempDir())
	b := opened(t, h, "")
	defer b.Close()
	if err := b.Rotate(t.Context(), h, "ada@local", nothing); err != nil {
		t.Fatal(err)
	}
	was := b.Journal.Key().String()
	root, err := os.ReadFile(h.Root())
	if err == nil {
		err = os.WriteFile(h.Root()+".next", root, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Rotate(t.Context(), h, "ada@local", nothing); err != nil {
		t.Fatal(err)
	}
	again := opened(t, h, "")
	defer again.Close()
	report, err := again.Journal.Verify(t.Context(), journal.Check{})
	if err != nil || !report.OK || report.Key.String() == was {
		t.Errorf("the root key was not rotated: %+v, %v", report, err)
	}
}

// Two stores share a root key, and a rotation replaces the root key of one store. The other store can then move to
// the same new root key.
func TestBehind(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		h, url, other := home.At(t.TempDir()), urlOf(place), home.At(t.TempDir())
		b := opened(t, h, url)
		copyRoot(t, h, other)
		second := opened(t, other, "")
		sealed := second.Keys.Seal("row 1", []byte("kept"))
		if err := errors.Join(note(t, second), second.Close()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Rotate(t.Context(), h, "ada@local", nothing), b.Close()); err != nil {
			t.Fatal(err)
		}
		copyRoot(t, h, other)
		root, err := os.ReadFile(other.Root())
		if err != nil {
			t.Fatal(err)
		}
		if b, err := Open(t.Context(), other, ""); !errors.Is(err, ErrBehind) || b != nil {
			t.Errorf("opening a store with an older root key: got error %v, want ErrBehind", err)
		}
		behind, err := OpenToRotate(t.Context(), other, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(behind.Rotate(t.Context(), other, "ada@local", nothing), behind.Close()); err != nil {
			t.Fatal(err)
		}
		again := opened(t, other, "")
		defer again.Close()
		if got, err := again.Keys.OpenKept("row 1", sealed); err != nil || string(got) != "kept" {
			t.Errorf("decrypting data from before the rotation: got %q (error %v), want the original data", got, err)
		}
		report, err := again.Journal.Verify(t.Context(), journal.Check{})
		if err != nil || !report.OK || report.Key.String() != b.Journal.Key().String() {
			t.Errorf("verifying the journal: got the report %+v (error %v), want an intact journal with the new key",
				report, err)
		}
		if now, err := os.ReadFile(other.Root()); err != nil || string(now) != string(root) || identity.Rotating(other.Root()) {
			t.Errorf("handing the second store over created another root key: %v", err)
		}
	})
}

// A root key from before a rotation cannot open the store, even if its file is restored.
func TestOldRoot(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		h, url, kept := home.At(t.TempDir()), urlOf(place), home.At(t.TempDir())
		b := opened(t, h, url)
		copyRoot(t, h, kept)
		if err := errors.Join(b.Rotate(t.Context(), h, "ada@local", nothing), b.Close()); err != nil {
			t.Fatal(err)
		}
		copyRoot(t, kept, h)
		if _, err := identity.NextKeys(h.Root()); err != nil { // a failed rotation leaves this file behind
			t.Fatal(err)
		}
		for _, open := range []func(context.Context, home.Home, string) (*Store, error){Open, OpenLong, OpenToRotate} {
			if b, err := open(t.Context(), h, url); !errors.Is(err, identity.ErrOldRoot) || b != nil {
				t.Errorf("opening the store with the old root key: got error %v, want ErrOldRoot", err)
			}
		}
	})
}

func copyRoot(t *testing.T, from, to home.Home) {
	t.Helper()
	root, err := os.ReadFile(from.Root())
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to.Root()), 0o700), os.WriteFile(to.Root(), root, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An attacker who can write to the database and has the root key from before a rotation sets the rotation back. A
// machine that has seen the store after the rotation does not move the forged register to its own root key.
func TestRolledBackRotation(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		if urlOf(place) == "" {
			return // an attacker who can change a SQLite store can read its root key
		}
		h, thief := home.At(t.TempDir()), home.At(t.TempDir())
		b := opened(t, h, place)
		put := func(b *Store, id string) {
			t.Helper()
			err := b.DB.Write(t.Context(), func(tx state.Tx) error {
				return b.Authority.Put(tx, authority.Row{Kind: authority.Grant, ID: id})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		exec := func(statements ...string) {
			t.Helper()
			err := b.DB.Write(t.Context(), func(tx state.Tx) error {
				for _, s := range statements {
					if _, err := tx.Exec(s); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		put(b, "a")
		exec(`CREATE TABLE old_entries AS SELECT * FROM authority`, `CREATE TABLE old_head AS SELECT * FROM authority_head`)
		copyRoot(t, h, thief)
		if err := b.Rotate(t.Context(), h, "ada@local", nothing); err != nil {
			t.Fatal(err)
		}
		exec(`DELETE FROM handovers`, `DELETE FROM authority`, `INSERT INTO authority SELECT * FROM old_entries`,
			`DELETE FROM authority_head`, `INSERT INTO authority_head SELECT * FROM old_head`)
		if err := b.DB.Close(); err != nil {
			t.Fatal(err)
		}
		stolen := opened(t, thief, place)
		for _, id := range []string{"forged", "x", "y", "z"} {
			put(stolen, id)
		}
		if err := stolen.DB.Close(); err != nil {
			t.Fatal(err)
		}
		if b, err := Open(t.Context(), h, place); !errors.Is(err, ErrBehind) {
			t.Errorf("Open returned %v, %v; want %v", b, err, ErrBehind)
		}
		again, err := OpenToRotate(t.Context(), h, place)
		if err != nil {
			t.Fatal(err)
		}
		defer again.DB.Close()
		if err := again.Rotate(t.Context(), h, "ada@local", nothing); !errors.Is(err, authority.ErrRolledBack) {
			t.Errorf("Rotate returned %v; want %v", err, authority.ErrRolledBack)
		}
	})
}
