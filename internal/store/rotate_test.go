package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// urlOf is the store's URL for Open: none for SQLite, which lies in the home.
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

// A rotated home reads what it sealed, verifies what it signed, and shuts out
// processes that still have the old root.
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
			t.Errorf("the rotated store cannot be written: %v", err)
		}
		if _, err := old.Journal.Checkpoint(t.Context()); !errors.Is(err, journal.ErrHandedOver) {
			t.Errorf("a process with the old root still signs: %v", err)
		}
		if err := errors.Join(b.Close(), old.DB.Close()); err != nil {
			t.Fatal(err)
		}
		again := opened(t, h, url)
		defer again.Close()
		if got, err := again.Keys.OpenKept("row 1", sealed); err != nil || string(got) != "kept" {
			t.Errorf("what lay sealed is %q, %v", got, err)
		}
		report, err := again.Journal.Verify(context.WithoutCancel(t.Context()), journal.Check{})
		if err != nil || !report.OK || report.Key.String() == old.Journal.Key().String() {
			t.Errorf("the journal is %+v, %v", report, err)
		}
	})
}

// TestRotateOneByOne: a rotation waits for another one, and then changes nothing.
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
	if err := b.Rotate(ctx, h, "ada@local", nothing); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "another process is rotating it") {
		t.Errorf("two rotate at once: %v", err)
	}
	if identity.Rotating(h.Root()) {
		t.Error("a next root was made")
	}
	unlock()
	late := opened(t, h, "")
	if err := b.Rotate(t.Context(), h, "ada@local", nothing); err != nil {
		t.Error(err)
	}
	if err := late.Rotate(t.Context(), h, "ada@local", nothing); err == nil || err.Error() != "another process rotated it meanwhile; check it and try again" {
		t.Errorf("who came late got %v", err)
	}
	if identity.Rotating(h.Root()) {
		t.Error("who came late made a next root")
	}
	if err := late.DB.Close(); err != nil {
		t.Error(err)
	}
}

// A rotation that fails, or ends between the store and the key file, is taken up.
func TestInterruptedRotation(t *testing.T) {
	h := home.At(t.TempDir())
	b := opened(t, h, "")
	was := b.Journal.Key().String()
	refused := errors.New("refused")
	if err := b.Rotate(t.Context(), h, "ada@local", func(state.Tx, *Store) error { return refused }); !errors.Is(err, refused) {
		t.Fatalf("it continued: %v", err)
	}
	if err := note(t, b); err != nil || b.Journal.Key().String() != was {
		t.Fatalf("a rotation that failed left something: %v", err)
	}
	next, err := identity.NextKeys(h.Root())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Journal.HandOver(t.Context(), next.Signer(), "ada@local", nil); err != nil {
		t.Fatal(err)
	}
	// A daemon that does not know yet has noted something that is not posted.
	b.Journal.KeepDaybook()
	err = b.Journal.Note(&journal.Record{Call: "late", Tool: "echo", Decision: journal.Allow})
	if err = errors.Join(err, b.DB.Close()); err != nil {
		t.Fatal(err)
	}
	// The process ended here. Only a rotation may use the store now.
	if b, err := Open(t.Context(), h, ""); !errors.Is(err, ErrBrokenOff) || b != nil {
		t.Errorf("it says %v", err)
	}
	second, err := OpenToRotate(t.Context(), h, "")
	if err != nil {
		t.Fatal(err)
	}
	defer second.DB.Close()
	if _, err := second.Journal.Checkpoint(t.Context()); !errors.Is(err, journal.ErrHandedOver) {
		t.Errorf("the old root signs on: %v", err)
	}
	if err := second.Rotate(t.Context(), h, "ada@local", nothing); err != nil {
		t.Fatal(err)
	}
	if err := second.Journal.Post(t.Context()); err != nil {
		t.Errorf("what was noted is not posted: %v", err)
	}
	report, err := second.Journal.Verify(t.Context(), journal.Check{})
	if err != nil || !report.OK || !second.Keys.Signer().Equal(next.Signer()) {
		t.Errorf("the journal is %+v, %v", report, err)
	}
}

// A rotation creates a new root if a completed rotation left its file behind.
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
		t.Errorf("nothing was rotated: %+v, %v", report, err)
	}
}

// Of two stores under one root one is rotated: the other is handed over to the same
// root when its turn comes.
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
			t.Errorf("it says %v", err)
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
			t.Errorf("what lay sealed is %q, %v", got, err)
		}
		report, err := again.Journal.Verify(t.Context(), journal.Check{})
		if err != nil || !report.OK || report.Key.String() != b.Journal.Key().String() {
			t.Errorf("the journal is %+v, %v", report, err)
		}
		if now, err := os.ReadFile(other.Root()); err != nil || string(now) != string(root) || identity.Rotating(other.Root()) {
			t.Errorf("another root was made: %v", err)
		}
	})
}

// The root from before a rotation opens nothing, also if it is put back.
func TestOldRoot(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		h, url, kept := home.At(t.TempDir()), urlOf(place), home.At(t.TempDir())
		b := opened(t, h, url)
		copyRoot(t, h, kept)
		if err := errors.Join(b.Rotate(t.Context(), h, "ada@local", nothing), b.Close()); err != nil {
			t.Fatal(err)
		}
		copyRoot(t, kept, h)
		if _, err := identity.NextKeys(h.Root()); err != nil { // left by a rotation that failed
			t.Fatal(err)
		}
		for _, open := range []func(context.Context, home.Home, string) (*Store, error){Open, OpenLong, OpenToRotate} {
			if b, err := open(t.Context(), h, url); !errors.Is(err, identity.ErrOldRoot) || b != nil {
				t.Errorf("it says %v", err)
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
