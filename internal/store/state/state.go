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
	// it was called, or with ctx's error. It also returns when a second has
	// passed: a commit between a look at the store and the call of Changed
	// delays the next look, and is not missed.
	Changed(ctx context.Context) error
	// Owner names this opening of the store. It holds until Close, or until the
	// process ends, however it ends. After ErrLost it is another one, so whoever
	// writes it down asks for it inside Write.
	Owner() string
	// Alive reports whether an owner still holds the store open.
	Alive(ctx context.Context, owner string) (bool, error)
	// Log is the number of the journal log that this owner writes, and changes
	// with it.
	Log() int64
	// Scrub lets no file of the store hold what was deleted before, or written
	// over. PostgreSQL has that for itself: there it does nothing.
	Scrub(ctx context.Context) error
	// Close ends the ownership.
	Close() error
}

// Tx is a transaction. It belongs to the goroutine that runs f, and ends with f.
// When a statement fails the transaction is lost: later statements fail too, and
// so does Write, also if f hides the error. A conflict that is expected is
// written as ON CONFLICT, or as a condition in WHERE.
type Tx interface {
	// Exec runs one statement and tells how many rows it touched. Arguments are
	// int64, string, []byte or nil.
	Exec(query string, args ...any) (rows int64, err error)
	// Query calls each for every row of a result. An error of each ends it and
	// is returned. The Tx is not used inside each.
	Query(query string, args []any, each func(Row) error) error
}

// Row is a row of a result.
type Row interface {
	// Scan reads the columns, in order, into *int64, *string, *[]byte, which
	// must fit the column's type; NULL becomes the zero value. Bytes are the
	// caller's own.
	Scan(into ...any) error
}

type within struct{}

// Within is a context for code that is asked something inside a transaction, by
// somebody who knows nothing of stores: what it looks at with [Look] is then
// what the transaction sees.
func Within(ctx context.Context, tx Tx) context.Context {
	return context.WithValue(ctx, within{}, tx)
}

// Look runs f on the transaction that ctx carries, or else on a snapshot of db.
// f only reads.
func Look(ctx context.Context, db DB, f func(Tx) error) error {
	if tx, ok := ctx.Value(within{}).(Tx); ok {
		return f(tx)
	}
	return db.Read(ctx, f)
}

// Errors that callers tell apart.
var (
	// ErrNewer says that the store was written by a newer ambit.
	ErrNewer = errors.New("the store was made by a newer version of ambit")
	// ErrNetworkDisk says that a SQLite store would lie on a network file
	// system, where its locks do not hold.
	ErrNetworkDisk = errors.New("a SQLite store needs a local disk")
	// ErrReadOnly says that this user may not write the store.
	ErrReadOnly = errors.New("the store cannot be written")
	// ErrFull says that there is no space left for the store.
	ErrFull = errors.New("there is no space left for the store")
	// ErrLocked says that another process has kept the store from being written
	// for so long that waiting on is no use. Nothing was written.
	ErrLocked = errors.New("the store is locked")
	// ErrMoved says that the store's file was moved, removed or replaced while it
	// was open: what is written to it would be lost.
	ErrMoved = errors.New("the store was moved or removed while it was in use")
	// ErrDamaged says that what is there is not a store, or not any more.
	ErrDamaged = errors.New("the store is damaged")
	// ErrLost says that the connection to the store was lost, and the ownership
	// with it: what this owner had under way is no longer its own. The next
	// Write begins under a new owner. If the loss met the commit itself, it is
	// not known whether the transaction was kept.
	ErrLost = errors.New("the connection to the store was lost")
	// ErrClosed says that the store has been closed.
	ErrClosed = errors.New("the store is closed")
	// ErrTx says that a transaction is used in a way that one of the engines
	// does not offer: after its end, inside Query, or with a type that is not
	// one of the three.
	ErrTx = errors.New("wrong use of a transaction")
)
