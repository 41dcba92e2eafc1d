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

// conn is a connection with a cache of prepared statements. A statement is reset after each use.
type conn struct {
	*sqlite.Conn
	known map[string]*sqlite.Stmt
}

// prepare returns the prepared statement for a query. The parameters must be $1, $2 … in order of appearance. SQLite
// itself would accept parameters with any name, and would number them by their first appearance.
func (c *conn) prepare(query string) (*sqlite.Stmt, error) {
	if stmt := c.known[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := c.Prepare(query)
	if err != nil {
		return nil, err
	}
	for i := range stmt.BindParamCount() {
		if name := stmt.BindParamName(i + 1); name != fmt.Sprintf("$%d", i+1) {
			return nil, fmt.Errorf("%w: parameter %d has the wrong name %q in the query %q", state.ErrTx, i+1, name, query)
		}
	}
	c.known[query] = stmt
	return stmt, nil
}

// statement runs a query. It is as strict as PostgreSQL, because queries must work with both engines.
func (c *conn) statement(query string, args []any, visit func(state.Row) error) (rows int64, err error) {
	stmt, err := c.bind(query, args)
	if err != nil {
		return 0, explain(err)
	}
	defer func() {
		if e := stmt.Reset(); err == nil {
			rows, err = int64(c.Changes()), explain(e)
		}
	}()
	for {
		more, err := stmt.Step()
		if err != nil || !more {
			return 0, explain(err)
		}
		if err := visit(row{stmt}); err != nil {
			return 0, err
		}
	}
}

func (c *conn) bind(query string, args []any) (*sqlite.Stmt, error) {
	stmt, err := c.prepare(query)
	if err != nil {
		return nil, err
	}
	if n := stmt.BindParamCount(); n != len(args) {
		return nil, fmt.Errorf("%w: got %d arguments for the %d parameters of the query %q", state.ErrTx, len(args), n, query)
	}
	for i, arg := range args {
		switch arg := arg.(type) {
		case int64:
			stmt.BindInt64(i+1, arg)
		case string:
			stmt.BindText(i+1, arg)
		case []byte:
			if arg != nil {
				stmt.BindBytes(i+1, arg)
			} else {
				stmt.BindNull(i + 1)
			}
		default:
			stmt.BindNull(i + 1)
		}
	}
	return stmt, nil
}

type row struct{ stmt *sqlite.Stmt }

func (r row) Scan(into ...any) error {
	if n := r.stmt.ColumnCount(); n != len(into) {
		return fmt.Errorf("%w: cannot scan %d columns into %d variables", state.ErrTx, n, len(into))
	}
	for i, to := range into {
		var want sqlite.ColumnType
		kind := r.stmt.ColumnType(i)
		null := kind == sqlite.TypeNull
		switch to := to.(type) {
		case *int64:
			want = sqlite.TypeInteger
			*to = r.stmt.ColumnInt64(i)
		case *string:
			want = sqlite.TypeText
			*to = r.stmt.ColumnText(i)
		case *[]byte:
			want = sqlite.TypeBlob
			*to = nil
			if !null {
				*to = make([]byte, r.stmt.ColumnLen(i))
				r.stmt.ColumnBytes(i, *to)
			}
		default:
			return fmt.Errorf("%w: column %d cannot be scanned into a %T", state.ErrTx, i+1, to)
		}
		if !null && kind != want {
			return fmt.Errorf("%w: column %d has the type %v instead of %v", state.ErrTx, i+1, kind, want)
		}
	}
	return nil
}

// exec runs a statement without arguments and ignores the rows.
func (c *conn) exec(query string) error {
	_, err := c.queryInt(query)
	return err
}

// queryInt runs a statement without arguments. It returns the number in the last row, or 0 if there are no rows.
func (c *conn) queryInt(query string) (n int64, err error) {
	stmt, err := c.prepare(query)
	if err != nil {
		return 0, err
	}
	for {
		more, err := stmt.Step()
		if err != nil {
			return 0, err
		}
		if !more {
			return n, stmt.Reset()
		}
		n = stmt.ColumnInt64(0)
	}
}

// explain wraps an error from SQLite or the system. If the state package defines a matching error, explain wraps that
// error too.
func explain(err error) error { return engine.Explain(kind(err), err) }

// errBusy means that another process holds SQLite's own lock. That process may be a program that ignores the store
// lock. It may also be an ambit process that was suspended while it opened or closed the store.
var errBusy = fmt.Errorf("%w: another process has locked the database. "+
	"Find the processes that use this store, and check whether one of them is suspended or hangs", state.ErrLocked)

// kind returns the error in the state package that matches err, or nil if there is none.
func kind(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return state.ErrReadOnly
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, errQuota):
		return state.ErrFull
	}
	if sqlite.ErrCode(err) == sqlite.ResultIOErrSHMSize {
		return state.ErrFull // no space for the index of SQLite's write-ahead log
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
