// Package statetest opens stores for tests, of either engine.
//
// For PostgreSQL it starts a real server, one for each test program, with a
// database for each test. The server ends with the test program, however that
// ends: a shell waits for the end of a pipe that the program holds, stops the
// server and removes its files.
package statetest

import (
	"context"
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

// Each runs a test with each engine. Every call of open opens the same store
// anew, as another process would.
func Each(t *testing.T, test func(t *testing.T, open func() state.DB)) {
	t.Helper()
	Places(t, func(t *testing.T, place string) {
		test(t, func() state.DB { return At(t, place) })
	})
}

// Places runs a test with the place of a store that is not there yet, for each
// engine. Other processes can open it too.
func Places(t *testing.T, test func(t *testing.T, place string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "state.db")) })
	t.Run("postgres", func(t *testing.T) { test(t, database(t)) })
}

// At opens the store at a place until the test ends.
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

// OpenPlace opens the store at a place.
func OpenPlace(ctx context.Context, place string) (state.DB, error) {
	if strings.HasPrefix(place, "postgres:") {
		return postgres.Open(ctx, place)
	}
	return sqlite.Open(ctx, place)
}
