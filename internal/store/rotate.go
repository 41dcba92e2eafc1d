package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Rotate replaces the root key of a home. The keys for signing, encryption and keyed hashes all derive from the root
// key. The home keeps older root keys. Older data can still be decrypted, and older signatures can still be verified.
//
// Rotate first writes the new root key to a separate file. Then one transaction makes the new signing key the
// journal's key. In the same transaction, the callback update changes other data that depends on the keys. Finally,
// Rotate moves the new root key into place, and b uses the new keys. If a rotation is interrupted, the next call of
// Rotate completes it. If the store still uses an older root key of the home, Rotate creates no new root key.
// Instead, it moves the store to the home's current root key.
//
// Other processes that have the store open cannot sign the journal until they reopen the store. Until then they start
// no side effects, and an append that requires a checkpoint fails. Records that they append before the next
// checkpoint are signed with the new key.
//
// Rotate holds a file lock, because two simultaneous rotations could restore an older root key.
func (b *Store) Rotate(ctx context.Context, h home.Home, by string, update func(state.Tx, *Store) error) error {
	unlock, err := lockRoot(ctx, h)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := identity.OpenKeys(h.Root())
	if err != nil {
		return err
	}
	if newest := cmp.Or(b.newer, b.Keys); !now.Signer().Equal(newest.Signer()) {
		return errors.New("another process has rotated the root key in the meantime; check the result and try again")
	}
	next := b.newer
	if next == nil {
		if err := identity.Replaceable(h.Root()); err != nil {
			return err
		}
		if next, err = identity.NextKeys(h.Root()); err != nil {
			return err
		}
	}
	register := b.Authority.WithKeys(next)
	fresh, err := b.Journal.HandOver(ctx, next.Signer(), by, func(tx state.Tx, j *journal.Journal) error {
		if err := b.Authority.SignAgain(tx, register); err != nil {
			return err
		}
		return update(tx, &Store{DB: b.DB, Keys: next, Journal: j, Authority: register})
	})
	if err != nil {
		return err
	}
	if b.newer == nil {
		if err := identity.AdoptNext(h.Root()); err != nil {
			return err
		}
	}
	b.Keys, b.Journal, b.Authority, b.newer, b.apart = next, fresh, register, nil, nil
	return nil
}

// lockWait is the maximum time that a rotation waits for another rotation.
const lockWait = 10 * time.Second

// lockRoot prevents other processes from rotating the root key of a home.
func lockRoot(ctx context.Context, h home.Home) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err = home.Hold(ctx, filepath.Join(h.Dir(), "rotate.lock"))
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("another process is rotating the root key, or was suspended during a rotation: %w", err)
	}
	return unlock, err
}
