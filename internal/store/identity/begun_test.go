package identity

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// A root that was lost is not made anew where there is a store.
func TestLostRootIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "keys", "root")
	first := openKeys(t, file)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "state.db"), nil, 0o600), os.Rename(file, file+".away")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := OpenKeys(file); !errors.Is(err, ErrNoRoot) {
			t.Errorf("without its root it says %v", err)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a root: %v", err)
	}
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}
	if again := openKeys(t, file); !again.Signer().Equal(first.Signer()) {
		t.Error("it is not the same root")
	}
}

// Processes that begin a home at once are not taken for ones that lost a root.
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
	handedOver := func(tx state.Tx) error {
		_, err := tx.Exec(`INSERT INTO handovers (log, size, root, older, newer, by_old, by_new) VALUES (0, 1, $1, 'first', 'second', $2, $3)`, []byte{}, []byte{}, []byte{})
		return err
	}
	signedBy := func(key string) func(state.Tx) error {
		return func(tx state.Tx) error {
			_, err := tx.Exec(`INSERT INTO checkpoints (log, size, note, made) VALUES (0, 1, $1, 0)`, []byte("by "+key))
			return err
		}
	}
	for _, tt := range []struct {
		name    string
		first   string // that begins the store, if any
		also    func(tx state.Tx) error
		keys    []string
		inForce string
		want    error
	}{
		{"an empty store is anybody's", "", nil, []string{"first"}, "first", nil},
		{"the root of the store", "first", nil, []string{"first"}, "first", nil},
		{"another root", "first", nil, []string{"other"}, "", ErrOtherRoot},
		{"a root that was handed over to", "first", handedOver, []string{"second", "first"}, "second", nil},
		{"one without the older ones", "first", handedOver, []string{"second"}, "second", nil},
		{"the root from before", "first", handedOver, []string{"first"}, "", ErrOldRoot},
		{"a newer root than that of the store", "first", nil, []string{"second", "first"}, "first", nil},
		{"a newer root than it was handed over to", "first", handedOver, []string{"third", "second", "first"}, "second", nil},
		{"another root after a hand-over", "first", handedOver, []string{"other"}, "", ErrOtherRoot},
		{"the signer of a store that remembers no root", "", signedBy("first"), []string{"first"}, "first", nil},
		{"a newer root than its signer", "", signedBy("first"), []string{"second", "first"}, "first", nil},
		{"another than its signer", "", signedBy("first"), []string{"other"}, "", ErrOtherRoot},
		{"one from before that it does not remember", "", func(tx state.Tx) error { return errors.Join(handedOver(tx), signedBy("second")(tx)) }, []string{"first"}, "", ErrOldRoot},
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
					if err := db.Write(t.Context(), tt.also); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 { // the second time it is known
					if inForce, err := begin(t, db, tt.keys...); !errors.Is(err, tt.want) || inForce != tt.inForce {
						t.Errorf("%s: %q is in force, %v", tt.keys, inForce, err)
					}
				}
			})
		})
	}
}

// Of machines that come at once, each with a root of its own, the store is of one.
func TestManyBeginAStore(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		if err := Unbegun(t.Context(), db, "root"); err != nil {
			t.Errorf("Unbegun failed for a new store: %v", err)
		}
		keys := []string{"a", "b", "c", "d"}
		told := make([]error, len(keys))
		var all sync.WaitGroup
		for i, key := range keys {
			own := open()
			all.Go(func() { _, told[i] = begin(t, own, key) })
		}
		all.Wait()
		first := 0
		for i, err := range told {
			switch {
			case err == nil:
				first++
			case !errors.Is(err, ErrOtherRoot):
				t.Errorf("%s got %v", keys[i], err)
			}
		}
		if first != 1 {
			t.Errorf("%d roots began it", first)
		}
		if err := Unbegun(t.Context(), db, "root"); !errors.Is(err, ErrNoRoot) {
			t.Errorf("a home without a root got %v", err)
		}
	})
}

// overtaken is a store that another root begins as soon as it was looked at.
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
			t.Errorf("%q is in force, %v", inForce, err)
		}
	})
}

// begin begins a store with keys whose checkpoints say who signed them.
func begin(t *testing.T, db state.DB, keys ...string) (string, error) {
	return Begin(t.Context(), db, keys, func(checkpoint []byte) string {
		for _, key := range keys {
			if string(checkpoint) == "by "+key {
				return key
			}
		}
		return ""
	})
}
