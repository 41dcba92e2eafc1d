package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"zombiezen.com/go/sqlite"

	"github.com/ambit-run/ambit/internal/store/state"
)

// explain puts a known error in front of what the engine or the system said.
func explain(err error) error {
	known := kind(err)
	if known == nil {
		return err
	}
	return fmt.Errorf("%w: %w", known, err)
}

// errBusy is met where somebody keeps SQLite's own lock: a program that knows
// nothing of ours, or one that was stopped while it opened or closed the store.
var errBusy = fmt.Errorf("%w: another program keeps it from being used. See which programs use this store, and whether one of them is stopped", state.ErrLocked)

func kind(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return state.ErrReadOnly
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, errQuota):
		return state.ErrFull
	}
	if sqlite.ErrCode(err) == sqlite.ResultIOErrSHMSize {
		return state.ErrFull // there was no room for the index of the log
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultReadOnly, sqlite.ResultPerm, sqlite.ResultCantOpen:
		return state.ErrReadOnly
	case sqlite.ResultBusy:
		return errBusy
	case sqlite.ResultFull:
		return state.ErrFull
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return state.ErrDamaged
	}
	return nil
}
