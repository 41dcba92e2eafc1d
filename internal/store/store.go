// Package store opens a database together with its keys and its journal.
//
// The database, the keys and the journal are never opened separately. The keys of the home sign the journal. Every
// permanent change to the database is recorded in the journal, in the same transaction. A process opens one store for
// all agents that it serves. A long-running process opens the store with [OpenLong], which uses a write-ahead log. A
// short command writes to the database directly.
package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/postgres"
	"github.com/ambit-run/ambit/internal/store/state/sqlite"
)

// Store is a database with its keys and its journal. All agents of a process share one Store.
type Store struct {
	DB      state.DB
	Keys    *identity.Keys
	Journal *journal.Journal
	// Authority is the register of the rows that give authority.
	Authority *authority.Register

	newer *identity.Keys // set only if the store uses an older root key: the keys of the home's current root key
	apart error          // ErrBehind or ErrInterrupted; nil if the store uses the home's current root key
}

const journalName = "ambit"

// JournalKey returns the public key of the journal that the keys sign.
func JournalKey(keys *identity.Keys) journal.Key { return journal.KeyOf(keys.Signer(), journalName) }

// New returns a store with a database and keys that are already open. The parameter memory can be nil.
func New(db state.DB, keys *identity.Keys, memory *authority.Memory) *Store {
	tracked := authority.Track(db, memory)
	return &Store{
		DB: tracked, Keys: keys, Journal: journal.New(tracked, keys.Signer(), journalName),
		Authority: authority.New(tracked, keys),
	}
}

// ErrBehind means that the store uses an older root key of its home. The root key was rotated while the home was used
// with another store.
var ErrBehind = errors.New("the store still uses an older root key of this home")

// ErrInterrupted means that a rotation was interrupted. The store already uses the new root key, but the home does not.
var ErrInterrupted = errors.New("a rotation of the root key was interrupted")

// Open opens the store of a home. The store is the PostgreSQL database at url. If url is empty, the store is the
// SQLite database in the home.
func Open(ctx context.Context, h home.Home, url string) (*Store, error) {
	b, err := OpenToRotate(ctx, h, url)
	if err == nil && b.apart != nil {
		return nil, errors.Join(b.apart, b.DB.Close())
	}
	return b, err
}

// OpenToRotate is like Open, but also accepts a store that does not use the home's current root key. The store can
// use an older root key, or the next root key of an interrupted rotation. The caller must repair such a store with
// Rotate before any other use.
func OpenToRotate(ctx context.Context, h home.Home, url string) (*Store, error) {
	db, keys, err := open(ctx, h, url)
	if err != nil {
		return nil, err
	}
	var memory *authority.Memory
	if url != "" {
		memory = authority.MemoryOf(h, url)
	}
	b, err := withKeys(ctx, db, keys, memory)
	if errors.Is(err, identity.ErrOldRoot) && interrupted(ctx, db, h) {
		b, err = New(db, keys, memory), nil
		b.apart = ErrInterrupted
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if url == "" {
		b.Journal.SetWALDir(h.WALDir())
	}
	return b, nil
}

// interrupted reports whether a rotation was interrupted after the database adopted the next root key. An interrupted
// rotation leaves the next root key in the home.
func interrupted(ctx context.Context, db state.DB, h home.Home) bool {
	if !identity.Rotating(h.Root()) {
		return false
	}
	next, err := identity.NextKeys(h.Root())
	if err != nil {
		return false
	}
	b, err := withKeys(ctx, db, next, nil)
	return err == nil && b.Keys == next
}

// withKeys returns a store with the keys that are derived from the database's root key. That root key is the home's
// current one or an older one.
func withKeys(
	ctx context.Context, db state.DB, keys *identity.Keys, memory *authority.Memory,
) (*Store, error) {
	all := map[string]*Store{}
	var names []string
	for _, k := range keys.Roots() {
		b := New(db, k, memory)
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

// open opens the database and the keys. For SQLite, the root key is created before the database. A SQLite database
// without a root key therefore means that the root key was lost. For PostgreSQL, a missing root key is created only
// if the database was never used with a root key.
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

// OpenLong is like Open, but for a long-running process. If the store is SQLite, the journal uses a write-ahead log.
func OpenLong(ctx context.Context, h home.Home, url string) (*Store, error) {
	b, err := Open(ctx, h, url)
	if err == nil {
		b.Journal.StartWAL()
	}
	return b, err
}

// IsURL reports whether s, the value of a --store flag, is empty or a PostgreSQL URL. Open accepts only these values.
func IsURL(s string) bool {
	return s == "" || strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://")
}

// Close signs a last checkpoint of the journal and closes the database.
func (b *Store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(b.Journal.Close(ctx), b.DB.Close())
}

// Spend marks a single-use id of a call as used and stores the time when the id expires. The first result is false if
// any process that shares the store has already used the id. Spend also deletes ids that expired more than
// [authority.UsedKept] ago. [authority.Register.Spend] also protects ids from an attacker who can write to the
// database, but the register is too slow for the ids of all calls.
func (b *Store) Spend(ctx context.Context, id string, expires time.Time) (first bool, err error) {
	err = b.DB.Write(ctx, func(tx state.Tx) error {
		if _, err := tx.Exec(`DELETE FROM spent WHERE until < $1`, time.Now().Add(-authority.UsedKept).UnixMicro()); err != nil {
			return err
		}
		n, err := tx.Exec(`INSERT INTO spent (id, until) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`,
			id, expires.UnixMicro())
		first = n == 1
		return err
	})
	return first, err
}
