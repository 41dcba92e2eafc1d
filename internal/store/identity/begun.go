package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Errors that callers distinguish.
var (
	// ErrNoRoot means that a root was used before and its file is missing. A new root
	// could open nothing, and would continue to sign as if nothing had happened.
	ErrNoRoot = errors.New("the root key is missing")
	// ErrOtherRoot means that the store was created with another root.
	ErrOtherRoot = errors.New("the store was created with another root key")
	// ErrOldRoot means that the store was handed over to a newer root.
	ErrOldRoot = errors.New("the store was handed over to a newer root key")
)

// Begin binds a store to its root. It returns which of a home's journal keys, newest
// first, is in force in the store. The first key that opens a store is recorded in it;
// after that, only keys that the journal was handed over to are accepted. So a machine
// without the right root cannot sign a shared store. signer returns the key that signed a
// checkpoint, or "" if it is none of the keys: an old store may have checkpoints and no
// recorded key.
func Begin(
	ctx context.Context, db state.DB, keys []string, signer func(checkpoint []byte) string,
) (inForce string, err error) {
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
			_, err = tx.Exec(`INSERT INTO begun (one, key) VALUES (1, $1) ON CONFLICT (one) DO NOTHING`, first)
			if err != nil {
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

// keyInForce returns the key that a store was last handed over to, or created with.
func keyInForce(tx state.Tx) (key string, err error) {
	scan := func(r state.Row) error { return r.Scan(&key) }
	if err = tx.Query(`SELECT key FROM begun`, nil, scan); err == nil {
		err = tx.Query(`SELECT newer FROM handovers WHERE log = 0 ORDER BY size DESC LIMIT 1`, nil, scan)
	}
	return key, err
}

// firstKey returns the key to record in a store: the one that signed its last checkpoint,
// or newest if there is none.
func firstKey(tx state.Tx, newest string, signer func(checkpoint []byte) string) (key string, err error) {
	key = newest
	const query = `SELECT note FROM checkpoints WHERE log = 0 ORDER BY size DESC LIMIT 1`
	err = tx.Query(query, nil, func(r state.Row) error {
		var last []byte
		if err := r.Scan(&last); err != nil {
			return err
		}
		if key = signer(last); key == "" {
			return ErrOtherRoot
		}
		return nil
	})
	return key, err
}

// knows fails with ErrOldRoot if a store used one of the keys before.
func knows(tx state.Tx, keys []string) error {
	const query = `SELECT key FROM begun UNION ALL SELECT older FROM handovers WHERE log = 0`
	return tx.Query(query, nil, func(r state.Row) error {
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

// Unbegun fails with ErrNoRoot if a root has used a store before. A home without a root
// calls it before it creates one.
func Unbegun(ctx context.Context, db state.DB, file string) error {
	begun := false
	err := db.Read(ctx, func(tx state.Tx) error {
		begun = false
		const query = `SELECT one FROM begun UNION ALL SELECT log FROM checkpoints LIMIT 1`
		return tx.Query(query, nil, func(state.Row) error {
			begun = true
			return nil
		})
	})
	if err == nil && begun {
		err = fmt.Errorf("%w, or was never on this machine: the store has a root key, and %s does not exist",
			ErrNoRoot, file)
	}
	return err
}
