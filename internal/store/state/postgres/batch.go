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

// batch is one transaction on the owner's connection. BEGIN, SAVEPOINT and RELEASE are sent together with the next
// statement. Each statement of a member needs one round trip, and the batch needs one more.
//
// A batch has at most 64 members, because the server caches 64 savepoints per transaction.
type batch struct {
	s    *store
	line *pipeline
	lost error
}

// A serializable transaction is repeated after a conflict, and it could conflict again each time. Every transaction
// therefore takes a shared lock on a table. After a conflict, the next transaction takes the lock exclusively, so that
// it runs alone and succeeds. LOCK TABLE does not create the snapshot of the transaction, so the snapshot is created
// only after the lock is acquired.
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
	if err := s.ensureConn(); err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrLost, explain(err))
	}
	share := together
	if s.conflicted {
		share = alone
	}
	ahead := []string{begin, share}
	return &batch{s: s, line: &pipeline{ctx: context.Background(), limit: roundTripLimit, conn: s.conn, ahead: ahead}}, nil
}

// ensureConn makes sure that there is a working connection. If it opens a new connection, the store gets a new owner
// name. This is safe, because no member of the batch has used the old owner name yet.
func (s *store) ensureConn() error {
	if s.conn != nil && time.Since(s.used) > idleTime && !s.ping() {
		s.drop()
	}
	if s.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), roundTripLimit)
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

func (s *store) ping() bool {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return s.conn.Ping(ctx) == nil
}

// drop closes the connection. The server then releases the owner's advisory lock, so other processes consider the owner
// dead.
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
			err = b.lost // b.lost replaces the error that f returned
		}
	}()
	err = engine.Run(ctx, l.statement, f)
	ok = err == nil
	return err
}

// undo rolls back the changes of a member. If the savepoint was not sent yet, undo only removes it from the pending
// statements.
func (b *batch) undo() {
	l := b.line
	if n := len(l.ahead); n > 0 && l.ahead[n-1] == save {
		l.ahead = l.ahead[:n-1]
		return
	}
	if l.lost() == nil {
		l.failed = l.runSimple(undo)
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
		err = errors.Join(err, b.line.runSimple(rollback))
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
		return fmt.Errorf("%w; it is unknown whether the last transaction was committed: %w", state.ErrLost, err)
	case err != nil:
		return errors.Join(b.line.lost(), explain(err))
	case tag != commit: // the server responds to COMMIT with ROLLBACK if the transaction has failed
		return fmt.Errorf("the transaction was not committed: the server responded with %s", tag)
	}
	return nil
}

// runSimple runs statements that have no arguments and return no rows. It needs one round trip. The statements are not
// prepared, because the server cannot prepare statements in a failed transaction.
func runSimple(ctx context.Context, conn *pgx.Conn, statements string) error {
	_, err := conn.PgConn().Exec(ctx, statements).ReadAll()
	return err
}
