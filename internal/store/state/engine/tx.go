package engine

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/store/state"
)

var (
	errEnded  = fmt.Errorf("%w: it has ended", state.ErrTx)
	errNested = fmt.Errorf("%w: a statement inside Query", state.ErrTx)
)

// A Statement runs one statement of an engine and calls each for every row. It stops
// at the first error of each.
type Statement func(query string, args []any, each func(state.Row) error) (rows int64, err error)

// tx enforces the contract of [state.Tx] for both engines.
type tx struct {
	ctx  context.Context
	run  Statement
	busy bool  // inside Query
	lost error // why every further statement fails
}

// NewTx returns a transaction whose statements run executes.
func NewTx(ctx context.Context, run Statement) state.Tx { return &tx{ctx: ctx, run: run} }

// Run calls f with a transaction. It reports the error of a failed statement even if f
// hides it.
func Run(ctx context.Context, run Statement, f func(state.Tx) error) error {
	t := &tx{ctx: ctx, run: run}
	defer func() { t.lost = errEnded }()
	if err := f(t); err != nil {
		return err
	}
	return t.lost
}

func (t *tx) Exec(query string, args ...any) (rows int64, err error) {
	return t.send(query, args, func(state.Row) error { return nil })
}

func (t *tx) Query(query string, args []any, each func(state.Row) error) error {
	_, err := t.send(query, args, each)
	return err
}

func (t *tx) send(query string, args []any, each func(state.Row) error) (rows int64, err error) {
	if t.lost == nil && t.busy {
		return 0, errNested
	}
	if t.lost == nil {
		// The context is checked only between statements. Interrupting a statement would
		// end the whole batch in SQLite, and the connection that owns the store in
		// PostgreSQL.
		t.lost = cmp.Or(t.ctx.Err(), check(args))
	}
	if t.lost != nil {
		return 0, t.lost
	}
	t.busy = true
	defer func() { t.busy = false }()
	var eachErr error // ends the query, not the transaction
	rows, err = t.run(query, args, func(row state.Row) error {
		eachErr = each(row)
		return eachErr
	})
	if eachErr != nil {
		return 0, eachErr
	}
	t.lost = err
	return rows, err
}

// check refuses arguments that one of the engines would reject or change. SQLite stores
// any text, PostgreSQL only UTF-8 without NUL.
func check(args []any) error {
	for i, arg := range args {
		switch arg := arg.(type) {
		case nil, int64, []byte:
		case string:
			if !utf8.ValidString(arg) || strings.IndexByte(arg, 0) >= 0 {
				return fmt.Errorf("%w: argument $%d is not UTF-8 text without NUL", state.ErrTx, i+1)
			}
		default:
			return fmt.Errorf("%w: argument $%d is a %T", state.ErrTx, i+1, arg)
		}
	}
	return nil
}

// Explain wraps err in the error of package state that it is an instance of, if there
// is one.
func Explain(kind, err error) error {
	if kind == nil {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}
