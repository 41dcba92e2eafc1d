package identity

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// If a store exists but its root key is missing, OpenKeys does not create a new root key.
func TestLostRootIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "keys", "root")
	first := openKeys(t, file)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "state.db"), nil, 0o600), os.Rename(file, file+".away")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := OpenKeys(file); !errors.Is(err, ErrNoRoot) {
			t.Errorf("opening the keys without a root key: got error %v, want ErrNoRoot", err)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a new root key was created: %v", err)
	}
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}
	if again := openKeys(t, file); !again.Signer().Equal(first.Signer()) {
		t.Error("the restored root key has another signing key")
	}
}

// Processes that create the same home at the same time must not fail with ErrNoRoot.
func TestManyBeginAHome(t *testing.T) {
	for range 50 {
		dir := t.TempDir()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				_, err := OpenKeys(filepath.Join(dir, "keys", "root"))
				if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "state.db"), nil, 0o600)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

func TestBegin(t *testing.T) {
	handedOver := func(t *testing.T, db state.DB) error {
		_, err := journal.New(db, signer("first"), "ambit").HandOver(t.Context(), signer("second"), "", nil)
		return err
	}
	write := func(query string, args ...any) func(*testing.T, state.DB) error {
		return func(t *testing.T, db state.DB) error {
			return db.Write(t.Context(), func(tx state.Tx) error {
				_, err := tx.Exec(query, args...)
				return err
			})
		}
	}
	signedBy := func(key string) func(*testing.T, state.DB) error {
		return write(`INSERT INTO checkpoints (log, size, note, made) VALUES (0, 1, $1, 0)`, []byte("by "+keyOf(key)))
	}
	// An attacker with the first root key forges a handover of the second key to the first one.
	forged := func(t *testing.T, db state.DB) error {
		return errors.Join(handedOver(t, db),
			write(`INSERT INTO handovers (log, size, root, older, newer, by_old, by_new)
SELECT log, size + 1, root, newer, older, by_new, by_old FROM handovers WHERE log = 0`)(t, db))
	}
	for _, tt := range []struct {
		name    string
		first   string // the key that the store was created with, if any
		also    func(*testing.T, state.DB) error
		keys    []string
		inForce string
		want    error
	}{
		{"an empty store accepts any root key", "", nil, []string{"first"}, "first", nil},
		{"the root key of the store", "first", nil, []string{"first"}, "first", nil},
		{"another root key", "first", nil, []string{"other"}, "", ErrOtherRoot},
		{"the newer root key after a handover", "first", handedOver, []string{"second", "first"}, "second", nil},
		{"the newer root key without the older root key", "first", handedOver, []string{"second"}, "second", nil},
		{"only the older root key after a handover", "first", handedOver, []string{"first"}, "", ErrOldRoot},
		{"a home with a newer root key than the store", "first", nil, []string{"second", "first"}, "first", nil},
		{"a home with a newer root key than the handover", "first", handedOver, []string{"third", "second", "first"}, "second", nil},
		{"another root key after a handover", "first", handedOver, []string{"other"}, "", ErrOtherRoot},
		{"the signer of the checkpoint, without a recorded key", "", signedBy("first"), []string{"first"}, "first", nil},
		{"a home with a newer root key than the signer", "", signedBy("first"), []string{"second", "first"}, "first", nil},
		{"another root key than the signer", "", signedBy("first"), []string{"other"}, "", ErrOtherRoot},
		{"an older root key, without a recorded key", "", handedOver, []string{"first"}, "", ErrOldRoot},
		{"a forged handover to an older root key", "first", forged, []string{"second", "first"}, "", journal.ErrForged},
	} {
		t.Run(tt.name, func(t *testing.T) {
			statetest.Each(t, func(t *testing.T, open func() state.DB) {
				db := open()
				if tt.first != "" {
					if _, err := begin(t, db, tt.first); err != nil {
						t.Fatal(err)
					}
				}
				if tt.also != nil {
					if err := tt.also(t, db); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 { // the first call records the key
					if inForce, err := begin(t, db, tt.keys...); !errors.Is(err, tt.want) || inForce != tt.inForce {
						t.Errorf("with the keys %s: got the key %q and the error %v, want %q and %v",
							tt.keys, inForce, err, tt.inForce, tt.want)
					}
				}
			})
		})
	}
}

// Several machines can open a new store at the same time, each with its own root key. Exactly one root key is
// recorded.
func TestManyBeginAStore(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		if err := Unbegun(t.Context(), db, "root"); err != nil {
			t.Errorf("Unbegun failed for a new store: %v", err)
		}
		keys := []string{"a", "b", "c", "d"}
		errs := make([]error, len(keys))
		var all sync.WaitGroup
		for i, key := range keys {
			own := open()
			all.Go(func() { _, errs[i] = begin(t, own, key) })
		}
		all.Wait()
		first := 0
		for i, err := range errs {
			switch {
			case err == nil:
				first++
			case !errors.Is(err, ErrOtherRoot):
				t.Errorf("Begin with the key %s: got error %v, want ErrOtherRoot", keys[i], err)
			}
		}
		if first != 1 {
			t.Errorf("%d root keys were accepted, want 1", first)
		}
		if err := Unbegun(t.Context(), db, "root"); !errors.Is(err, ErrNoRoot) {
			t.Errorf("Unbegun on a used store: got error %v, want ErrNoRoot", err)
		}
		file := filepath.Join(t.TempDir(), "root") // another process has created it in the meantime
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Unbegun(t.Context(), db, file); err != nil {
			t.Errorf("Unbegun on a used store whose root key exists: %v", err)
		}
	})
}

// overtaken is a store that another process binds to its own root key right after each read.
type overtaken struct {
	state.DB
	by func()
}

func (o overtaken) Read(ctx context.Context, f func(state.Tx) error) error {
	defer o.by()
	return o.DB.Read(ctx, f)
}

func TestBeginOvertaken(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		first := func() {
			if _, err := begin(t, db, "first"); err != nil {
				t.Error(err)
			}
		}
		if inForce, err := begin(t, overtaken{db, first}, "second"); !errors.Is(err, ErrOtherRoot) || inForce != "" {
			t.Errorf("got key %q and error %v, want ErrOtherRoot", inForce, err)
		}
	})
}

// signer returns the signing key with the given name.
func signer(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// keyOf returns the journal key with the given name.
func keyOf(name string) string { return journal.New(nil, signer(name), "ambit").Key().String() }

// begin calls Begin with the keys of these names, and returns the name of the key in force.
func begin(t *testing.T, db state.DB, names ...string) (string, error) {
	var keys []string
	for _, name := range names {
		keys = append(keys, keyOf(name))
	}
	inForce, err := Begin(t.Context(), db, keys, func(checkpoint []byte) string {
		for _, key := range keys {
			if string(checkpoint) == "by "+key {
				return key
			}
		}
		return ""
	})
	if i := slices.Index(keys, inForce); i >= 0 {
		inForce = names[i]
	}
	return inForce, err
}
