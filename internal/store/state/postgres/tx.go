package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
)

// line sends statements over a connection, with others ahead of them.
type line struct {
	ctx    context.Context
	limit  time.Duration // for each trip; 0 if ctx bounds them
	conn   *pgx.Conn
	ahead  []string // not sent yet
	failed error    // of the connection or the whole transaction
}

// trip is the context of one exchange with the server. A batch has no limit of its own:
// one that makes progress is not lost, however busy the machine is.
func (l *line) trip() (context.Context, context.CancelFunc) {
	if l.limit == 0 {
		return l.ctx, func() {}
	}
	return context.WithTimeout(l.ctx, l.limit)
}

func (l *line) simple(statements string) error {
	ctx, cancel := l.trip()
	defer cancel()
	return simple(ctx, l.conn, statements)
}

// send runs one statement, after those that go ahead, in one trip.
func (l *line) send(query string, args []any, each func(state.Row) error) (tag string, err error) {
	t := &pgx.Batch{}
	for _, statement := range l.ahead {
		t.Queue(statement)
	}
	t.Queue(query, args...)
	ctx, cancel := l.trip()
	defer cancel()
	results := l.conn.SendBatch(ctx, t)
	defer func() {
		if e := results.Close(); err == nil {
			err = e
		}
		if again(err) || l.conn.IsClosed() {
			l.failed = err
		}
	}()
	for len(l.ahead) > 0 {
		if _, err := results.Exec(); err != nil {
			return "", err
		}
		l.ahead = l.ahead[1:]
	}
	rows, err := results.Query()
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() && each != nil {
		if err := each(row{l.conn.TypeMap(), rows}); err != nil {
			return "", passed{err}
		}
	}
	rows.Close()
	return rows.CommandTag().String(), rows.Err()
}

// lost is why the whole transaction cannot go on, if it cannot.
func (l *line) lost() error {
	switch {
	case l.conn.IsClosed() && l.failed == nil:
		return fmt.Errorf("%w: the connection is closed", state.ErrLost)
	case l.conn.IsClosed():
		return fmt.Errorf("%w: %w", state.ErrLost, l.failed)
	case again(l.failed):
		return fmt.Errorf("%w: %w", engine.ErrAgain, l.failed)
	}
	return l.failed
}

// passed is an error of each, which is not one of the statement.
type passed struct{ error }

// tx is what one f sees of a line.
type tx struct {
	ctx  context.Context
	line *line
	busy bool  // inside Query
	lost error // why nothing more can be done
}

var _ state.Tx = (*tx)(nil)

// run calls f, and says what became of it also if f hides an error.
func run(ctx context.Context, l *line, f func(state.Tx) error) error {
	t := &tx{ctx: ctx, line: l}
	defer func() { t.lost = engine.ErrEnded }()
	if err := f(t); err != nil {
		return err
	}
	return t.lost
}

func (t *tx) Exec(query string, args ...any) (rows int64, err error) {
	tag, err := t.send(query, args, nil)
	return pgconn.NewCommandTag(tag).RowsAffected(), err
}

func (t *tx) Query(query string, args []any, each func(state.Row) error) error {
	_, err := t.send(query, args, each)
	return err
}

func (t *tx) send(query string, args []any, each func(state.Row) error) (tag string, err error) {
	if t.lost != nil {
		return "", t.lost
	}
	if t.busy {
		return "", engine.ErrNested
	}
	// A canceled statement would end the connection, and the ownership with
	// it, so a canceled context is noticed between statements only.
	if t.lost = t.ctx.Err(); t.lost != nil {
		return "", t.lost
	}
	if t.lost = engine.Check(args); t.lost != nil {
		return "", t.lost
	}
	t.busy = true
	defer func() { t.busy = false }()
	tag, err = t.line.send(query, args, each)
	if own, ok := errors.AsType[passed](err); ok {
		return "", own.error
	}
	t.lost = explain(err)
	return tag, t.lost
}

type row struct {
	types *pgtype.Map
	rows  pgx.Rows
}

func (r row) Scan(into ...any) error {
	fields, raw := r.rows.FieldDescriptions(), r.rows.RawValues()
	if len(raw) != len(into) {
		return fmt.Errorf("%w: %d columns are scanned into %d places", state.ErrTx, len(raw), len(into))
	}
	for i, to := range into {
		bytes := false
		switch to := to.(type) {
		case *int64:
			*to = 0
		case *string:
			*to = ""
		case *[]byte:
			*to, bytes = nil, true
		default:
			return fmt.Errorf("%w: column %d is scanned into a %T", state.ErrTx, i+1, to)
		}
		if raw[i] == nil {
			continue
		}
		if oid := fields[i].DataTypeOID; bytes != (oid == pgtype.ByteaOID) {
			return fmt.Errorf("%w: column %d is scanned into a %T", state.ErrTx, i+1, to)
		}
		if err := r.types.Scan(fields[i].DataTypeOID, fields[i].Format, raw[i], to); err != nil {
			return fmt.Errorf("%w: column %d: %w", state.ErrTx, i+1, err)
		}
	}
	return nil
}
