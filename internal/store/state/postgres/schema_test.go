package postgres_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/postgres"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// Neither a default of the database nor one of the role leads a store to the tables of another schema. Only the URL
// chooses a schema.
func TestSchema(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		if !strings.HasPrefix(place, "postgres") {
			return // SQLite has no schemas
		}
		u, err := url.Parse(place)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(t.Context(), place)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		exec := func(statement string) {
			t.Helper()
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		// add opens the store, adds an id, and returns the ids that the store then has.
		add := func(place, id string) (ids string) {
			t.Helper()
			db, err := postgres.Open(t.Context(), place)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			err = db.Write(t.Context(), func(tx state.Tx) error {
				_, err := tx.Exec(`INSERT INTO spent (id, until) VALUES ($1, 1)`, id)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			err = db.Read(t.Context(), func(tx state.Tx) error {
				return tx.Query(`SELECT id FROM spent ORDER BY id`, nil, func(r state.Row) error {
					var id string
					err := r.Scan(&id)
					ids += id
					return err
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			return ids
		}
		exec(`CREATE SCHEMA other`)
		if got := add(place, "a"); got != "a" {
			t.Fatalf("the store has the ids %s, want a", got)
		}
		database := strings.TrimPrefix(u.Path, "/")
		for _, of := range []string{`DATABASE ` + database, `ROLE ` + u.User.Username() + ` IN DATABASE ` + database} {
			exec(`ALTER ` + of + ` SET search_path = other`)
		}
		if got := add(place, "b"); got != "ab" {
			t.Errorf("with another search_path by default, the store has the ids %s, want ab", got)
		}
		q := u.Query()
		q.Set("search_path", "other")
		u.RawQuery = q.Encode()
		if got := add(u.String(), "c"); got != "c" {
			t.Errorf("in the schema of the URL, the store has the ids %s, want c", got)
		}
		t.Setenv("PGOPTIONS", "-c search_path=other")
		if db, err := postgres.Open(t.Context(), place); err == nil || !strings.Contains(err.Error(), "?search_path=SCHEMA") {
			t.Errorf("with PGOPTIONS, Open returned %v, %v", db, err)
		}
	})
}
