package statetest

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ambit-run/ambit/internal/store/state"
)

// cut ends the connection of every owner, as a server that restarts does.
func cut(t *testing.T, place string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
		t.Fatal(err)
	}
}

func TestLostConnectionIsANewOwner(t *testing.T) {
	place := database(t)
	db, other := At(t, place), At(t, place)
	table(t, db)
	owner, log := db.Owner(), db.Log()
	taken := make(chan int64, 1)
	err := db.Write(t.Context(), func(tx state.Tx) error {
		if err := insert(tx, 1); err != nil {
			return err
		}
		cut(t, place)
		// Others see at once that the old owner is dead, and may take its log.
		if alive, err := other.Alive(t.Context(), owner); err != nil || alive {
			t.Errorf("alive: %v, error %v", alive, err)
		}
		taken <- At(t, place).Log()
		return insert(tx, 2)
	})
	if !errors.Is(err, state.ErrLost) {
		t.Errorf("Write returned %v", err)
	}
	if got := <-taken; got != log {
		t.Errorf("the log %d of the dead owner was not leased again, but %d", log, got)
	}
	if err := db.Write(t.Context(), func(tx state.Tx) error {
		if db.Owner() == owner || db.Log() == log {
			t.Errorf("still owner %q with log %d", db.Owner(), db.Log())
		}
		return insert(tx, 3)
	}); err != nil {
		t.Fatal(err)
	}
	if n := number(t, db, `SELECT id FROM things`); n != 3 {
		t.Errorf("the row of the lost transaction is there: %d", n)
	}
	if alive, err := other.Alive(t.Context(), db.Owner()); err != nil || !alive {
		t.Errorf("the new owner is alive: %v, error %v", alive, err)
	}
}

// A transaction that met another one runs alone the next time, so that it does
// not meet one again.
func TestSecondRunIsAlone(t *testing.T) {
	place := database(t)
	db, other := At(t, place), At(t, place)
	table(t, db)
	do(t, db, `INSERT INTO things (id, n) VALUES (1, 0)`)
	runs := 0
	if err := db.Write(t.Context(), func(tx state.Tx) error {
		runs++
		var n int64
		if err := scan(tx, &n, `SELECT n FROM things WHERE id = 1`); err != nil {
			return err
		}
		if runs == 1 {
			do(t, other, `UPDATE things SET n = 10 WHERE id = 1`)
		} else if held := number(t, other, `SELECT count(*) FROM pg_locks
			WHERE relation = 'schema_version'::regclass AND mode = 'ExclusiveLock' AND granted`); held != 1 {
			t.Errorf("run %d is not alone", runs)
		}
		_, err := tx.Exec(`UPDATE things SET n = $1 WHERE id = 1`, n+1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if n := number(t, db, `SELECT n FROM things`); runs != 2 || n != 11 {
		t.Errorf("after %d runs n is %d", runs, n)
	}
}

func TestLogsAreLeased(t *testing.T) {
	place := database(t)
	a, b := At(t, place), At(t, place)
	if a.Log() != 1 || b.Log() != 2 {
		t.Errorf("logs %d and %d", a.Log(), b.Log())
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if c, d := At(t, place), At(t, place); c.Log() != 1 || d.Log() != 3 {
		t.Errorf("logs %d and %d", c.Log(), d.Log())
	}
	if log := Open(t).Log(); log != 0 {
		t.Errorf("SQLite has log %d", log)
	}
}

func TestPasswordIsNotShown(t *testing.T) {
	for _, place := range []string{
		"postgres://ambit:hunter2@127.0.0.1:1/db?connect_timeout=1",
		"postgres://ambit:hunter2@127.0.0.1:1/db?sslmode=wrong",
		"postgres://ambit:hunter2@[::1/db",
	} {
		_, err := OpenPlace(t.Context(), place)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Open returned %v", err)
		}
	}
}

// The server looks whether its owners are there: one whose machine is gone would
// be alive for hours, and with it the calls that it had under way.
func TestServerLooksForOwners(t *testing.T) {
	db := At(t, database(t))
	want := map[string]string{"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
	got := map[string]string{}
	if err := db.Write(t.Context(), func(tx state.Tx) error {
		clear(got)
		// This server is reached by a socket, where they are kept and not used.
		return tx.Query(`SELECT name, reset_val FROM pg_settings WHERE name LIKE 'tcp_keepalives%'`, nil, func(r state.Row) error {
			var name, value string
			err := r.Scan(&name, &value)
			got[name] = value
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the server has %v", got)
	}
}
