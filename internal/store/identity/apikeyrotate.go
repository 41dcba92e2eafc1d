package identity

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// ErrNoKey says that there is no key of an id that is good.
var ErrNoKey = errors.New("there is no such key that is good")

// Rotate makes a key in the place of another: for the same principal, with the
// same rights, for as long as the old one was made for. The old one ends after
// overlap, or at once if that is 0. The text of the new key is returned here and
// never again.
func (a *APIKeys) Rotate(ctx context.Context, id string, overlap time.Duration) (fresh, old *APIKey, text string, err error) {
	next := newID()
	text = newText(next)
	hash := sha256.Sum256([]byte(text))
	err = a.db.Write(ctx, func(tx state.Tx) error {
		fresh, old = nil, nil
		err := tx.Query(keyColumns+` WHERE id = $1`, []any{id}, func(r state.Row) (err error) {
			old, err = scanKey(r)
			return err
		})
		if err != nil {
			return err
		}
		now := a.now()
		if old == nil || old.good(now) != nil {
			return ErrNoKey
		}
		k := *old
		k.ID, k.Made, k.hash = next, now, hash[:]
		// Whoever the key itself was stays who he is: grants and policy know him by it.
		k.Principal = old.principal().Name
		if !old.Expires.IsZero() {
			k.Expires = now.Add(old.Expires.Sub(old.Made))
		}
		if end := now.Add(overlap); old.Expires.IsZero() || end.Before(old.Expires) {
			old.Expires = end
		}
		if _, err := tx.Exec(`UPDATE api_keys SET expires = $1 WHERE id = $2`, state.Micros(old.Expires), old.ID); err != nil {
			return err
		}
		fresh = &k
		if err := insertKey(tx, fresh); err != nil {
			return err
		}
		return a.note(tx, KeyChange{Made: fresh, Old: old})
	})
	if err != nil {
		return nil, nil, "", err
	}
	return fresh, old, text, nil
}

// insertKey keeps a new key.
func insertKey(tx state.Tx, k *APIKey) error {
	agents := ""
	if len(k.Agents) > 0 {
		list, err := json.Marshal(k.Agents)
		if err != nil {
			return err
		}
		agents = string(list)
	}
	_, err := tx.Exec(`INSERT INTO api_keys (id, name, hash, principal, agents, admin, made, expires, revoked) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)`,
		k.ID, k.Name, k.hash, k.Principal, agents, number(k.Admin), state.Micros(k.Made), state.Micros(k.Expires))
	return err
}
