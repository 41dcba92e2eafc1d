// Package postgres implements a store that several machines share.
//
//   - An owner has a connection that holds an advisory lock, and writes only through this connection. The owner can
//     therefore not write after other processes consider it dead.
//   - When the connection is lost, the writes in progress fail with ErrLost. The next write connects again and gets a
//     new owner name and possibly another log. Code that stores the name or the log must therefore read them inside
//     the function that it passes to Write.
//   - Each owner leases a journal log of its own, because writers of a shared log would wait for each other. The log
//     of a dead owner is leased to a later owner. The number of logs is therefore the largest number of simultaneous
//     owners. Log 0 has no owner.
//   - Transactions are serializable, so code behaves as it does with SQLite, which has one writer at a time.
//     Conflicting transactions are repeated.
//   - NOTIFY is not used, because it locks the whole database at commit. Instead, waiters poll the server's current
//     snapshot.
//
// The tables are in the schema that the URL names with search_path, or else in public. Each connection sets this schema
// explicitly, because the role or the database can have a default that selects another schema.
//
// The advisory lock and the prepared statements belong to a session. A connection pooler in front of the server must
// therefore pool sessions, not transactions.
package postgres

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

const (
	// maxReaders is the maximum number of simultaneous reads.
	maxReaders = 4
	// roundTripLimit is the time limit of one round trip of a batch. After that time, the connection is considered
	// lost.
	roundTripLimit = 10 * time.Second
	// answerTime is the time limit for pings and for connecting. The URL parameter connect_timeout overrides the
	// limit for connecting.
	answerTime = 4 * time.Second
	// workTime is the statement timeout that the server enforces. It also applies to migrations.
	workTime = 30 * time.Second
	// A connection that was idle for longer than idleTime is pinged before the next write.
	idleTime = time.Second
	// spareTime is how long a connection of a pool stays open without use. It is short, because a server accepts only
	// 100 connections by default.
	spareTime = time.Minute
)

type store struct {
	config *pgx.ConnConfig
	pool   *pgxpool.Pool
	group  *engine.Group
	watch  engine.Watch

	// Only the goroutine that leads a batch uses these fields.
	conn       *pgx.Conn // nil if the connection was lost
	used       time.Time
	conflicted bool // whether the last batch conflicted with another transaction

	mu     sync.Mutex
	owner  string
	log    int64
	closed bool
}

var _ state.DB = (*store)(nil)

// Open opens the store at a URL. It creates missing tables and upgrades an older schema.
func Open(ctx context.Context, url string) (state.DB, error) {
	s, err := open(ctx, url, migrations.List())
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", explain(err))
	}
	return s, nil
}

func open(ctx context.Context, url string, list []string) (_ *store, err error) {
	config, err := Config(url, "ambit")
	if err != nil {
		return nil, err
	}
	config.MaxConns = maxReaders + 1 // one more connection polls for commits
	config.MinConns = 0
	config.PingTimeout = answerTime
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = answerTime
	}
	config.ConnConfig.DialFunc = dialer.DialContext
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
	s.group = engine.New(s.begin, nil) // try is nil, because starting a batch can require a new connection
	return s, nil
}

// Config returns the settings of the connections to the store at a URL. It sets the list search_path. The list does not
// name pg_catalog: the server searches that schema first anyway, and would also create tables there if the list named
// it. The list ends with pg_temp, because the server would otherwise search temporary tables first.
func Config(url, application string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err // pgx masks the password
	}
	config.MaxConnIdleTime, config.HealthCheckPeriod = spareTime, spareTime/2
	params := config.ConnConfig.RuntimeParams
	if strings.Contains(params["options"], "search_path") {
		return nil, errors.New("the options of the URL, or PGOPTIONS, set search_path; " +
			"name the schema in the URL instead: ?search_path=SCHEMA")
	}
	params["application_name"] = application
	params["search_path"] = cmp.Or(params["search_path"], "public") + ", pg_temp"
	return config, nil
}

