package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"zombiezen.com/go/sqlite"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
)

// explain wraps an error of SQLite or the system in the error of package state that it
// stands for.
func explain(err error) error { return engine.Explain(kind(err), err) }

// errBusy means that another process holds SQLite's own lock: either a program that does
// not use our lock file, or an ambit that was stopped while it opened or closed the store.
var errBusy = fmt.Errorf("%w: another program blocks it. "+
	"Check which programs use this store, and whether one of them is stopped", state.ErrLocked)

func kind(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return state.ErrReadOnly
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, errQuota):
		return state.ErrFull
	}
	if sqlite.ErrCode(err) == sqlite.ResultIOErrSHMSize {
		return state.ErrFull // no space for the index of the write-ahead log
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
