// Package statetest opens stores of both engines for tests.
//
// For PostgreSQL, it starts a real server for each test program. Each test has a database of its own. The server stops
// when the test program exits, even if the program crashes. Until it exits, the program keeps open a pipe to a shell.
// When the pipe is closed, the shell stops the server and removes the server's files.
package statetest

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/postgres"
	"github.com/ambit-run/ambit/internal/store/state/sqlite"
)

// Open opens a new SQLite store that is closed when the test ends.
func Open(t testing.TB) state.DB {
	t.Helper()
	return At(t, filepath.Join(t.TempDir(), "state.db"))
}

// Each calls test() once for every engine and passes it a function that opens a store. Every call of that function
// opens the same store again, as another process would.
func Each(t *testing.T, test func(t *testing.T, open func() state.DB)) {
	t.Helper()
	Places(t, func(t *testing.T, place string) {
		test(t, func() state.DB { return At(t, place) })
	})
}

// Places runs a test once for every engine. The test gets the file or URL of a store that does not exist yet. Other
// processes can open the same store.
func Places(t *testing.T, test func(t *testing.T, place string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "state.db")) })
	t.Run("postgres", func(t *testing.T) { test(t, database(t)) })
}

// At opens the store at place, a file or a URL. The store is closed when the test ends.
func At(t testing.TB, place string) state.DB {
	t.Helper()
	db, err := OpenPlace(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// OpenPlace opens the store in a file or at a URL.
func OpenPlace(ctx context.Context, place string) (state.DB, error) {
	if strings.HasPrefix(place, "postgres:") {
		return postgres.Open(ctx, place)
	}
	return sqlite.Open(ctx, place)
}

// Database creates a PostgreSQL database and returns the URL of the database. It is for programs that are not tests,
// such as benchmarks. The server stops when the program exits.
func Database(ctx context.Context) (string, error) {
	s, err := server()
	if err != nil {
		return "", err
	}
	name := "b" + strings.ToLower(rand.Text())
	return at(s.dir, name), s.exec(ctx, "CREATE DATABASE "+name)
}

// Keep copies a table and returns a function that restores it, as an attacker with the database password could.
func Keep(t testing.TB, db state.DB, table string) (restore func()) {
	t.Helper()
	run := func(statements ...string) {
		t.Helper()
		err := db.Write(t.Context(), func(tx state.Tx) error {
			for _, statement := range statements {
				if _, err := tx.Exec(statement); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	run(`CREATE TABLE kept_` + table + ` AS SELECT * FROM ` + table)
	return func() {
		t.Helper()
		run(`DELETE FROM `+table, `INSERT INTO `+table+` SELECT * FROM kept_`+table)
	}
}
