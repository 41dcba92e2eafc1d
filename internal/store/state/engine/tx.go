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
	errEnded  = fmt.Errorf("%w: the transaction is already finished", state.ErrTx)
	errNested = fmt.Errorf("%w: the callback of Query ran another statement", state.ErrTx)
)

// A Statement runs one SQL statement in an engine. It calls the callback visit for every row and stops at the first
// error from the callback.
type Statement func(query string, args []any, visit func(state.Row) error) (rows int64, err error)

// tx enforces the contract of [state.Tx] for both engines.
type tx struct {
	ctx  context.Context
	run  Statement
	busy bool  // whether a statement is running
	lost error // if not nil, every further statement fails with this error
}

// NewTx returns a transaction that calls exec for each statement.
func NewTx(ctx context.Context, exec Statement) state.Tx { return &tx{ctx: ctx, run: exec} }

// Run calls f with a transaction that calls exec for each statement. If a statement fails, Run returns the statement's
// error even if f returns nil.
func Run(ctx context.Context, exec Statement, f func(state.Tx) error) error {
	t := &tx{ctx: ctx, run: exec}
	defer func() { t.lost = errEnded }()
	if err := f(t); err != nil {
		return err
	}
	return t.lost
}

func (t *tx) Exec(query string, args ...any) (rows int64, err error) {
	return t.send(query, args, func(state.Row) error { return nil })
}

func (t *tx) Query(query string, args []any, visit func(state.Row) error) error {
	_, err := t.send(query, args, visit)
	return err
}

func (t *tx) send(query string, args []any, visit func(state.Row) error) (rows int64, err error) {
	if t.lost == nil && t.busy {
		return 0, errNested
	}
	if t.lost == nil {
		// The context is checked only between statements. Interrupting a statement would roll back the whole batch in
		// SQLite, and would close the owner's connection in PostgreSQL.
		t.lost = cmp.Or(t.ctx.Err(), check(args))
	}
	if t.lost != nil {
		return 0, t.lost
	}
	t.busy = true
	defer func() { t.busy = false }()
	var visitErr error // an error from visit stops the query, but not the transaction
	rows, err = t.run(query, args, func(row state.Row) error {
		visitErr = visit(row)
		return visitErr
	})
	if visitErr != nil {
		return 0, visitErr
	}
	t.lost = err
	return rows, err
}

// check returns an error for arguments that one of the engines would reject or change. For example, SQLite stores any
// string, but PostgreSQL stores only valid UTF-8 without NUL bytes.
func check(args []any) error {
	for i, arg := range args {
		switch arg := arg.(type) {
		case nil, int64, []byte:
		case string:
			if !utf8.ValidString(arg) || strings.IndexByte(arg, 0) >= 0 {
				return fmt.Errorf("%w: argument $%d is not valid UTF-8, or contains a NUL byte", state.ErrTx, i+1)
			}
		default:
			return fmt.Errorf("%w: argument $%d has the unsupported type %T", state.ErrTx, i+1, arg)
		}
	}
	return nil
}

// Explain returns an error that wraps both arguments. The first argument is an error that the state package defines. If
// the first argument is nil, Explain returns err unchanged.
func Explain(kind, err error) error {
	if kind == nil {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}
