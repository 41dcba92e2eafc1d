package dispatch

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/store/state"
)

// untended is a desk that does intents and that nobody tends, so that all is as a
// test has left it.
func untended(t *testing.T, place, dir string) *rig {
	t.Helper()
	r := newRig(t, place, dir, echo(agent.NetworkOff, 0), nil, Options{})
	r.options.Gateways = doors{r}
	if err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// unreachable takes PostgreSQL away from the queue, until it is given back.
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

// announced is how many kinds are.
func (r *rig) announced() (n int) {
	r.t.Helper()
	err := r.books.DB.Read(r.t.Context(), func(tx state.Tx) error {
		n = 0
		return tx.Query(`SELECT kind FROM workers`, nil, func(state.Row) error { n++; return nil })
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// TestToldLater reloads while the store cannot be written: what this desk takes is
// told as soon as it can be.
func TestToldLater(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		r := untended(t, place, dir)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for _, away := range []bool{true, false} {
			r.away.Store(away)
			if err := r.shared.reload(gone); !errors.Is(err, context.Canceled) {
				t.Fatalf("away %v: %v", away, err)
			}
			if err := r.tidy(t.Context()); err != nil {
				t.Fatal(err)
			}
			if told := r.announced(); (told == 0) != away {
				t.Errorf("away %v: %d kinds are announced", away, told)
			}
		}
	})
}

// TestServedLater reloads while PostgreSQL is away: nothing is announced that
// nobody takes, and it is taken as soon as it can be.
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
		for _, try := range []func(context.Context) error{r.Reload, r.tidy} {
			if err := try(t.Context()); err == nil {
				t.Error("it was told to be served")
			}
			if told := r.announced(); told != 0 {
				t.Errorf("%d kinds are announced", told)
			}
		}
		back()
		if err := r.tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if told := r.announced(); told != 1 {
			t.Errorf("%d kinds are announced", told)
		}
		if got := r.wait(i.ID); got.State != Done {
			t.Errorf("%+v", got)
		}
	})
}

const fetchedBy = `SELECT j.attempted_by[array_upper(j.attempted_by, 1)] FROM intents i JOIN river_job j ON j.id = i.job WHERE i.id = $1`

// TestNewName loses the connection that an owner lives by: jobs are fetched in the
// new owner's name, as soon as that can be, and in the old one's until then.
func TestNewName(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		r := untended(t, place, dir)
		before := r.books.DB.Owner()
		// The queue's own connections have another name.
		if _, err := r.shared.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'ambit'`); err != nil {
			t.Fatal(err)
		}
		until(t, "there is a new owner", func() bool {
			// The first finds that the connection is lost.
			_ = r.books.DB.Write(t.Context(), func(tx state.Tx) error {
				_, err := tx.Exec(`DELETE FROM workers WHERE owner = ''`)
				return err
			})
			return r.books.DB.Owner() != before
		})
		check := func(owner string) {
			t.Helper()
			i := r.wait(r.submit("x", "").ID)
			var by string
			err := r.books.DB.Read(t.Context(), func(tx state.Tx) error {
				return tx.Query(fetchedBy, []any{i.ID}, func(row state.Row) error { return row.Scan(&by) })
			})
			if err != nil || i.State != Done || by != owner {
				t.Errorf("%v: it is %s, and was fetched by %s instead of %s", err, i.State, by, owner)
			}
		}
		back := r.unreachable()
		if err := r.tidy(t.Context()); err == nil {
			t.Error("a client was started without a server")
		}
		check(before)
		back()
		if err := r.tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.work.Wait() // for the end of the old client
		check(r.books.DB.Owner())
	})
}

// twins are two agents of one manifest.
type twins struct{ doors }

func (t twins) Digests() []string { return append(t.doors.Digests(), t.doors.Digests()...) }

func TestOneManifestTwice(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		r := newRig(t, place, dir, echo(agent.NetworkOff, 0), nil, Options{})
		r.options.Gateways = twins{doors{r}}
		if err := r.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := r.wait(r.submit("x", "").ID); got.State != Done || r.announced() != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// TestReloadAtClose reloads when a desk has just told of its end: it takes nothing
// more, and says so.
func TestReloadAtClose(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		r := untended(t, place, dir)
		r.away.Store(true)
		if err := r.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.books.DB = nosy{r.books.DB, func() {
			if r.away.Swap(false) {
				if err := r.Reload(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}}
		r.Close(t.Context())
		if told := r.announced(); r.away.Load() || told != 0 {
			t.Errorf("%d kinds are announced by a desk that is closed", told)
		}
	})
}
