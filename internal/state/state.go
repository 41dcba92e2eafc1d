// Package state keeps what must outlive a process: calls under way, answers to
// repeat, limits, approvals, grants, keys, and the journal.
//
// There is one schema and one interface, and two engines. SQLite serves one
// machine: every process opens the same file, and each write transaction runs
// under a lock file, because waiting for SQLite's own lock starves processes.
// PostgreSQL serves many machines. The rooms that keep something (journal,
// limit, approval …) own their SQL, which is written once for both: parameters
// are $1, $2 … in order of appearance, types are TEXT, BIGINT and BYTEA, times
// are Unix microseconds.
package state

import (
	"context"
	"errors"
)

// DB is a store.
type DB interface {
	// Write runs f in a transaction that is durable when Write returns nil. An
	// error of f undoes all that f did, and Write returns it. Transactions that
	// wait at the same time are committed together, and f may be run more than
	// once, so f does nothing but use its Tx and set variables that it resets
	// at its start.
	Write(ctx context.Context, f func(Tx) error) error
	// Read runs f on one snapshot of the store.
	Read(ctx context.Context, f func(Tx) error) error
	// Changed returns when something may have been committed, by anybody, since
	// it was called, or with ctx's error.
	Changed(ctx context.Context) error
	// Owner names this opening of the store. It holds until Close, or until the
	// process ends, however it ends.
	Owner() string
	// Alive reports whether an owner still holds the store open.
	Alive(ctx context.Context, owner string) (bool, error)
	// Log is the number of the journal log that this owner writes.
	Log() int64
	// Close ends the ownership.
	Close() error
}

// Tx is a transaction.
type Tx interface {
	// Exec runs one statement and tells how many rows it touched. Arguments are
	// int64, string, []byte or nil.
	Exec(query string, args ...any) (rows int64, err error)
	// Query calls each for every row of a result. An error of each ends it and
	// is returned.
	Query(query string, args []any, each func(Row) error) error
}

// Row is a row of a result.
type Row interface {
	// Scan reads the columns, in order, into *int64, *string, *[]byte; NULL
	// becomes the zero value. Bytes are the caller's own.
	Scan(into ...any) error
}

// Errors that callers tell apart.
var (
	// ErrNewer says that the store was written by a newer ambit.
	ErrNewer = errors.New("the store was made by a newer version of ambit")
	// ErrNetworkDisk says that a SQLite store would lie on a network file
	// system, where its locks do not hold.
	ErrNetworkDisk = errors.New("a SQLite store needs a local disk")
	// ErrClosed says that the store has been closed.
	ErrClosed = errors.New("the store is closed")
)
