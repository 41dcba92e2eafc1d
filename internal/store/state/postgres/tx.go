package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
)

// pipeline sends statements over a connection. Each statement is sent together with the pending statements.
type pipeline struct {
	ctx    context.Context
	limit  time.Duration // the time limit of each round trip; if 0, only the first answer has a limit, roundTripLimit
	conn   *pgx.Conn
	ahead  []string // the pending statements, which are sent before the next statement
	failed error    // the error that closed the connection or aborted the transaction
}

// errSilent means that the server did not answer a read in time.
var errSilent = fmt.Errorf("the database did not answer within %v", roundTripLimit)

// tripContext returns the context for one round trip, and a function to call after the server's first answer. Each
// round trip of a batch has a time limit, but the whole batch does not. A slow batch on a busy machine therefore does
// not fail while it makes progress. A read has a time limit only until its first answer, because a person can read a
// long result slowly.
func (l *pipeline) tripContext() (ctx context.Context, answered func(), cancel func()) {
	if l.limit > 0 {
		ctx, cancel := context.WithTimeout(l.ctx, l.limit)
		return ctx, func() {}, cancel
	}
	ctx, end := context.WithCancelCause(l.ctx)
	timer := time.AfterFunc(roundTripLimit, func() { end(errSilent) })
	return ctx, func() { timer.Stop() }, func() { timer.Stop(); end(nil) }
}

func (l *pipeline) runSimple(statements string) error {
	ctx, _, cancel := l.tripContext()
	defer cancel()
	return runSimple(ctx, l.conn, statements)
}

// send runs the pending statements and then the query in one round trip.
func (l *pipeline) send(query string, args []any, visit func(state.Row) error) (tag string, err error) {
	t := &pgx.Batch{}
	for _, statement := range l.ahead {
		t.Queue(statement)
	}
	t.Queue(query, args...)
	ctx, answered, cancel := l.tripContext()
	defer cancel()
	results := l.conn.SendBatch(ctx, t)
	defer func() {
		if e := results.Close(); err == nil {
			err = e
		}
		if err != nil && context.Cause(ctx) == errSilent {
			err = errSilent
		}
		if isConflict(err) || l.conn.IsClosed() {
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
	answered()
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() && visit != nil {
		if err := visit(row{l.conn.TypeMap(), rows}); err != nil {
			return "", err
		}
	}
	rows.Close()
	return rows.CommandTag().String(), rows.Err()
}

// lost returns the reason why the whole transaction cannot continue, or nil.
func (l *pipeline) lost() error {
	switch {
	case l.conn.IsClosed() && l.failed == nil:
		return fmt.Errorf("%w: the connection is closed", state.ErrLost)
	case l.conn.IsClosed():
		return fmt.Errorf("%w: %w", state.ErrLost, l.failed)
	case isConflict(l.failed):
		return fmt.Errorf("%w: %w", engine.ErrAgain, l.failed)
	}
	return l.failed
}

func (l *pipeline) statement(query string, args []any, visit func(state.Row) error) (rows int64, err error) {
	tag, err := l.send(query, args, visit)
	return pgconn.NewCommandTag(tag).RowsAffected(), explain(err)
}

type row struct {
	types *pgtype.Map
	rows  pgx.Rows
}

func (r row) Scan(into ...any) error {
	fields, raw := r.rows.FieldDescriptions(), r.rows.RawValues()
	if len(raw) != len(into) {
		return fmt.Errorf("%w: cannot scan %d columns into %d variables", state.ErrTx, len(raw), len(into))
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
			return fmt.Errorf("%w: column %d cannot be scanned into a %T", state.ErrTx, i+1, to)
		}
		if raw[i] == nil {
			continue
		}
		if oid := fields[i].DataTypeOID; bytes != (oid == pgtype.ByteaOID) {
			return fmt.Errorf("%w: column %d cannot be scanned into a %T", state.ErrTx, i+1, to)
		}
		if err := r.types.Scan(fields[i].DataTypeOID, fields[i].Format, raw[i], to); err != nil {
			return fmt.Errorf("%w: column %d: %w", state.ErrTx, i+1, err)
		}
	}
	return nil
}

func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// isConflict reports whether err means that a transaction conflicted and can be repeated.
func isConflict(err error) bool {
	c := code(err)
	return c == "40001" || c == "40P01" // serialization failure, deadlock
}

var kinds = map[string]error{
	"25006": state.ErrReadOnly, // a read-only server
	"42501": state.ErrReadOnly, // insufficient privilege
	"53100": state.ErrFull,
	"XX001": state.ErrDamaged,
	"XX002": state.ErrDamaged,
}

// explain wraps an error from the server. If the state package defines a matching error, explain wraps that error too.
func explain(err error) error {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = oneLine{err}
	}
	return engine.Explain(kinds[code(err)], err)
}

// oneLine is an error whose text is one line and contains each line of the original text only once. pgx writes a line
// for each attempt to connect, and can report the same failure twice, because it tries with and without TLS.
type oneLine struct{ error }

func (e oneLine) Error() string {
	var lines []string
	for line := range strings.SplitSeq(e.error.Error(), "\n") {
		if line = strings.TrimSpace(line); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(lines[0] + " " + strings.Join(lines[1:], "; "))
}

func (e oneLine) Unwrap() error { return e.error }
