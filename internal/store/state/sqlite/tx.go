package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"zombiezen.com/go/sqlite"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
)

// conn is a connection with the statements it knows.
type conn struct {
	*sqlite.Conn
	known map[string]*statement
}

// statement is a prepared statement that is ready to be bound: nothing is left
// from its last use.
type statement struct {
	*sqlite.Stmt
	order []int // for each parameter, the number of its argument
	count int   // of arguments
}

// prepare reads a query once.
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

// tx is what one f sees of a connection. It is as strict as PostgreSQL, so that
// what passes here passes there.
type tx struct {
	ctx  context.Context
	conn *conn
	busy bool  // inside Query
	lost error // why nothing more can be done
}

var _ state.Tx = (*tx)(nil)

// run calls f, and says what became of it also if f hides an error.
func run(ctx context.Context, conn *conn, f func(state.Tx) error) error {
	t := &tx{ctx: ctx, conn: conn}
	defer func() { t.lost = engine.ErrEnded }()
	if err := f(t); err != nil {
		return err
	}
	return t.lost
}

func (t *tx) Exec(query string, args ...any) (rows int64, err error) {
	err = t.query(query, args, nil)
	return int64(t.conn.Changes()), err
}

func (t *tx) Query(query string, args []any, each func(state.Row) error) error {
	return t.query(query, args, each)
}

func (t *tx) query(query string, args []any, each func(state.Row) error) (err error) {
	if t.lost != nil {
		return t.lost
	}
	if t.busy {
		return engine.ErrNested
	}
	// An interrupted statement would take the whole batch with it, so a
	// canceled context is noticed between statements only.
	if t.lost = t.ctx.Err(); t.lost != nil {
		return t.lost
	}
	stmt, err := t.prepare(query, args)
	if err != nil {
		t.lost = explain(err)
		return t.lost
	}
	t.busy = true
	defer func() {
		t.busy = false
		if e := stmt.Reset(); e != nil && err == nil {
			t.lost = explain(e)
			err = t.lost
		}
	}()
	for {
		more, err := stmt.Step()
		if err != nil {
			t.lost = explain(err)
			return t.lost
		}
		if !more {
			return nil
		}
		if each == nil {
			continue
		}
		if err := each(row{stmt.Stmt}); err != nil {
			return err
		}
	}
}

func (t *tx) prepare(query string, args []any) (*statement, error) {
	if err := engine.Check(args); err != nil {
		return nil, err
	}
	stmt, err := t.conn.prepare(query)
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

// number reads a parameter's name, which SQLite takes for a name like any other.
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

// do runs a statement that returns nothing of interest.
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

// ask returns the number a statement answers with.
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
