// Package store opens what an ambit keeps: the store, the keys and the journal,
// which belong together.
//
// They are never opened apart: a journal is signed with the keys of the home whose
// calls it records, and whatever changes the store for good is journaled in the
// same transaction. A process has one, however many agents it serves. One that
// lives on may keep a daybook (OpenLong); a command that ends at once writes to the
// store itself.
package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/postgres"
	"github.com/ambit-run/ambit/internal/store/state/sqlite"
)

// Store are one store with its keys and its journal. All agents of a process
// share them.
type Store struct {
	DB      state.DB
	Keys    *identity.Keys
	Journal *journal.Journal

	newer *identity.Keys // of the home, if the store is still under an older root
	apart error          // why nothing but a rotation may go on
}

// ErrBehind says that a store is under an older root of its home than others are: one
// of them was rotated alone.
var ErrBehind = errors.New("the store is still under an older root key of this home")

// ErrBrokenOff says that a rotation ended between the store and the home.
var ErrBrokenOff = errors.New("a rotation of the root key was broken off")

// Open opens the books of a home. The store is at a postgres:// URL, or where
// that is empty, in the home itself.
func Open(ctx context.Context, h home.Home, url string) (*Store, error) {
	b, err := OpenToRotate(ctx, h, url)
	if err == nil && b.apart != nil {
		return nil, errors.Join(b.apart, b.DB.Close())
	}
	return b, err
}

// OpenToRotate opens the books also where the store is under an older root of the
// home, or under the next one of a rotation that was broken off: Rotate brings them
// together again. They are for nothing else then.
func OpenToRotate(ctx context.Context, h home.Home, url string) (*Store, error) {
	db, keys, err := open(ctx, h, url)
	if err != nil {
		return nil, err
	}
	b, err := under(ctx, db, keys)
	if errors.Is(err, identity.ErrOldRoot) && brokenOff(ctx, db, h) {
		b, err = &Store{DB: db, Keys: keys, Journal: journalOf(db, keys), apart: ErrBrokenOff}, nil
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if url == "" {
		b.Journal.Daybooks(h.Daybooks())
	}
	return b, nil
}

// brokenOff reports whether a store is under the root that waits in its home to be
// adopted.
func brokenOff(ctx context.Context, db state.DB, h home.Home) bool {
	if !identity.Rotating(h.Root()) {
		return false
	}
	next, err := identity.NextKeys(h.Root())
	if err != nil {
		return false
	}
	b, err := under(ctx, db, next)
	return err == nil && b.Keys == next
}

// under are the books under that root of a home which is in force in the store.
func under(ctx context.Context, db state.DB, keys *identity.Keys) (*Store, error) {
	all := map[string]*Store{}
	var names []string
	for _, k := range keys.Roots() {
		b := &Store{DB: db, Keys: k, Journal: journalOf(db, k)}
		name := b.Journal.Key().String()
		all[name], names = b, append(names, name)
	}
	inForce, err := identity.Begin(ctx, db, names, func(checkpoint []byte) string {
		for name, b := range all {
			if _, err := b.Journal.Key().Open(checkpoint); err == nil {
				return name
			}
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	b := all[inForce]
	if b.Keys != keys {
		b.newer, b.apart = keys, ErrBehind
	}
	return b, nil
}

func journalOf(db state.DB, keys *identity.Keys) *journal.Journal {
	return journal.New(db, keys.Signer(), "ambit")
}

// open opens the store and the keys. In a home the root is made first, so that a
// store without one has lost it. A store elsewhere is asked, and a root is made
// only for one that none has used.
func open(ctx context.Context, h home.Home, url string) (db state.DB, keys *identity.Keys, err error) {
	if url == "" {
		if keys, err = identity.OpenKeys(h.Root()); err == nil {
			db, err = sqlite.Open(ctx, h.State())
		}
		return db, keys, err
	}
	if db, err = postgres.Open(ctx, url); err != nil {
		return nil, nil, err
	}
	if _, missing := os.Stat(h.Root()); errors.Is(missing, fs.ErrNotExist) {
		err = identity.Unbegun(ctx, db, h.Root())
	}
	if err == nil {
		keys, err = identity.OpenKeys(h.Root())
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, keys, nil
}

// OpenLong opens the books for a process that lives on, and may keep a daybook.
func OpenLong(ctx context.Context, h home.Home, url string) (*Store, error) {
	b, err := Open(ctx, h, url)
	if err == nil {
		b.Journal.KeepDaybook()
	}
	return b, err
}

// IsURL reports whether a --store flag names a place that Open knows.
func IsURL(s string) bool {
	return s == "" || strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://")
}

// Close signs how far the journal has come, and closes the store.
func (b *Store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(b.Journal.Close(ctx), b.DB.Close())
}
