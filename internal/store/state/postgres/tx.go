package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
)

// line sends statements over a connection, each preceded by the pending statements.
type line struct {
	ctx    context.Context
	limit  time.Duration // for each round trip; 0 if ctx bounds them
	conn   *pgx.Conn
	ahead  []string // pending: sent before the next statement
	failed error    // of the connection or the whole transaction
}

// trip returns the context of one round trip. A batch as a whole has no limit: on a busy
// machine, a batch that makes progress is not lost.
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

// send runs the pending statements and then query in one round trip.
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
			return "", err
		}
	}
	rows.Close()
	return rows.CommandTag().String(), rows.Err()
}

// lost returns why the whole transaction cannot continue, or nil.
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

func (l *line) statement(query string, args []any, each func(state.Row) error) (rows int64, err error) {
	tag, err := l.send(query, args, each)
	return pgconn.NewCommandTag(tag).RowsAffected(), explain(err)
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
