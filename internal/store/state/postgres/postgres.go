// Package postgres is the state that many machines share.
//
//   - An owner is a connection that holds an advisory lock, and all that the
//     owner writes goes through this connection. So an owner that others take
//     for dead cannot write any more: there is no moment in which both hold.
//   - When the connection is lost, what was under way fails with ErrLost, and
//     the next write begins under a new owner with a new log. Whoever writes
//     the owner's name or log therefore asks for them inside f.
//   - Each owner leases a journal log of its own, because one log for all would
//     be one lock for all. A dead owner's log is leased again, so there are no
//     more logs than there were owners at one time. Log 0 is nobody's.
//   - Transactions are serializable: code that was tried with SQLite, where
//     there is one writer, means the same here. Those that meet are run again.
//   - NOTIFY is not used: it takes one lock for the whole database at commit.
//     Waiters look at the server's transaction counter.
//
// The lock and prepared statements belong to a session, so a pooler in front of
// the server has to pool sessions, not transactions.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

const (
	// maxReaders is how many reads run at the same time.
	maxReaders = 4
	// patience is how long the server may take for one statement of a batch before
	// the connection counts as lost.
	patience = 10 * time.Second
	// answerTime is how long it may take to answer at all, where it has nothing to
	// do for that: a connection is made, or tried. A URL may say connect_timeout.
	answerTime = 4 * time.Second
	// workTime is when the server ends a statement that nobody may wait for any
	// more. A step of the schema has as long.
	workTime = 30 * time.Second
	// restTime is how long the connection may rest before it is tried first.
	restTime = time.Second
)

type store struct {
	config *pgx.ConnConfig
	pool   *pgxpool.Pool
	group  *engine.Group
	watch  engine.Watch

	// Used by whoever has the turn to write.
	conn *pgx.Conn // nil when lost
	used time.Time
	met  bool // whether the last batch met another one

	mu     sync.Mutex
	owner  string
	log    int64
	closed bool
}

var _ state.DB = (*store)(nil)

// Open opens the store at a URL, and makes its tables if they are not there.
func Open(ctx context.Context, url string) (state.DB, error) {
	s, err := open(ctx, url, migrations.List())
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", once{explain(err)})
	}
	return s, nil
}

func open(ctx context.Context, url string, list []string) (_ *store, err error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err // it masks the password
	}
	config.MaxConns = maxReaders + 1 // one to look for changes
	config.MinConns = 0
	config.PingTimeout = answerTime
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = answerTime
	}
	config.ConnConfig.DialFunc = dialer.DialContext
	config.ConnConfig.RuntimeParams["application_name"] = "ambit"
	s := &store{config: config.ConnConfig}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if s.conn, err = s.connect(ctx); err != nil {
		return nil, err
	}
	if err := migrate(ctx, s.conn, list); err != nil {
		return nil, err
	}
	if err := s.establish(ctx); err != nil {
		return nil, err
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	s.watch.Look, s.watch.First, s.watch.Longest = s.look, 25*time.Millisecond, 250*time.Millisecond
	s.group = engine.New(s.begin, nil) // it may have to connect first
	return s, nil
}

func (s *store) connect(ctx context.Context) (*pgx.Conn, error) {
	config := s.config.Copy()
	// The planner reads whole tables while they are small. A serializable
	// transaction would then have read what everybody else writes.
	config.RuntimeParams["enable_seqscan"] = "off"
	config.RuntimeParams["statement_timeout"] = fmt.Sprint(workTime.Milliseconds())
	for name, value := range keepAlive {
		config.RuntimeParams[name] = value
	}
	return pgx.ConnectConfig(ctx, config)
}

func (s *store) Write(ctx context.Context, f func(state.Tx) error) error {
	return s.group.Write(ctx, f)
}

func (s *store) Read(ctx context.Context, f func(state.Tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.isClosed() {
		return state.ErrClosed
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return explain(s.orClosed(err))
	}
	defer conn.Release() // ends the connection if it is still in a transaction
	l := &line{ctx: ctx, conn: conn.Conn(), ahead: []string{`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`}}
	defer func() {
		if conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
			err = errors.Join(err, simple(ctx, conn.Conn(), `ROLLBACK`))
		}
	}()
	return run(ctx, l, f)
}

func (s *store) Changed(ctx context.Context) error { return s.watch.Wait(ctx) }

// look returns the server's view of which transactions have ended.
func (s *store) look() (now string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = s.pool.QueryRow(ctx, `SELECT pg_current_snapshot()::text`).Scan(&now)
	return now, explain(err)
}

func (s *store) Owner() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner
}

func (s *store) Log() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log
}

func (s *store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// orClosed is ErrClosed if that is why something failed.
func (s *store) orClosed(err error) error {
	if s.isClosed() {
		return state.ErrClosed
	}
	return err
}

// Scrub leaves the room of dead rows to the server, which vacuums.
func (s *store) Scrub(context.Context) error { return nil }

func (s *store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	ended := s.group.Close()
	s.watch.Close()
	<-ended
	s.release()
	return nil
}

// release lets go of what open took, as far as it came. The server would end
// the ownership with the connection, but a moment later. So a failing goodbye
// does no harm.
func (s *store) release() {
	if s.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = simple(ctx, s.conn, `SELECT pg_advisory_unlock_all()`)
		_ = s.conn.Close(ctx)
	}
	if s.pool != nil {
		s.pool.Close()
	}
}

// migrationLock is held by the one who changes the schema.
const migrationLock = 0x616d626974_01

func migrate(ctx context.Context, conn *pgx.Conn, list []string) error {
	var made bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass('schema_version') IS NOT NULL`).Scan(&made); err != nil {
		return err
	}
	l := &line{ctx: ctx, conn: conn}
	if made {
		version, err := migrations.Version(&tx{ctx: ctx, line: l})
		if err != nil {
			return err
		}
		if behind, err := migrations.Check(version, list); err != nil || !behind {
			return err
		}
	}
	return pgx.BeginFunc(ctx, conn, func(pgx.Tx) error {
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
			return err
		}
		return migrations.Run(&tx{ctx: ctx, line: l}, list)
	})
}
