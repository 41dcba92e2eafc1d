package allowance

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

var desk = Holder{Agent: "desk", ID: "matrix://agent/desk", Server: "fs", Code: "npm files"}

var (
	read  = agent.Right{Kind: agent.CanRead, What: "/data"}
	write = agent.Right{Kind: agent.CanWrite, What: "/data"}
	host  = agent.Right{Kind: agent.CanConnect, What: "db:5432", Private: true}
)

// each runs a test with the allowances of a new store, once for each database engine.
func each(t *testing.T, test func(*testing.T, *Allowances)) {
	t.Helper()
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		s := Of(keep(t, open()))
		s.now = func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 6789, time.UTC) }
		test(t, s)
	})
}

func keep(t testing.TB, db state.DB) *store.Store {
	t.Helper()
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return store.New(db, keys, nil)
}

func allow(t *testing.T, s *Allowances, h Holder, rights ...agent.Right) {
	t.Helper()
	if err := s.Allow(t.Context(), h, rights, "me@local"); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, s *Allowances, h Holder) []*Allowance {
	t.Helper()
	list, err := s.List(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// inEffect returns the rights of a server that are in effect, as text.
func inEffect(t *testing.T, s *Allowances, h Holder) string {
	t.Helper()
	return texts(Access(list(t, s, h)))
}

func (s *Allowances) exec(t *testing.T, sql string) {
	t.Helper()
	err := s.store.DB.Write(t.Context(), func(tx state.Tx) error {
		_, err := tx.Exec(sql)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An allowance belongs to exactly one server of the agent with this name and this id.
func TestHolder(t *testing.T) {
	each(t, func(t *testing.T, s *Allowances) {
		allow(t, s, desk, read, host)
		for _, tt := range []struct {
			name string
			h    Holder
			want string
		}{
			{"the same server", desk, "connect to db:5432, even at a private address; read /data"},
			{"another server", Holder{desk.Agent, desk.ID, "web", desk.Code}, ""},
			{"another agent with the same id", Holder{"copy", desk.ID, "fs", desk.Code}, ""},
			{"another agent with the same name", Holder{"desk", "matrix://agent/other", "fs", desk.Code}, ""},
			{"another program under the same alias", Holder{desk.Agent, desk.ID, desk.Server, "npm other"}, ""},
		} {
			if got := inEffect(t, s, tt.h); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
		if got := Access(list(t, s, desk))[0].Reason; got != "allowed by me@local on 2030-01-02" {
			t.Errorf("the reason is %q", got)
		}
	})
}

// A right to write a path replaces the right to read it. Rights can be removed one by one, or all at once.
func TestChanges(t *testing.T) {
	each(t, func(t *testing.T, s *Allowances) {
		allow(t, s, desk, read)
		allow(t, s, desk, write, host)
		if got := inEffect(t, s, desk); strings.Contains(got, "read") || !strings.Contains(got, "write /data") {
			t.Errorf("after a right to write was added, the rights are %q", got)
		}
		var absent NotAllowed
		if _, err := s.Disallow(t.Context(), desk, agent.Access{write, read}, "me@local"); !errors.As(err, &absent) ||
			absent.Error() != "read /data" {
			t.Errorf("removing a right that was not added returned %v", err)
		}
		if removed, err := s.Disallow(t.Context(), desk, agent.Access{host}, "me@local"); err != nil || len(removed) != 1 {
			t.Errorf("removed %v, %v", removed, err)
		}
		if got := inEffect(t, s, desk); got != "write /data" {
			t.Errorf("after the host was removed, the rights are %q", got)
		}
		if removed, err := s.Disallow(t.Context(), desk, nil, "me@local"); err != nil || len(removed) != 1 {
			t.Errorf("removed %v, %v", removed, err)
		}
		if got := inEffect(t, s, desk); got != "" {
			t.Errorf("after everything was removed, the rights are %q", got)
		}
		var many agent.Access
		for i := range maxRights + 1 {
			many = append(many, agent.Right{Kind: agent.CanRead, What: fmt.Sprint("/", i)})
		}
		if err := s.Allow(t.Context(), desk, many, "me@local"); !errors.Is(err, ErrTooMany) || inEffect(t, s, desk) != "" {
			t.Errorf("%d rights: %v", len(many), err)
		}
	})
}

// A row that was modified in the store has no effect. It is reported and can be removed.
func TestModifiedRows(t *testing.T) {
	each(t, func(t *testing.T, s *Allowances) {
		for _, column := range []string{
			`agent = 'other'`, `id = 'other'`, `server = 'other'`, `kind = 'write'`, `what = '/'`, `private = 1`, `private = 7`,
			`allowed_by = 'you@local'`, `allowed = 1`,
		} {
			allow(t, s, desk, read)
			before, err := s.Digests(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.exec(t, `UPDATE allowances SET `+column)
			var all []*Allowance
			err = s.store.DB.Read(t.Context(), func(tx state.Tx) (err error) {
				all, err = s.query(tx, "")
				return err
			})
			if err != nil || len(all) != 1 || len(Access(all)) != 0 || len(Warnings(all)) != 1 {
				t.Fatalf("%s: %+v, %v", column, all, err)
			}
			if now, err := s.Digests(t.Context()); err != nil || now["desk"] == before["desk"] {
				t.Errorf("%s: the digest did not change: %v", column, err)
			}
			if _, err := s.Disallow(t.Context(), all[0].Holder, nil, "me@local"); err != nil {
				t.Fatal(err)
			}
			if left := list(t, s, all[0].Holder); len(left) != 0 {
				t.Errorf("%s: a modified row was not removed: %+v", column, left[0])
			}
		}
	})
}

// Every change is recorded in the journal, and a change that fails is not.
func TestJournal(t *testing.T) {
	each(t, func(t *testing.T, s *Allowances) {
		allow(t, s, desk, read, host)
		if _, err := s.Disallow(t.Context(), desk, agent.Access{write}, "me@local"); err == nil {
			t.Error("a right that was not added was removed")
		}
		if _, err := s.Disallow(t.Context(), desk, agent.Access{host}, "me@local"); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Forget(t.Context(), "desk", "me@local"); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if n, err := s.Forget(t.Context(), "desk", "me@local"); err != nil || n != 0 {
			t.Fatal(n, err)
		}
		var got []string
		entries, err := s.store.Journal.Show(t.Context(), journal.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range slices.Backward(entries) {
			got = append(got, r.Tool+": "+r.Agent+" "+r.Principal+": "+r.Detail)
		}
		want := []string{
			"allow: desk me@local: server fs is allowed to read /data; connect to db:5432, even at a private address",
			"disallow: desk me@local: server fs is no longer allowed to connect to db:5432, even at a private address",
			"disallow: desk me@local: the servers of the agent have no added rights",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("the journal contains\n%s", strings.Join(got, "\n"))
		}
	})
}

// After a rotation, allowances are valid under the new root key. A modified allowance stays invalid.
func TestRotation(t *testing.T) {
	each(t, func(t *testing.T, s *Allowances) {
		allow(t, s, desk, read, host)
		s.exec(t, `UPDATE allowances SET what = 'other' WHERE kind = 'connect'`)
		next := keep(t, s.store.DB)
		err := s.store.DB.Write(t.Context(), func(tx state.Tx) error { return s.store.Authority.SignAgain(tx, next.Authority) })
		if err != nil {
			t.Fatal(err)
		}
		if got := inEffect(t, Of(next), desk); got != "read /data" {
			t.Errorf("under the new key, the rights are %q", got)
		}
	})
}

// An attacker who writes to the store cannot restore an allowance that was removed, even if its row was deleted before.
func TestRestoredAllowance(t *testing.T) {
	for name, remove := range map[string]func(*testing.T, *Allowances) error{
		"disallow a deleted row": func(t *testing.T, s *Allowances) error {
			s.exec(t, `DELETE FROM allowances`)
			_, err := s.Disallow(t.Context(), desk, agent.Access{read}, "me@local")
			return err
		},
		"disallow": func(t *testing.T, s *Allowances) error {
			_, err := s.Disallow(t.Context(), desk, agent.Access{read}, "me@local")
			return err
		},
		"disallow all": func(t *testing.T, s *Allowances) error {
			_, err := s.Disallow(t.Context(), desk, nil, "me@local")
			return err
		},
		"forget": func(t *testing.T, s *Allowances) error {
			s.exec(t, `DELETE FROM allowances`)
			_, err := s.Forget(t.Context(), desk.Agent, "me@local")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *Allowances) {
				allow(t, s, desk, read)
				restore := statetest.Keep(t, s.store.DB, "allowances")
				if err := remove(t, s); err != nil {
					t.Fatal(err)
				}
				restore()
				if got := inEffect(t, s, desk); got != "" {
					t.Errorf("the restored allowance is in effect: %q", got)
				}
			})
		})
	}
}

// If a database answers with the rows of another server, the server gets no rights from these rows.
func TestRowsOfAnotherServer(t *testing.T) {
	each(t, func(t *testing.T, s *Allowances) {
		allow(t, s, desk, write, host)
		other := Holder{Agent: "DESK", ID: "MATRIX://agent/desk", Server: "FS", Code: "NPM files"}
		s.exec(t, `ALTER TABLE allowances RENAME TO kept`)
		const rest = `kind, what, private, allowed_by, allowed FROM kept`
		if strings.HasSuffix(t.Name(), "/sqlite") {
			s.exec(t, `CREATE VIEW allowances AS SELECT agent COLLATE NOCASE AS agent, id COLLATE NOCASE AS id,
server COLLATE NOCASE AS server, code COLLATE NOCASE AS code, `+rest)
		} else {
			// This function returns another value in the condition of the query, which is evaluated first.
			s.exec(t, `CREATE FUNCTION lie(honest text, fake text, slot text) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE n int := coalesce(nullif(current_setting('lie.c' || md5(fake || slot), true), ''), '0')::int;
BEGIN
	PERFORM set_config('lie.c' || md5(fake || slot), (n + 1)::text, true);
	IF n % 2 = 0 THEN RETURN fake; END IF;
	RETURN honest;
END $$`)
			s.exec(t, `CREATE VIEW allowances AS SELECT lie(agent, 'DESK', what) AS agent, lie(id, 'MATRIX://agent/desk', what) AS id,
lie(server, 'FS', what) AS server, lie(code, 'NPM files', what) AS code, `+rest)
		}
		got := list(t, s, other)
		if len(got) != 2 {
			t.Fatalf("the database returns %d rows, want 2", len(got))
		}
		if access := texts(Access(got)); access != "" || len(Warnings(got)) != 2 {
			t.Errorf("the other server has the rights: %s", access)
		}
	})
}
