package statetest

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ambit-run/ambit/internal/store/state"
)

// cut ends all connections to the database, as a restart of the server does.
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
		// Other processes see at once that the old owner is dead, and can lease its log.
		if alive, err := other.Alive(t.Context(), owner); err != nil || alive {
			t.Errorf("Alive of the old owner = %v, error %v; want false", alive, err)
		}
		taken <- At(t, place).Log()
		return insert(tx, 2)
	})
	if !errors.Is(err, state.ErrLost) {
		t.Errorf("Write returned the error %v, want ErrLost", err)
	}
	if got := <-taken; got != log {
		t.Errorf("the new owner leased log %[2]d, want log %[1]d of the dead owner", log, got)
	}
	if err := db.Write(t.Context(), func(tx state.Tx) error {
		if db.Owner() == owner || db.Log() == log {
			t.Errorf("the store still has the owner %q and log %d", db.Owner(), db.Log())
		}
		return insert(tx, 3)
	}); err != nil {
		t.Fatal(err)
	}
	if n := number(t, db, `SELECT id FROM things`); n != 3 {
		t.Errorf("got row %d, want only row 3", n)
	}
	if alive, err := other.Alive(t.Context(), db.Owner()); err != nil || !alive {
		t.Errorf("Alive of the new owner = %v, error %v; want true", alive, err)
	}
}

// A restart of the server closes the idle connections of the pool. The next read uses a new connection.
func TestReadAfterRestart(t *testing.T) {
	place := database(t)
	db := At(t, place)
	const readers = 4 // the maximum number of simultaneous reads of a store
	var all, done sync.WaitGroup
	all.Add(readers)
	for range readers {
		done.Go(func() {
			if err := db.Read(t.Context(), func(tx state.Tx) error {
				var n int64
				err := scan(tx, &n, `SELECT 1`)
				all.Done()
				all.Wait()
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	cut(t, place)
	if n := number(t, db, `SELECT 7`); n != 7 {
		t.Errorf("read %d, want 7", n)
	}
}

// After a conflict, a transaction is retried alone, so that it cannot conflict again.
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
			t.Errorf("run %d does not hold the exclusive lock", runs)
		}
		_, err := tx.Exec(`UPDATE things SET n = $1 WHERE id = 1`, n+1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if n := number(t, db, `SELECT n FROM things`); runs != 2 || n != 11 {
		t.Errorf("after %d runs, n is %d; want 2 runs and 11", runs, n)
	}
}

func TestLogsAreLeased(t *testing.T) {
	place := database(t)
	a, b := At(t, place), At(t, place)
	if a.Log() != 1 || b.Log() != 2 {
		t.Errorf("got the logs %d and %d, want 1 and 2", a.Log(), b.Log())
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if c, d := At(t, place), At(t, place); c.Log() != 1 || d.Log() != 3 {
		t.Errorf("got the logs %d and %d, want 1 and 3", c.Log(), d.Log())
	}
	if log := Open(t).Log(); log != 0 {
		t.Errorf("SQLite has log %d, want 0", log)
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
			t.Errorf("Open succeeded, or its error contains the password: %v", err)
		}
	}
}

// The server checks whether its owners are still reachable. Otherwise, an owner would count as alive for
// hours after its machine lost power. The same applies to its calls in progress.
func TestServerLooksForOwners(t *testing.T) {
	db := At(t, database(t))
	want := map[string]string{"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
	got := map[string]string{}
	if err := db.Write(t.Context(), func(tx state.Tx) error {
		clear(got)
		// The test connects through a Unix socket. The server stores these settings for such a connection,
		// but does not use them.
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
		t.Errorf("got the settings %v, want %v", got, want)
	}
}
