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

// Two versions share a store during a rollout: running processes of the older version
// continue, new ones are refused.
func TestTwoVersionsSideBySide(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		if !strings.HasPrefix(place, "postgres") {
			return // the SQLite engine has its own
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
				t.Errorf("%s cannot write: %v", id, err)
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
			t.Errorf("there are %d rows, not 3: %v", n, err)
		}
		if db, err := postgres.OpenWith(t.Context(), place, list[:len(list)-1]); !errors.Is(err, state.ErrNewer) {
			t.Errorf("an older ambit opens it: %v, %v", db, err)
		}
	})
}
