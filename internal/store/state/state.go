// Package state stores data that must outlive a process: calls in progress, results to
// replay, limits, approvals, grants, keys and the journal.
//
// There is one schema, one interface and two engines. SQLite serves one machine: every
// process opens the same file, and each write transaction runs under a lock file, because
// waiting for SQLite's own lock starves processes. PostgreSQL serves many machines.
// Packages with stored data (journal, limit, approval …) own their SQL, which is written
// once for both engines: parameters are $1, $2 … in order of appearance, types are TEXT,
// BIGINT and BYTEA, times are Unix microseconds.
package state

import (
	"context"
	"errors"
	"time"
)

// DB is a store.
type DB interface {
	// Write runs f in a transaction that is durable when Write returns nil. If f fails,
	// Write undoes its changes and returns its error. Transactions that wait at the same
	// time are committed together, and f may run more than once. f must therefore have no
	// effects except through its Tx and variables that it resets at its start.
	Write(ctx context.Context, f func(Tx) error) error
	// Read runs f on one snapshot of the store.
	Read(ctx context.Context, f func(Tx) error) error
	// Changed returns when any process may have committed something since the call, or
	// with ctx's error. It also returns after a second: a commit between a caller's read
	// and its call of Changed delays the next read, but is not missed.
	Changed(ctx context.Context) error
	// Owner returns the name of this opening of the store. It is valid until Close or the
	// end of the process. After ErrLost there is a new owner, so code that stores the name
	// must call Owner inside Write.
	Owner() string
	// Alive reports whether an owner still has the store open.
	Alive(ctx context.Context, owner string) (bool, error)
	// Log returns the number of the journal log that this owner writes. It changes with
	// the owner.
	Log() int64
	// Scrub removes deleted and overwritten data from every file of the store. With
	// PostgreSQL it does nothing: the server does this itself.
	Scrub(ctx context.Context) error
	// Close ends the ownership.
	Close() error
}

// Tx is a transaction. It belongs to the goroutine that runs f and ends with f. A failed
// statement ends the transaction: later statements fail, and so does Write, even if f
// hides the error. SQL handles expected conflicts with ON CONFLICT or a WHERE condition.
type Tx interface {
	// Exec runs one statement and returns the number of affected rows. Arguments are
	// int64, string, []byte or nil.
	Exec(query string, args ...any) (rows int64, err error)
	// Query calls each for every row of a result. An error of each ends the query and is
	// returned. each must not use the Tx.
	Query(query string, args []any, each func(Row) error) error
}

// Row is a row of a result.
type Row interface {
	// Scan copies the columns, in order, into *int64, *string or *[]byte. The type must
	// match the column's type. NULL becomes the zero value.
	Scan(into ...any) error
}

type within struct{}

// Within returns a context that carries a transaction through code that knows nothing of
// stores. [Look] then reads in that transaction.
func Within(ctx context.Context, tx Tx) context.Context {
	return context.WithValue(ctx, within{}, tx)
}

// Look runs f on the transaction that ctx carries, or else on a snapshot of db. f must
// only read.
func Look(ctx context.Context, db DB, f func(Tx) error) error {
	if tx, ok := ctx.Value(within{}).(Tx); ok {
		return f(tx)
	}
	return db.Read(ctx, f)
}

// Errors that callers distinguish.
var (
	// ErrNewer means that a newer ambit wrote the store.
	ErrNewer = errors.New("the store was made by a newer version of ambit")
	// ErrNetworkDisk means that a SQLite store would be on a network file system, where
	// its locks do not work.
	ErrNetworkDisk = errors.New("a SQLite store needs a local disk")
	// ErrReadOnly means that this user may not write the store.
	ErrReadOnly = errors.New("the store cannot be written")
	// ErrFull means that there is no space left for the store.
	ErrFull = errors.New("there is no space left for the store")
	// ErrLocked means that another process has held the lock for too long. Nothing was
	// written.
	ErrLocked = errors.New("the store is locked")
	// ErrMoved means that the store's file was moved, removed or replaced while it was
	// open. Writes to it would be lost.
	ErrMoved = errors.New("the store was moved or removed while it was in use")
	// ErrDamaged means that the file is damaged or is not a store.
	ErrDamaged = errors.New("the store is damaged")
	// ErrLost means that the connection to the store was lost, and with it the ownership:
	// this owner's work in progress is no longer its own. The next Write begins under a
	// new owner. If the connection was lost during the commit, the transaction may or may
	// not be committed.
	ErrLost = errors.New("the connection to the store was lost")
	// ErrClosed means that the store has been closed.
	ErrClosed = errors.New("the store is closed")
	// ErrTx means that a transaction is used in a way that one of the engines does not
	// support: after its end, inside Query, or with an unsupported type.
	ErrTx = errors.New("wrong use of a transaction")
)

// Micros returns a time as the store keeps it. The zero time is 0.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Instant is the inverse of Micros.
func Instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