func (s *store) connect(ctx context.Context) (*pgx.Conn, error) {
	config := s.config.Copy()
	// By default, the planner reads small tables completely. A serializable transaction would then conflict with
	// every other writer of the table.
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

// Read runs f on a connection from the pool. If the connection was closed before the server answered the first
// statement, Read tries another connection. After a server restart, the pool can contain several closed connections.
func (s *store) Read(ctx context.Context, f func(state.Tx) error) (err error) {
	for range maxReaders + 2 {
		var stale bool
		if stale, err = s.read(ctx, f); !stale || ctx.Err() != nil {
			break
		}
	}
	return err
}

// read makes one attempt. The first result reports whether the connection was closed before f received anything.
func (s *store) read(ctx context.Context, f func(state.Tx) error) (stale bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if s.isClosed() {
		return false, state.ErrClosed
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, explain(s.orClosed(err))
	}
	defer conn.Release() // Release closes the connection if a transaction is still open
	l := &pipeline{ctx: ctx, conn: conn.Conn(), ahead: []string{`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`}}
	defer func() {
		stale = len(l.ahead) > 0 && l.failed != nil && !errors.Is(l.failed, errSilent) && conn.Conn().IsClosed()
		if conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
			// COMMIT also ends a failed transaction. The server's count of rollbacks then shows how often writers conflict.
			err = errors.Join(err, runSimple(ctx, conn.Conn(), commit))
		}
	}()
	return false, engine.Run(ctx, l.statement, f)
}

func (s *store) Changed(ctx context.Context) error { return s.watch.Wait(ctx) }

// look returns the server's current snapshot, which changes with every commit.
func (s *store) look() (now string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), roundTripLimit)
	defer cancel()
	err = s.pool.QueryRow(ctx, `SELECT pg_current_snapshot()::text`).Scan(&now)
	return now, explain(err)
}

// Announce does nothing, because looking for announcements would need a query, as reading the rows does.
func (s *store) Announce() error { return nil }

func (s *store) Announced() (n state.News, ok bool) { return n, false }

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

// orClosed returns ErrClosed if the store is closed. Otherwise orClosed returns err.
func (s *store) orClosed(err error) error {
	if s.isClosed() {
		return state.ErrClosed
	}
	return err
}

// Scrub does nothing, because the server's vacuum removes deleted rows.
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

// release closes the connection and the pool. It first releases the owner's lock, so that other processes notice sooner
// that the owner is gone. Errors are ignored, because the server releases the lock when the connection is closed.
func (s *store) release() {
	if s.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = runSimple(ctx, s.conn, `SELECT pg_advisory_unlock_all()`)
		_ = s.conn.Close(ctx)
	}
	if s.pool != nil {
		s.pool.Close()
	}
}

// migrationLock is the advisory lock that a connection holds while it changes the schema.
const migrationLock = 0x616d626974_01

func migrate(ctx context.Context, conn *pgx.Conn, list []string) error {
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass('schema_version') IS NOT NULL`).Scan(&exists); err != nil {
		return err
	}
	tx := engine.NewTx(ctx, (&pipeline{ctx: ctx, limit: workTime + roundTripLimit, conn: conn}).statement)
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

// dialer detects lost connections within about ten seconds. If a machine loses power or a firewall drops a connection
// from its table, the other side gets no signal that the connection is lost. Client and server must therefore probe the
// connection, even while it is idle.
var dialer = &net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	Control:         setUserTimeout,
}

// keepAlive contains server settings for an owner's connection. With the default settings, the server would hold an
// owner's lock for hours after the owner's machine lost power.
var keepAlive = map[string]string{
	"tcp_keepalives_idle":     "10",
	"tcp_keepalives_interval": "5",
	"tcp_keepalives_count":    "3",
}

// Unproven examines the remote hosts in a URL. It returns the first host whose TLS certificate would not be verified.
// It returns "" if there is no such host. It also returns "" for an invalid URL, because Open then fails.
func Unproven(url string) string {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return ""
	}
	unproven := func(host string, c *tls.Config) bool {
		return !onThisMachine(host) && (c == nil || c.InsecureSkipVerify)
	}
	if unproven(config.Host, config.TLSConfig) {
		return config.Host
	}
	for _, f := range config.Fallbacks {
		if unproven(f.Host, f.TLSConfig) {
			return f.Host
		}
	}
	return ""
}

// onThisMachine reports whether host is a loopback address or the directory of a Unix socket.
func onThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || filepath.IsAbs(host) || err == nil && ip.Unmap().IsLoopback()
}
