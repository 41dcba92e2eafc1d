package statetest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Cluster is a PostgreSQL server for one test. The test can kill and restart the server, and fail over to a standby.
type Cluster struct {
	t        testing.TB
	postgres string
	dir      string // the folder with the data and the socket
	running  io.Closer
	ended    chan struct{}
}

// NewCluster creates and starts a server.
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	initdb, postgres, err := findPrograms()
	if errors.Is(err, errMissing) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, postgres)
	c.run(initdb, "-D", c.data(), "-U", "ambit", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	c.Start()
	return c
}

func newCluster(t testing.TB, postgres string) *Cluster {
	t.Helper()
	// The path of a Unix socket must be short, so t.TempDir cannot be used.
	dir, err := os.MkdirTemp("", "ambit-pg-")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{t: t, postgres: postgres, dir: dir}
	t.Cleanup(func() {
		c.Kill()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// run runs a PostgreSQL program as an unprivileged user.
func (c *Cluster) run(program string, args ...string) {
	c.t.Helper()
	as, err := unprivileged(c.dir)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(c.t.Context(), program, args...)
	cmd.Dir, cmd.SysProcAttr = "/", as
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("%s: %v\n%s", filepath.Base(program), err, out)
	}
}

// Start starts the server and waits until it accepts connections.
func (c *Cluster) Start() {
	c.t.Helper()
	as, err := unprivileged(c.dir)
	if err != nil {
		c.t.Fatal(err)
	}
	// The shell stops the server when the shell's standard input is closed. The input is also closed when this
	// program exits.
	cmd := exec.Command("sh", "-c", `"$1" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off >>"$2/log" 2>&1 &
		cat >/dev/null
		kill -QUIT $!
		wait`, "sh", c.postgres, c.dir)
	cmd.Dir, cmd.SysProcAttr = "/", as
	if c.running, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.ended = make(chan struct{})
	go func() {
		defer close(c.ended)
		_ = cmd.Wait()
	}()
	if err := waitReady(c.dir); err != nil {
		c.t.Fatal(err)
	}
}

// Kill stops the server abruptly, as a crash would. Connections break, and uncommitted data is lost.
func (c *Cluster) Kill() {
	if c.running == nil {
		return
	}
	_ = c.running.Close()
	<-c.ended
	c.running = nil
}

// Socket returns the path of the server's Unix socket.
func (c *Cluster) Socket() string { return filepath.Join(c.dir, ".s.PGSQL.5432") }

// Place returns the URL of a store on this server. If other servers are given, the URL lists all servers, and clients
// connect to the writable server.
func (c *Cluster) Place(others ...*Cluster) string {
	dirs := c.dir
	for _, o := range others {
		dirs += "," + o.dir
	}
	place := at(dirs, "postgres")
	if len(others) > 0 {
		place += "&target_session_attrs=read-write"
	}
	return place
}

// Standby creates a synchronous standby of this server. From then on, a commit waits for both servers.
func (c *Cluster) Standby() *Cluster {
	c.t.Helper()
	s := newCluster(c.t, c.postgres)
	real, err := filepath.EvalSymlinks(c.postgres) // pg_basebackup is in the same directory
	if err != nil {
		c.t.Fatal(err)
	}
	s.run(filepath.Join(filepath.Dir(real), "pg_basebackup"),
		"-h", c.dir, "-U", "ambit", "-D", s.data(), "-R", "-c", "fast", "--no-sync")
	s.Start()
	c.do(`ALTER SYSTEM SET synchronous_standby_names = '*'`)
	c.do(`SELECT pg_reload_conf()`)
	end := time.Now().Add(time.Minute)
	for c.Ask(`SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 0 {
		if time.Now().After(end) {
			c.t.Fatal("the standby did not become synchronous within a minute")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return s
}

// Promote makes a standby writable.
func (c *Cluster) Promote() {
	c.t.Helper()
	c.do(`ALTER SYSTEM RESET synchronous_standby_names`)
	c.do(`SELECT pg_reload_conf()`)
	c.do(`SELECT pg_promote(true, 60)`)
}

func (c *Cluster) do(statement string) {
	c.t.Helper()
	c.with(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement)
		return err
	})
}

// Ask returns the number that a query selects.
func (c *Cluster) Ask(query string) (n int64) {
	c.t.Helper()
	c.with(func(ctx context.Context, conn *pgx.Conn) error { return conn.QueryRow(ctx, query).Scan(&n) })
	return n
}

func (c *Cluster) with(f func(context.Context, *pgx.Conn) error) {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), at(c.dir, "postgres"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(c.t.Context())
	if err := f(c.t.Context(), conn); err != nil {
		c.t.Fatal(err)
	}
}
