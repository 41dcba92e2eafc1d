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

// Rotate gives a home a new root, and with it new keys that sign, seal and hash.
// The older roots are kept, to read what lies sealed and to check what was
// signed. The new root is written down first, then the store is handed over in
// one transaction, and only then the new root takes its place: a rotation that is
// broken off is taken up where it ended by the next one. Also does, in that
// transaction, what others have to do about keys. Afterwards the books are under
// the new root. Other processes that have the store open can no longer sign its
// journal until they begin anew: they begin no effect, and a record of theirs is
// refused where a checkpoint is due. What they append before that, the new key
// signs. A store that is behind its home is handed over to the root that is there,
// and no new one is made.
//
// One process at a time rotates the root of a home: of two, the slower would put an
// older root back.
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
		return errors.New("it was rotated meanwhile; look again")
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

// lockWait is how long a rotation waits for another.
const lockWait = 10 * time.Second

// lockRoot keeps the root of a home from being rotated by others.
func lockRoot(ctx context.Context, h home.Home) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err = home.Hold(ctx, filepath.Join(h.Dir(), "rotate.lock"))
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("another process is rotating it, or was stopped while it did: %w", err)
	}
	return unlock, err
}
