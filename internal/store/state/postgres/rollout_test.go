package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
	"github.com/ambit-run/ambit/internal/store/state/postgres"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// During a rollout, two versions share a store: running processes of the older version continue, and new
// processes of the older version are refused.
func TestTwoVersionsSideBySide(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		if !strings.HasPrefix(place, "postgres") {
			return // the SQLite engine has its own test
		}
		list := migrations.List()
		old, err := postgres.OpenWith(t.Context(), place, list[:len(list)-1])
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		write := func(db state.DB, id string) {
			t.Helper()
			err := db.Write(t.Context(), func(tx state.Tx) error {
				_, err := tx.Exec(`INSERT INTO spent (id, until) VALUES ($1, 1)`, id)
				return err
			})
			if err != nil {
				t.Errorf("write %q failed: %v", id, err)
			}
		}
		write(old, "old, before")
		fresh, err := postgres.OpenWith(t.Context(), place, list)
		if err != nil {
			t.Fatal(err)
		}
		defer fresh.Close()
		write(fresh, "new")
		write(old, "old, after")
		var n int64
		err = fresh.Read(t.Context(), func(tx state.Tx) error {
			return tx.Query(`SELECT COUNT(*) FROM spent`, nil, func(r state.Row) error { return r.Scan(&n) })
		})
		if err != nil || n != 3 {
			t.Errorf("got %d rows, want 3; error %v", n, err)
		}
		if db, err := postgres.OpenWith(t.Context(), place, list[:len(list)-1]); !errors.Is(err, state.ErrNewer) {
			t.Errorf("opening with an older version: got %v, %v; want ErrNewer", db, err)
		}
	})
}
