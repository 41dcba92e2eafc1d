// Package state stores data that must outlive a process: calls in progress, results to replay, limits, approvals,
// grants, keys and the journal.
//
// There is one schema and one interface, with two engines. SQLite is for one machine, where all processes open the
// same file. Its write transactions hold a lock on a separate file, because SQLite's own lock makes some processes
// wait far too long. PostgreSQL is for several machines.
//
// Each package that stores data, such as package journal, contains its own SQL. The SQL must work with both engines.
// Parameters are $1, $2 … in order of appearance. Types are TEXT, BIGINT and BYTEA. Times are Unix microseconds.
package state

import (
	"context"
	"errors"
	"time"
)

// DB is a store.
type DB interface {
	// Write runs f in a transaction. When Write returns nil, the transaction is on disk. If f fails, Write undoes the
	// changes of f and returns the error. Transactions that wait at the same time are committed together. Write can run f
	// more than once. If f changes variables, it must therefore reset them at its start. It must have no other effects
	// outside the transaction.
	Write(ctx context.Context, f func(Tx) error) error
	// Read runs f on one snapshot of the store.
	Read(ctx context.Context, f func(Tx) error) error
	// Changed waits until a process may have committed something, but at most one second. It then returns nil, and the
	// caller must read the store again. If a commit happens just before the call, Changed may wait the whole second. If
	// ctx is done, Changed returns the error of ctx.
	Changed(ctx context.Context) error
	// Announce announces a change of rows that processes keep in memory. All processes that have the store open can see the
	// announcement. Announce is called after the commit.
	Announce() error
	// Announced returns the current announcements. Rows that were read after a call of Announced are current as long as
	// its result is the same. If ok is false, the announcements are unknown, and the rows must be read again.
	Announced() (n News, ok bool)
	// Owner returns the owner name that this process got when it opened the store. The name is valid until Close or the
	// end of the process. After ErrLost, the owner has a new name. Code that stores the name must therefore call Owner
	// inside Write.
	Owner() string
	// Alive reports whether the owner with the given name still has the store open.
	Alive(ctx context.Context, owner string) (bool, error)
	// Log returns the number of the journal log to which this owner appends. A new owner can have a different log.
	Log() int64
	// Scrub removes deleted and overwritten data from every file of the store. With PostgreSQL, Scrub does nothing,
	// because the server removes the data itself.
	Scrub(ctx context.Context) error
	// Close closes the store. Alive then returns false for this owner.
	Close() error
}

// News stands for all announcements so far. It changes with each announcement.
type News struct{ Size, Time int64 }

// Tx is a transaction. It is valid only in the function that was passed to Write or Read, and only in the goroutine
// that runs this function. If a statement fails, all later statements fail too. Write also fails, even if the function
// ignores the error. Expected conflicts must be handled in SQL, with ON CONFLICT or a WHERE condition.
type Tx interface {
	// Exec runs one statement and returns the number of affected rows. Each argument must be an int64, a string, a
	// []byte or nil.
	Exec(query string, args ...any) (rows int64, err error)
	// Query runs one statement and calls the callback visit for every row of the result. If the callback returns an
	// error, Query stops and returns the error. The callback must not use the Tx.
	Query(query string, args []any, visit func(Row) error) error
}

// Row is a row of a result.
type Row interface {
	// Scan copies the columns of the row, in order, to the variables that the arguments point to. Each argument must
	// be an *int64, a *string or a *[]byte that matches the type of the column. NULL becomes the zero value.
	Scan(into ...any) error
}

type within struct{}

// Within returns a context that contains a transaction. The context can be passed through code that does not use
// stores. [Look] then reads in that transaction.
func Within(ctx context.Context, tx Tx) context.Context {
	return context.WithValue(ctx, within{}, tx)
}

// Look runs f in the transaction that ctx contains. If ctx contains no transaction, Look runs f on a snapshot of db.
// The function f must only read.
func Look(ctx context.Context, db DB, f func(Tx) error) error {
	if tx, ok := ctx.Value(within{}).(Tx); ok {
		return f(tx)
	}
	return db.Read(ctx, f)
}

// Errors that callers distinguish.
var (
	// ErrNewer means that a newer version of ambit created or upgraded the store.
	ErrNewer = errors.New("the store was created or upgraded by a newer version of ambit")
	// ErrNetworkDisk means that the file of a SQLite store would be on a network file system. File locks do not work
	// there.
	ErrNetworkDisk = errors.New("a SQLite store needs a local disk")
	// ErrReadOnly means that the current user has no permission to write to the store.
	ErrReadOnly = errors.New("the store cannot be written to")
	// ErrFull means that there is no space left for the store.
	ErrFull = errors.New("there is no space left for the store")
	// ErrLocked means that another process has held the store lock for too long. The transaction was not committed.
	ErrLocked = errors.New("the store is locked")
	// ErrMoved means that the store's file was moved, removed or replaced while the store was open. Writes to the
	// file would be lost.
	ErrMoved = errors.New("the store was moved or removed while it was in use")
	// ErrDamaged means that the file is damaged or is not a store.
	ErrDamaged = errors.New("the store is damaged")
	// ErrLost means that the connection to the store was lost. Other processes now consider this owner dead and can
	// take over its work in progress. The next Write gets a new owner name. If the connection was lost during a commit,
	// it is unknown whether the transaction was committed.
	ErrLost = errors.New("the connection to the store was lost")
	// ErrClosed means that the store is closed.
	ErrClosed = errors.New("the store is closed")
	// ErrTx means that code uses a transaction incorrectly. For example, the code uses a transaction that has ended,
	// runs a statement in the callback of Query, or passes an argument of an unsupported type.
	ErrTx = errors.New("a transaction is used incorrectly")
)

// Micros converts a time to Unix microseconds, the format of times in the store. The zero time becomes 0.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Instant converts the result of Micros back to a time.
func Instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
