// Package postgres implements a store that many machines share.
//
//   - An owner is a connection that holds an advisory lock. The owner writes only
//     through this connection, so an owner that other processes consider dead can no
//     longer write.
//   - When the connection is lost, the writes in progress fail with ErrLost. The next
//     write begins under a new owner with a new log. Code that stores the owner's name
//     or log must therefore read them inside f.
//   - Each owner leases its own journal log, because a shared log would be a shared
//     lock. The log of a dead owner is leased again, so the number of logs is the
//     largest number of simultaneous owners. Log 0 has no owner.
//   - Transactions are serializable, so code behaves as on SQLite, which has one writer.
//     Conflicting transactions run again.
//   - NOTIFY is not used: it takes a lock on the whole database at commit. Waiters poll
//     the server's transaction counter.
//
// The lock and the prepared statements belong to a session, so a pooler in front of the
// server must pool sessions, not transactions.
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
	// maxReaders bounds how many reads run at the same time.
	maxReaders = 4
	// patience bounds the time of one statement of a batch; after it the connection
	// counts as lost.
	patience = 10 * time.Second
	// answerTime bounds connecting and pings. The URL can set connect_timeout instead.
	answerTime = 4 * time.Second
	// workTime is the server's statement timeout. It also bounds a schema step.
	workTime = 30 * time.Second
	// restTime is how long a connection may be idle before it is pinged ahead of a write.
	restTime = time.Second
)

type store struct {
	config *pgx.ConnConfig
	pool   *pgxpool.Pool
	group  *engine.Group
	watch  engine.Watch

	// Used only by the goroutine that leads a batch.
	conn       *pgx.Conn // nil when lost
	used       time.Time
	conflicted bool // the last batch conflicted with another one

	mu     sync.Mutex
	owner  string
	log    int64
	closed bool
}

var _ state.DB = (*store)(nil)

// Open opens the store at a URL and creates missing tables.
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
		return nil, err // pgx masks the password
	}
	config.MaxConns = maxReaders + 1 // one polls for commits
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
	s.group = engine.New(s.begin, nil) // no try: begin may have to connect
	return s, nil
}

func (s *store) connect(ctx context.Context) (*pgx.Conn, error) {
	config := s.config.Copy()
	// The planner scans small tables completely. A serializable transaction would then
	// conflict with every other writer of the table.
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
	return engine.Run(ctx, l.statement, f)
}

func (s *store) Changed(ctx context.Context) error { return s.watch.Wait(ctx) }

// look returns the server's current snapshot, which changes with every commit.
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

// orClosed returns ErrClosed in place of err if the store is closed.
func (s *store) orClosed(err error) error {
	if s.isClosed() {
		return state.ErrClosed
	}
	return err
}

// Scrub does nothing: the server's vacuum removes dead rows.
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

// release frees everything that open acquired. The explicit unlock only makes the end of
// the ownership visible sooner than the closed connection would, so its error is ignored.
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

// migrationLock serialises changes of the schema.
const migrationLock = 0x616d626974_01

func migrate(ctx context.Context, conn *pgx.Conn, list []string) error {
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass('schema_version') IS NOT NULL`).Scan(&exists); err != nil {
		return err
	}
	tx := engine.NewTx(ctx, (&line{ctx: ctx, conn: conn}).statement)
	if exists {
		version, err := migrations.Version(tx)
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
		return migrations.Run(tx, list)
	})
}
