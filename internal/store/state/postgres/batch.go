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

// batch is one transaction of the owner's connection. What begins, saves and
// releases is sent ahead of the next statement, not on a trip of its own: a
// member costs one trip for each of its statements, and a batch one more.
//
// A batch has at most 64 members: the server keeps that many savepoints at hand.
type batch struct {
	s    *store
	line *line
	lost error
}

// Serializable transactions that meet are run again, and could meet for ever. So
// all of them share a lock, and one that has failed before takes it for itself:
// it runs alone, and succeeds. It is a lock on a table, because asking for one
// is no query: what the transaction sees is fixed when it has the lock.
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
	if s.met {
		share = alone
	}
	return &batch{s: s, line: &line{ctx: context.Background(), limit: patience, conn: s.conn, ahead: []string{begin, share}}}, nil
}

// ready sees to it that there is a connection, under a new owner if the old one
// is lost. Nobody has a turn yet, so nobody has relied on the old one.
func (s *store) ready() error {
	if s.conn != nil && time.Since(s.used) > restTime && !s.answers() {
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

// answers reports whether there is still a server at the other end.
func (s *store) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return s.conn.Ping(ctx) == nil
}

// drop gives up the ownership.
func (s *store) drop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no goodbye
	s.conn.Close(ctx)
	s.conn = nil
}

func (b *batch) Do(ctx context.Context, f func(state.Tx) error) (err error) {
	l := b.line
	l.ahead = append(l.ahead, save)
	stands := false
	defer func() {
		if !stands {
			b.undo()
		} else {
			l.ahead = append(l.ahead, keep)
		}
		b.lost = l.lost()
		if err != nil && (errors.Is(b.lost, engine.ErrAgain) || errors.Is(b.lost, state.ErrLost)) {
			err = b.lost // whatever f made of it
		}
	}()
	err = run(ctx, l, f)
	stands = err == nil
	return err
}

// undo takes back what a member did. What has not been sent is not sent.
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
	b.s.met = errors.Is(err, engine.ErrAgain)
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
		return fmt.Errorf("%w, and it is not known whether its last transaction was kept: %w", state.ErrLost, err)
	case err != nil:
		return errors.Join(b.line.lost(), explain(err))
	case tag != commit: // what the server says of a transaction that had failed
		return fmt.Errorf("the transaction was not committed: %s", tag)
	}
	return nil
}

// simple runs statements that take and return nothing, in one trip and without
// preparing them, which a failed transaction does not allow.
func simple(ctx context.Context, conn *pgx.Conn, statements string) error {
	_, err := conn.PgConn().Exec(ctx, statements).ReadAll()
	return err
}
