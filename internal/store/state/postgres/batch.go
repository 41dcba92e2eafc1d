package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
)

// batch is one transaction on the owner's connection. BEGIN, SAVEPOINT and RELEASE are
// sent together with the next statement. A member therefore costs one round trip per
// statement, and a batch costs one more.
//
// A batch has at most 64 members because the server caches that many savepoints.
type batch struct {
	s    *store
	line *line
	lost error
}

// Serializable transactions that conflict run again, and could conflict for ever. So all
// of them share a table lock, and a transaction that failed before takes the lock
// exclusively: it runs alone and succeeds. LOCK TABLE is not a query, so the
// transaction's snapshot is taken only once it has the lock.
const (
	begin    = `BEGIN ISOLATION LEVEL SERIALIZABLE`
	together = `LOCK TABLE schema_version IN ROW SHARE MODE`
	alone    = `LOCK TABLE schema_version IN EXCLUSIVE MODE`
	save     = `SAVEPOINT member`
	keep     = `RELEASE SAVEPOINT member`
	undo     = `ROLLBACK TO SAVEPOINT member; RELEASE SAVEPOINT member`
	commit   = `COMMIT`
	rollback = `ROLLBACK`
)

func (s *store) begin() (engine.Batch, error) {
	if err := s.ready(); err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrLost, explain(err))
	}
	share := together
	if s.conflicted {
		share = alone
	}
	ahead := []string{begin, share}
	return &batch{s: s, line: &line{ctx: context.Background(), limit: patience, conn: s.conn, ahead: ahead}}, nil
}

// ready connects if there is no working connection, and becomes a new owner. No member
// has run yet, so none has relied on the old owner.
func (s *store) ready() error {
	if s.conn != nil && time.Since(s.used) > restTime && !s.ping() {
		s.drop()
	}
	if s.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	s.conn = conn
	if err := s.establish(ctx); err != nil {
		s.drop()
		return err
	}
	return nil
}

// ping reports whether the server still answers.
func (s *store) ping() bool {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return s.conn.Ping(ctx) == nil
}

// drop closes the connection and with it ends the ownership.
func (s *store) drop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // do not send a termination message
	s.conn.Close(ctx)
	s.conn = nil
}

func (b *batch) Do(ctx context.Context, f func(state.Tx) error) (err error) {
	l := b.line
	l.ahead = append(l.ahead, save)
	ok := false
	defer func() {
		if !ok {
			b.undo()
		} else {
			l.ahead = append(l.ahead, keep)
		}
		b.lost = l.lost()
		if err != nil && (errors.Is(b.lost, engine.ErrAgain) || errors.Is(b.lost, state.ErrLost)) {
			err = b.lost // even if f returned another error
		}
	}()
	err = engine.Run(ctx, l.statement, f)
	ok = err == nil
	return err
}

// undo rolls back a member's changes. A savepoint that was not sent yet is dropped.
func (b *batch) undo() {
	l := b.line
	if n := len(l.ahead); n > 0 && l.ahead[n-1] == save {
		l.ahead = l.ahead[:n-1]
		return
	}
	if l.lost() == nil {
		l.failed = l.simple(undo)
	}
}

func (b *batch) Lost() error { return b.lost }

func (b *batch) End(members int) (err error) {
	conn := b.line.conn
	b.s.used = time.Now()
	switch open := conn.PgConn().TxStatus() != 'I'; {
	case b.lost != nil:
		err = b.lost
	case open && members > 0:
		err = b.commit()
	}
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		err = errors.Join(err, b.line.simple(rollback))
	}
	b.s.conflicted = errors.Is(err, engine.ErrAgain)
	if conn.IsClosed() {
		b.s.drop()
	} else if err == nil && members > 0 {
		b.s.watch.Wake()
	}
	return err
}

func (b *batch) commit() error {
	tag, err := b.line.send(commit, nil, nil)
	switch {
	case b.line.conn.IsClosed():
		return fmt.Errorf("%w; its last transaction may or may not be committed: %w", state.ErrLost, err)
	case err != nil:
		return errors.Join(b.line.lost(), explain(err))
	case tag != commit: // the server answers ROLLBACK for a failed transaction
		return fmt.Errorf("the transaction was not committed: %s", tag)
	}
	return nil
}

// simple runs statements without arguments and results in one round trip. It does not
// prepare them: a failed transaction does not allow that.
func simple(ctx context.Context, conn *pgx.Conn, statements string) error {
	_, err := conn.PgConn().Exec(ctx, statements).ReadAll()
	return err
}
