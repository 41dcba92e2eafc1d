package identity

import (
	"context"
	"errors"
	"fmt"

	"github.com/ambit-run/ambit/internal/state"
)

// Errors that callers tell apart.
var (
	// ErrNoRoot says that there is no root where one was used before. A new one in
	// its place would open nothing, and sign on as if nothing had happened.
	ErrNoRoot = errors.New("the root key is gone")
	// ErrOtherRoot says that a store was begun with another root than the one here.
	ErrOtherRoot = errors.New("the store was begun with another root key")
)

// Begin holds a store to its root. The first root that comes is the store's, and
// after it only those that the journal was handed over to: a store that many
// machines share is not signed by one that came without its root. Key is that of
// the journal, and signed tells its checkpoints: of those a store may have some
// from before it remembered its root.
func Begin(ctx context.Context, db state.DB, key string, signed func(checkpoint []byte) bool) error {
	known := false
	look := func(tx state.Tx) (err error) {
		known, err = belongs(tx, key)
		return err
	}
	if err := db.Read(ctx, look); err != nil || known {
		return err
	}
	return db.Write(ctx, func(tx state.Tx) error {
		newest, found := []byte(nil), false
		err := tx.Query(`SELECT note FROM checkpoints WHERE log = 0 ORDER BY size DESC LIMIT 1`, nil, func(r state.Row) error {
			found = true
			return r.Scan(&newest)
		})
		if err != nil {
			return err
		}
		if found && !signed(newest) {
			return ErrOtherRoot
		}
		if _, err := tx.Exec(`INSERT INTO begun (one, key) VALUES (1, $1) ON CONFLICT (one) DO NOTHING`, key); err != nil {
			return err
		}
		if err := look(tx); err != nil || known {
			return err
		}
		return ErrOtherRoot
	})
}

// belongs reports whether a store was begun with a key, or has handed over from it
// or to it. What a key may sign that was handed over is the journal's to say.
func belongs(tx state.Tx, key string) (known bool, err error) {
	err = tx.Query(`SELECT one FROM begun WHERE key = $1 UNION ALL SELECT log FROM handovers WHERE log = 0 AND (older = $2 OR newer = $3)`,
		[]any{key, key, key}, func(r state.Row) error {
			var n int64
			known = true
			return r.Scan(&n)
		})
	return known, err
}

// Unbegun fails with ErrNoRoot if a root has used a store before. It is asked where
// there is none yet, before one is made.
func Unbegun(ctx context.Context, db state.DB, file string) error {
	begun := false
	err := db.Read(ctx, func(tx state.Tx) error {
		begun = false
		return tx.Query(`SELECT one FROM begun UNION ALL SELECT log FROM checkpoints LIMIT 1`, nil, func(r state.Row) error {
			var n int64
			begun = true
			return r.Scan(&n)
		})
	})
	if err == nil && begun {
		err = fmt.Errorf("%w, or was never here: there is no %s, and the store was begun with one", ErrNoRoot, file)
	}
	return err
}
