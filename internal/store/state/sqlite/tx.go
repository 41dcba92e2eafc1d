package sqlite

import (
	"errors"
	"fmt"
	"strconv"

	"zombiezen.com/go/sqlite"

	"github.com/ambit-run/ambit/internal/store/state"
)

// conn is a connection with its prepared statements.
type conn struct {
	*sqlite.Conn
	known map[string]*statement
}

// statement is a prepared statement. It is reset after each use.
type statement struct {
	*sqlite.Stmt
	order []int // for each parameter, the number of its argument
	count int   // of arguments
}

// prepare returns the prepared statement of a query.
func (c *conn) prepare(query string) (*statement, error) {
	if s := c.known[query]; s != nil {
		return s, nil
	}
	stmt, err := c.Prepare(query)
	if err != nil {
		return nil, err
	}
	s := &statement{Stmt: stmt, order: make([]int, stmt.BindParamCount())}
	for i := range s.order {
		if s.order[i], err = number(stmt.BindParamName(i + 1)); err != nil {
			return nil, err
		}
		s.count = max(s.count, s.order[i])
	}
	c.known[query] = s
	return s, nil
}

// statement runs a query. It is as strict as PostgreSQL, so that code that works on
// SQLite also works there.
func (c *conn) statement(query string, args []any, each func(state.Row) error) (rows int64, err error) {
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
		if err := each(row{stmt.Stmt}); err != nil {
			return 0, err
		}
	}
}

func (c *conn) bind(query string, args []any) (*statement, error) {
	stmt, err := c.prepare(query)
	if err != nil {
		return nil, err
	}
	if stmt.count != len(args) {
		return nil, fmt.Errorf("%w: %d arguments, but %d parameters in %q", state.ErrTx, len(args), stmt.count, query)
	}
	for i, n := range stmt.order {
		switch arg := args[n-1].(type) {
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

// number returns the number in a parameter's name. SQLite itself would accept any name.
func number(name string) (int, error) {
	if len(name) > 1 && name[0] == '$' {
		if n, err := strconv.Atoi(name[1:]); err == nil && n > 0 {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: parameters are $1, $2 …, not %q", state.ErrTx, name)
}

type row struct{ stmt *sqlite.Stmt }

func (r row) Scan(into ...any) error {
	if n := r.stmt.ColumnCount(); n != len(into) {
		return fmt.Errorf("%w: %d columns are scanned into %d places", state.ErrTx, n, len(into))
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
			return fmt.Errorf("%w: column %d is scanned into a %T", state.ErrTx, i+1, to)
		}
		if !null && kind != want {
			return fmt.Errorf("%w: column %d holds %v, not %v", state.ErrTx, i+1, kind, want)
		}
	}
	return nil
}

// do runs a statement and ignores its rows.
func (c *conn) do(query string) error {
	stmt, err := c.prepare(query)
	if err != nil {
		return err
	}
	for {
		more, err := stmt.Step()
		if err != nil {
			return err
		}
		if !more {
			return stmt.Reset()
		}
	}
}

// ask returns the number in the first row of a result.
func (c *conn) ask(query string) (int64, error) {
	stmt, err := c.prepare(query)
	if err != nil {
		return 0, err
	}
	more, err := stmt.Step()
	if err != nil {
		return 0, err
	}
	if !more {
		return 0, errors.New("no answer to " + query)
	}
	n := stmt.ColumnInt64(0)
	return n, stmt.Reset()
}
