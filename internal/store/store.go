// Package store opens a database together with its keys and its journal.
//
// The three are never opened separately: the journal is signed with the keys of the home
// whose calls it records, and every permanent change of the database is journaled in the
// same transaction. A process has one store, however many agents it serves. A long-running
// process may use a write-ahead log (OpenLong); a short command writes to the database
// directly.
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

// Store is a database with its keys and its journal. All agents of a process share it.
type Store struct {
	DB      state.DB
	Keys    *identity.Keys
	Journal *journal.Journal

	newer *identity.Keys // of the home, if the store still uses an older root
	apart error          // why only a rotation may use the store
}

// ErrBehind means that the store uses an older root of its home: another store of the
// same home was rotated without this one.
var ErrBehind = errors.New("the store still uses an older root key of this home")

// ErrBrokenOff means that a rotation ended after the store and before the home was
// changed.
var ErrBrokenOff = errors.New("a rotation of the root key was interrupted")

// Open opens the store of a home: the database at a postgres:// URL or, if the URL is
// empty, the SQLite database in the home.
func Open(ctx context.Context, h home.Home, url string) (*Store, error) {
	b, err := OpenToRotate(ctx, h, url)
	if err == nil && b.apart != nil {
		return nil, errors.Join(b.apart, b.DB.Close())
	}
	return b, err
}

// OpenToRotate also opens a store that uses an older root of its home, or the next root
// of an interrupted rotation. Rotate repairs such a store; it must not be used for
// anything else before that.
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

// brokenOff reports whether a store uses the root that an interrupted rotation left in
// its home.
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

// under returns the store with those of a home's keys that are in force in the database.
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

// open opens the database and the keys. In a home the root is created before the
// database, so a database without a root means that the root was lost. For a PostgreSQL
// database, a root is created only if no root has used the database before.
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

// OpenLong is Open for a long-running process, which may use a write-ahead log.
func OpenLong(ctx context.Context, h home.Home, url string) (*Store, error) {
	b, err := Open(ctx, h, url)
	if err == nil {
		b.Journal.KeepDaybook()
	}
	return b, err
}

// IsURL reports whether Open accepts the value of a --store flag.
func IsURL(s string) bool {
	return s == "" || strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://")
}

// Close signs a last checkpoint of the journal and closes the database.
func (b *Store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(b.Journal.Close(ctx), b.DB.Close())
}
