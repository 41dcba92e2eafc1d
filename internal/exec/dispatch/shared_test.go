package dispatch

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/store/state"
)

// untended returns a queue on which maintain does not run. Only the test changes the queue's state.
func untended(t *testing.T, place, dir string) *rig {
	t.Helper()
	r := newRig(t, place, dir, echo(agent.NetworkOff, 0), nil, Options{})
	r.options.Gateways = gateways{r}
	if err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// unreachable disconnects the queue from PostgreSQL until back is called.
func (r *rig) unreachable() (back func()) {
	r.t.Helper()
	gone, err := pgxpool.New(r.t.Context(), r.place)
	if err != nil {
		r.t.Fatal(err)
	}
	gone.Close()
	pool := r.shared.pool
	r.shared.pool = gone
	return func() { r.shared.pool = pool }
}

// announced returns the number of announced kinds.
func (r *rig) announced() (n int) {
	r.t.Helper()
	err := r.store.DB.Read(r.t.Context(), func(tx state.Tx) error {
		n = 0
		return tx.Query(`SELECT kind FROM workers`, nil, func(state.Row) error { n++; return nil })
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// TestAnnouncedLater checks a reload that cannot write to the store. The next cleanUp must announce
// the current kinds.
func TestAnnouncedLater(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		r := untended(t, place, dir)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for _, away := range []bool{true, false} {
			r.away.Store(away)
			if err := r.shared.reload(gone); !errors.Is(err, context.Canceled) {
				t.Fatalf("away %v: error = %v, want context.Canceled", away, err)
			}
			if err := r.cleanUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := r.announced(); (n == 0) != away {
				t.Errorf("away %v: %d kinds are announced", away, n)
			}
		}
	})
}

// TestServedLater checks a reload while PostgreSQL is unreachable. The reload announces no kinds,
// because the queue cannot accept them. The next cleanUp announces the kinds.
func TestServedLater(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		r := untended(t, place, dir)
		r.away.Store(true)
		if err := r.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		i := r.submit("x", "")
		back := r.unreachable()
		r.away.Store(false)
		for _, try := range []func(context.Context) error{r.Reload, r.cleanUp} {
			if err := try(t.Context()); err == nil {
				t.Error("the reload succeeded without PostgreSQL")
			}
			if n := r.announced(); n != 0 {
				t.Errorf("%d kinds are announced, want 0", n)
			}
		}
		back()
		if err := r.cleanUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := r.announced(); n != 1 {
			t.Errorf("%d kinds are announced, want 1", n)
		}
		if got := r.wait(i.ID); got.State != Done {
			t.Errorf("intent = %+v, want done", got)
		}
	})
}

const fetchedBy = `SELECT j.attempted_by[array_upper(j.attempted_by, 1)] FROM intents i JOIN river_job j ON j.id = i.job WHERE i.id = $1`

// TestNewName checks the owner name of fetched jobs after the connection with the owner's lock was
// lost. Jobs have the old name until a new client is started, and then the new name.
func TestNewName(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		r := untended(t, place, dir)
		before := r.store.DB.Owner()
		// River's connections have a different application name.
		if _, err := r.shared.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'ambit'`); err != nil {
			t.Fatal(err)
		}
		until(t, "there is a new owner", func() bool {
			// The first write finds that the connection is lost.
			_ = r.store.DB.Write(t.Context(), func(tx state.Tx) error {
				_, err := tx.Exec(`DELETE FROM workers WHERE owner = ''`)
				return err
			})
			return r.store.DB.Owner() != before
		})
		check := func(owner string) {
			t.Helper()
			i := r.wait(r.submit("x", "").ID)
			var by string
			err := r.store.DB.Read(t.Context(), func(tx state.Tx) error {
				return tx.Query(fetchedBy, []any{i.ID}, func(row state.Row) error { return row.Scan(&by) })
			})
			if err != nil || i.State != Done || by != owner {
				t.Errorf("%v: the intent is %s; its job was fetched by %s, want %s", err, i.State, by, owner)
			}
		}
		back := r.unreachable()
		if err := r.cleanUp(t.Context()); err == nil {
			t.Error("cleanUp started a client while PostgreSQL was unreachable")
		}
		check(before)
		back()
		if err := r.cleanUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.work.Wait() // wait for the old client to stop
		check(r.store.DB.Owner())
	})
}

// twins serves two agents with the same manifest.
type twins struct{ gateways }

func (t twins) Digests() []string { return append(t.gateways.Digests(), t.gateways.Digests()...) }

func TestOneManifestTwice(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		r := newRig(t, place, dir, echo(agent.NetworkOff, 0), nil, Options{})
		r.options.Gateways = twins{gateways{r}}
		if err := r.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := r.wait(r.submit("x", "").ID); got.State != Done || r.announced() != 1 {
			t.Errorf("intent = %+v, want done and one announced kind", got)
		}
	})
}

// TestReloadAtClose checks that a reload during Close accepts and announces no kinds.
func TestReloadAtClose(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		r := untended(t, place, dir)
		r.away.Store(true)
		if err := r.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.store.DB = nosy{r.store.DB, func() {
			if r.away.Swap(false) {
				if err := r.Reload(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}}
		r.Close(t.Context())
		if n := r.announced(); r.away.Load() || n != 0 {
			t.Errorf("a closed queue announces %d kinds", n)
		}
	})
}

// TestQueueSchema checks that a default of the database does not lead the queue to another schema.
func TestQueueSchema(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		u, err := url.Parse(place)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(t.Context(), place)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		for _, statement := range []string{
			`CREATE SCHEMA other`, `ALTER DATABASE ` + strings.TrimPrefix(u.Path, "/") + ` SET search_path = other`,
		} {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		untended(t, place, dir)
		var schema string
		if err := conn.QueryRow(t.Context(), `SELECT schemaname FROM pg_tables WHERE tablename = 'river_job'`).Scan(&schema); err != nil || schema != "public" {
			t.Errorf("the queue is in the schema %q, %v; want public", schema, err)
		}
	})
}
