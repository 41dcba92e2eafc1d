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

// Rotate gives a home a new root, and with it new keys for signing, sealing and hashing.
// The older roots are kept to open sealed data and to verify signatures.
//
// Rotate first writes the new root to a file of its own, then hands the store over in one
// transaction, and then puts the new root in place. The next rotation resumes an
// interrupted one. In the same transaction it calls also, which updates other data that
// depends on the keys. Afterwards b uses the new root. If the store is behind its home,
// Rotate hands it over to the home's root and creates no new one.
//
// Other processes that have the store open can no longer sign its journal until they
// reopen it: they start no side effects, and their records are refused where a checkpoint
// is due. Records that they append before that are signed with the new key.
//
// Only one process at a time may rotate: of two, the slower would restore an older root.
func (b *Store) Rotate(ctx context.Context, h home.Home, by string, also func(state.Tx, *Store) error) error {
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
		return errors.New("another process rotated it meanwhile; check it and try again")
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
	fresh, err := b.Journal.HandOver(ctx, next.Signer(), by, func(tx state.Tx, j *journal.Journal) error {
		return also(tx, &Store{DB: b.DB, Keys: next, Journal: j})
	})
	if err != nil {
		return err
	}
	if b.newer == nil {
		if err := identity.AdoptNext(h.Root()); err != nil {
			return err
		}
	}
	b.Keys, b.Journal, b.newer, b.apart = next, fresh, nil, nil
	return nil
}

// lockWait bounds how long a rotation waits for another one.
const lockWait = 10 * time.Second

// lockRoot prevents other processes from rotating the root of a home.
func lockRoot(ctx context.Context, h home.Home) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err = home.Hold(ctx, filepath.Join(h.Dir(), "rotate.lock"))
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("another process is rotating it, or was stopped during a rotation: %w", err)
	}
	return unlock, err
}
