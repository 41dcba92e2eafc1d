package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Errors that callers tell apart.
var (
	// ErrNoRoot says that there is no root where one was used before. A new one in
	// its place would open nothing, and sign on as if nothing had happened.
	ErrNoRoot = errors.New("the root key is gone")
	// ErrOtherRoot says that a store was begun with another root than the one here.
	ErrOtherRoot = errors.New("the store was begun with another root key")
	// ErrOldRoot says that a store was handed over to a newer root than the one here.
	ErrOldRoot = errors.New("the store was handed over to a newer root key")
)

// Begin holds a store to its root, and says which of a home's journal keys is in
// force there; they come newest first. The first that comes to a store begins it, and
// after it only those count that the journal was handed over to: a store that many
// machines share is not signed by one that came without its root. Signer tells whose a
// checkpoint is, empty if of none of the keys: a store from before stores remembered
// their root may have some.
func Begin(ctx context.Context, db state.DB, keys []string, signer func(checkpoint []byte) string) (inForce string, err error) {
	look := func(tx state.Tx) (err error) {
		inForce, err = keyInForce(tx)
		return err
	}
	if err = db.Read(ctx, look); err == nil && inForce == "" {
		err = db.Write(ctx, func(tx state.Tx) error {
			first, err := firstKey(tx, keys[0], signer)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(`INSERT INTO begun (one, key) VALUES (1, $1) ON CONFLICT (one) DO NOTHING`, first); err != nil {
				return err
			}
			return look(tx)
		})
	}
	if err != nil || slices.Contains(keys, inForce) {
		return inForce, err
	}
	return "", cmp.Or(db.Read(ctx, func(tx state.Tx) error { return knows(tx, keys) }), ErrOtherRoot)
}

// keyInForce is the key that a store was last handed over to, or begun with.
func keyInForce(tx state.Tx) (key string, err error) {
	scan := func(r state.Row) error { return r.Scan(&key) }
	if err = tx.Query(`SELECT key FROM begun`, nil, scan); err == nil {
		err = tx.Query(`SELECT newer FROM handovers WHERE log = 0 ORDER BY size DESC LIMIT 1`, nil, scan)
	}
	return key, err
}

// firstKey is the one to begin a store with: whoever signed it until now, or the one
// that comes.
func firstKey(tx state.Tx, comes string, signer func(checkpoint []byte) string) (key string, err error) {
	key = comes
	err = tx.Query(`SELECT note FROM checkpoints WHERE log = 0 ORDER BY size DESC LIMIT 1`, nil, func(r state.Row) error {
		var newest []byte
		if err := r.Scan(&newest); err != nil {
			return err
		}
		if key = signer(newest); key == "" {
			return ErrOtherRoot
		}
		return nil
	})
	return key, err
}

// knows fails with ErrOldRoot if a store was under one of the keys before.
func knows(tx state.Tx, keys []string) error {
	return tx.Query(`SELECT key FROM begun UNION ALL SELECT older FROM handovers WHERE log = 0`, nil, func(r state.Row) error {
		var key string
		if err := r.Scan(&key); err != nil {
			return err
		}
		if slices.Contains(keys, key) {
			return ErrOldRoot
		}
		return nil
	})
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
