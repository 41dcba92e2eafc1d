package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Errors that callers distinguish.
var (
	// ErrNoRoot means that the root key of an existing store is missing. ambit does not create a new root key,
	// because a new key could not decrypt the stored data.
	ErrNoRoot = errors.New("the root key is missing")
	// ErrOtherRoot means that the store was created with a root key that the home does not have.
	ErrOtherRoot = errors.New("the store was created with a different root key")
	// ErrOldRoot means that a rotation replaced the root key, and that the home has only an older root key.
	ErrOldRoot = errors.New("the store now uses a newer root key")
)

// Begin binds a store to a root key and returns the journal key that the store uses now. Without the binding, two
// machines with different root keys could sign the journal of the same store. The caller passes the journal keys of the
// home's root keys, newest first. The first call for a store records one of these keys. A rotation replaces the key.
// Begin fails with ErrOldRoot if the home has only keys that were replaced, and with ErrOtherRoot if the store never
// used any of the home's keys.
//
// Stores that were created by earlier versions of ambit have checkpoints but no recorded key. For such a store, Begin
// calls signer with the last checkpoint. The signer function returns the key that signed the checkpoint, or "" if none
// of the home's keys signed it.
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
	return "", cmp.Or(db.Read(ctx, func(tx state.Tx) error { return checkReplaced(tx, keys) }), ErrOtherRoot)
}

// keyInForce returns the journal key that the store uses now. After a rotation, this is the newest key. Before the
// first rotation, it is the recorded key. keyInForce returns "" if no key is recorded.
func keyInForce(tx state.Tx) (key string, err error) {
	scan := func(r state.Row) error { return r.Scan(&key) }
	if err = tx.Query(`SELECT key FROM begun`, nil, scan); err != nil {
		return "", err
	}
	return journal.KeyInForce(tx, key)
}

// firstKey returns the key to record in a store. This is the key that signed the store's last checkpoint. If the store
// has no checkpoint, it is the newest key of the home.
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

// checkReplaced returns ErrOldRoot if the store used one of the keys in the past.
func checkReplaced(tx state.Tx, keys []string) error {
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

// Unbegun fails with ErrNoRoot if the store was already used with a root key and the root key file does not exist. It
// looks for the file after the query, because another process of this machine may create the file and then use the
// store. Callers run this check before they create a missing root key file.
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
	if err != nil || !begun {
		return err
	}
	if _, err = os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w from this machine: the store was created with a root key, and %s does not exist",
			ErrNoRoot, file)
	}
	return err
}
