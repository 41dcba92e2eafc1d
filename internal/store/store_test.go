package store

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// A store opens only with the root key that it was created with. The same is true of OpenLong.
func TestOtherRoot(t *testing.T) {
	one, other := home.At(t.TempDir()), home.At(t.TempDir())
	for _, h := range []home.Home{one, other} {
		b, err := OpenLong(t.Context(), h, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.DB.Close(); err != nil {
			t.Fatal(err)
		}
	}
	own, err := os.ReadFile(one.Root())
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(other.Root())
	if err != nil || bytes.Equal(own, foreign) {
		t.Fatalf("both homes have the same root key, or reading it failed: %v", err)
	}
	for _, step := range []struct {
		root []byte
		want error
	}{{foreign, identity.ErrOtherRoot}, {own, nil}} {
		if err := os.WriteFile(one.Root(), step.root, 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := OpenLong(t.Context(), one, "")
		if !errors.Is(err, step.want) || err != nil && b != nil {
			t.Errorf("OpenLong: got error %v, want %v", err, step.want)
		}
		if b != nil {
			_ = b.DB.Close()
		}
	}
}

// Open does not create a root key if the root key of an existing store was deleted. It also creates no root key if
// others already use the store.
func TestLostRoot(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		h, url := home.At(t.TempDir()), urlOf(place)
		if err := opened(t, h, url).DB.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(h.Root()); err != nil {
			t.Fatal(err)
		}
		if b, err := Open(t.Context(), h, url); !errors.Is(err, identity.ErrNoRoot) || b != nil {
			t.Errorf("opening a store without its root key: got error %v, want ErrNoRoot", err)
		}
		if _, err := os.Stat(h.Root()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a new root key was created: %v", err)
		}
	})
}
