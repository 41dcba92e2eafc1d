package grant

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

var _ gate.Grants = (*Held)(nil)

// each runs a test with the grants of a new store, once for each database engine.
func each(t *testing.T, test func(*testing.T, *Grants)) {
	t.Helper()
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		test(t, Of(keep(t, open())))
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

func give(t *testing.T, s *Grants, a Asked) {
	t.Helper()
	if _, err := s.Give(t.Context(), a, "owner@local"); err != nil {
		t.Fatal(err)
	}
}

// missing returns which of tool.a and tool.b the principal me@local does not hold.
func missing(t *testing.T, s *Grants, agent string) string {
	t.Helper()
	list, err := s.For(agent).Missing(t.Context(), "me@local", []string{"tool.a", "tool.b"})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}

func TestWhoHoldsWhat(t *testing.T) {
	each(t, func(t *testing.T, s *Grants) {
		now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		s.now = func() time.Time { return now }
		if got := missing(t, s, "x@local"); got != "tool.a tool.b" {
			t.Errorf("without grants, %q is missing", got)
		}
		give(t, s, Asked{Subject: "me@local", Actions: []string{"tool.a"}, Expires: now.Add(time.Hour)})
		give(t, s, Asked{Subject: "me@local", Actions: []string{"tool.b"}, Scope: "x@local"})
		give(t, s, Asked{Subject: "you@local", Actions: []string{"tool.a", "tool.b"}})
		for _, tt := range []struct {
			name, agent, want string
			after             time.Duration
		}{
			{"both in scope", "x@local", "", 0},
			{"another agent", "y@local", "tool.b", 0},
			{"just before the expiry", "x@local", "", time.Hour - time.Microsecond},
			{"at the expiry", "x@local", "tool.a", time.Hour},
		} {
			s.now = func() time.Time { return now.Add(tt.after) }
			if got := missing(t, s, tt.agent); got != tt.want {
				t.Errorf("%s: %q is missing, want %q", tt.name, got, tt.want)
			}
		}
		// An action can be granted again after its grant has expired.
		s.now = func() time.Time { return now.Add(2 * time.Hour) }
		give(t, s, Asked{Subject: "me@local", Actions: []string{"tool.a"}})
		if got := missing(t, s, "x@local"); got != "" {
			t.Errorf("%q is missing", got)
		}
	})
}

func TestRevoke(t *testing.T) {
	each(t, func(t *testing.T, s *Grants) {
		revoke := func(scope string, actions ...string) (int, error) {
			list, err := s.Revoke(t.Context(), "me@local", actions, scope, "owner@local")
			return len(list), err
		}
		give(t, s, Asked{Subject: "me@local", Actions: []string{"tool.a", "tool.b"}})
		give(t, s, Asked{Subject: "me@local", Actions: []string{"tool.a"}, Scope: "x@local"})
		give(t, s, Asked{Subject: "you@local", Actions: []string{"tool.a"}})

		// If one action is not held, nothing is revoked, and the error lists every action that is not held.
		_, err := revoke("", "tool.a", "tool.c", "tool.d")
		if absent, ok := errors.AsType[NotHeld](err); !ok || !slices.Equal(absent, NotHeld{"tool.c", "tool.d"}) {
			t.Errorf("Revoke returned %v, want NotHeld with tool.c and tool.d", err)
		}
		if got := missing(t, s, "y@local"); got != "" {
			t.Errorf("a failed Revoke revoked %q", got)
		}
		if n, err := revoke("", "tool.a"); err != nil || n != 2 {
			t.Errorf("Revoke ended %d grants: %v", n, err)
		}
		if got := missing(t, s, "x@local"); got != "tool.a" {
			t.Errorf("%q is missing", got)
		}
		if _, err := revoke("", "tool.a"); err == nil {
			t.Error("the action was revoked twice")
		}
		give(t, s, Asked{Subject: "me@local", Actions: []string{"tool.a"}, Scope: "x@local"})
		if n, err := revoke("x@local", "tool.a"); err != nil || n != 1 {
			t.Errorf("Revoke ended %d grants: %v", n, err)
		}
		states := map[string]int{}
		list, err := s.List(t.Context())
		for _, g := range list {
			states[g.State(time.Now())]++
		}
		if err != nil || states["revoked"] != 2 || states[Active] != 2 {
			t.Errorf("the grants have the states %v, error %v; want two revoked and two active", states, err)
		}
	})
}

// TestChanged modifies each column of a grant. A modified grant must allow nothing, and the error must report it.
func TestChanged(t *testing.T) {
	each(t, func(t *testing.T, s *Grants) {
		now := time.Now()
		for _, tt := range []struct {
			name  string
			asked Asked
			set   string
			args  []any
		}{
			{"to another principal", Asked{Subject: "you@local", Actions: []string{"tool.a"}}, "subject = $1", []any{"me@local"}},
			{"to another action", Asked{Subject: "me@local", Actions: []string{"tool.c"}}, "action = $1", []any{"tool.a"}},
			{"to every agent", Asked{Subject: "me@local", Actions: []string{"tool.a"}, Scope: "y@local"}, "scope = $1", []any{""}},
			{"by another owner", Asked{Subject: "me@local", Actions: []string{"tool.a"}}, "granted_by = $1", []any{"root@local"}},
			{"at another time", Asked{Subject: "me@local", Actions: []string{"tool.a"}}, "granted = $1", []any{int64(1)}},
			{"for longer", Asked{Subject: "me@local", Actions: []string{"tool.a"}, Expires: now.Add(time.Hour)}, "expires = $1", []any{int64(0)}},
		} {
			give(t, s, tt.asked)
			change(t, s, tt.set, tt.args...)
			list, err := s.For("x@local").Missing(t.Context(), "me@local", []string{"tool.a"})
			if !slices.Equal(list, []string{"tool.a"}) || !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "tool.a") {
				t.Errorf("%s: Missing returned %v, %v", tt.name, list, err)
			}
			all, err := s.List(t.Context())
			if err != nil || len(all) != 1 || all[0].State(now) != "changed" {
				t.Errorf("%s: listed as %+v %v", tt.name, all[0], err)
			}
			if gone, err := s.Revoke(t.Context(), "me@local", []string{"tool.a"}, "", "owner@local"); err != nil || len(gone) != 1 {
				t.Errorf("%s: the modified grant cannot be revoked: %v", tt.name, err)
			}
		}
		// Clearing the revocation does not restore a grant.
		give(t, s, Asked{Subject: "me@local", Actions: []string{"tool.a"}})
		if _, err := s.Revoke(t.Context(), "me@local", []string{"tool.a"}, "", "owner@local"); err != nil {
			t.Fatal(err)
		}
		change(t, s, "revoked = 0")
		if _, err := s.For("x@local").Missing(t.Context(), "me@local", []string{"tool.a"}); !errors.Is(err, ErrChanged) {
			t.Errorf("Missing returned %v, want ErrChanged", err)
		}
	})
}

// change modifies the only row in the table grants.
func change(t *testing.T, s *Grants, set string, args ...any) {
	t.Helper()
	err := s.store.DB.Write(t.Context(), func(tx state.Tx) error {
		n, err := tx.Exec("UPDATE grants SET "+set, args...)
		if err == nil && n != 1 {
			t.Errorf("%s: %d rows", set, n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A grant that was given with another root key has no effect.
func TestAnotherKey(t *testing.T) {
	db := statetest.Open(t)
	give(t, Of(keep(t, db)), Asked{Subject: "me@local", Actions: []string{"tool.a"}})
	if _, err := Of(keep(t, db)).For("x").Missing(t.Context(), "me@local", []string{"tool.a"}); !errors.Is(err, authority.ErrChanged) {
		t.Errorf("Missing returned %v, want authority.ErrChanged", err)
	}
}

// An attacker who writes to the store cannot give a grant or restore a revoked grant, even if the row was deleted when
// the grant was revoked.
func TestRestoredGrant(t *testing.T) {
	each(t, func(t *testing.T, s *Grants) {
		give(t, s, Asked{Subject: "me@local", Actions: []string{"tool.a", "tool.b"}})
		restore := statetest.Keep(t, s.store.DB, "grants")
		revoke := func(action string) {
			t.Helper()
			if _, err := s.Revoke(t.Context(), "me@local", []string{action}, "", "owner@local"); err != nil {
				t.Fatal(err)
			}
		}
		revoke("tool.a")
		exec(t, s, `DELETE FROM grants`)
		revoke("tool.b")
		restore()
		exec(t, s, `INSERT INTO grants SELECT subject, 'tool.c', scope, granted_by, granted, expires, revoked, signature
FROM grants WHERE action = 'tool.a'`)
		all := []string{"tool.a", "tool.b", "tool.c"}
		if list, err := s.For("x").Missing(t.Context(), "me@local", all); !slices.Equal(list, all) || !errors.Is(err, ErrChanged) {
			t.Errorf("Missing returned %v, %v; want all, and ErrChanged", list, err)
		}
	})
}

func exec(t *testing.T, s *Grants, statement string) {
	t.Helper()
	err := s.store.DB.Write(t.Context(), func(tx state.Tx) error { _, err := tx.Exec(statement); return err })
	if err != nil {
		t.Fatal(err)
	}
}

func TestProblems(t *testing.T) {
	s := Of(keep(t, statetest.Open(t)))
	for _, tt := range []struct {
		name  string
		asked Asked
		want  []string
	}{
		{"another namespace", Asked{Subject: "a", Actions: []string{"net.open"}}, []string{`"net.open" is outside the reserved namespaces intent., memory., identity., tool., agent.`}},
		{"no name", Asked{Subject: "a", Actions: []string{"tool.", "tool", "tool.a..b"}}, []string{`"tool." is incomplete: the form of an action is NAMESPACE.NAME`, `"tool" is incomplete: the form of an action is NAMESPACE.NAME`, `"tool.a..b" is incomplete: the form of an action is NAMESPACE.NAME`}},
		{"a wildcard", Asked{Subject: "a", Actions: []string{"tool.*"}}, []string{"names exactly one action"}},
		{"white space", Asked{Subject: "a", Actions: []string{"tool.a b", "tool.a\nb"}}, []string{"invalid characters"}},
		{"too long", Asked{Subject: "a", Actions: []string{"tool." + strings.Repeat("a", 300)}}, []string{"too long"}},
		{"no action", Asked{Subject: "a"}, []string{"no action is given"}},
		{"twice", Asked{Subject: "a", Actions: []string{"tool.a", "tool.a"}}, []string{"named twice"}},
		{"several problems", Asked{Subject: "a b", Scope: "\x1b[0m", Actions: []string{"x"}}, []string{"name of a principal", "id of an agent", "outside the reserved namespaces"}},
		{"already expired", Asked{Subject: "a", Actions: []string{"tool.a"}, Expires: time.Now().Add(-time.Second)}, []string{"the expiry is in the past"}},
	} {
		_, err := s.Give(t.Context(), tt.asked, "owner@local")
		if _, ok := errors.AsType[Problems](err); !ok {
			t.Errorf("%s: Give returned %v, want Problems", tt.name, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error %q does not contain %q", tt.name, err, want)
			}
		}
	}
	if list, err := s.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("%d grants, %v", len(list), err)
	}
}

func TestTooMany(t *testing.T) {
	s := Of(keep(t, statetest.Open(t)))
	actions := make([]string, maxGrants)
	for i := range actions {
		actions[i] = "tool.a" + strings.Repeat("b", i%200) + strings.Repeat("c", i/200)
	}
	give(t, s, Asked{Subject: "me@local", Actions: actions})
	if _, err := s.Give(t.Context(), Asked{Subject: "me@local", Actions: []string{"tool.z"}}, "owner@local"); err == nil {
		t.Error("a principal can hold more than maxGrants grants")
	}
	if list, err := s.List(t.Context()); err != nil || len(list) != maxGrants {
		t.Errorf("%d grants, %v", len(list), err)
	}
}

func TestJournal(t *testing.T) {
	s := Of(keep(t, statetest.Open(t)))
	give(t, s, Asked{Subject: "me@local", Actions: []string{"tool.a", "tool.b"}, Scope: "x@local", Expires: time.Now().Add(time.Hour)})
	if _, err := s.Revoke(t.Context(), "me@local", []string{"tool.b"}, "", "other@local"); err != nil {
		t.Fatal(err)
	}
	records, err := s.store.Journal.Show(t.Context(), journal.Filter{})
	if err != nil || len(records) != 2 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	revoked, granted := records[0], records[1]
	if granted.Tool != "grant" || granted.Principal != "owner@local" || !strings.HasPrefix(granted.Detail, "me@local was granted tool.a, tool.b for x@local until ") {
		t.Errorf("the record of the grant is %+v", granted)
	}
	if revoked.Tool != "revoke" || revoked.Principal != "other@local" || revoked.Detail != "me@local no longer has tool.b" {
		t.Errorf("the record of the revocation is %+v", revoked)
	}
}

// TestInsideATransaction checks that Missing sees the changes of the transaction that its context carries.
func TestInsideATransaction(t *testing.T) {
	each(t, func(t *testing.T, s *Grants) {
		give(t, s, Asked{Subject: "me@local", Actions: []string{"tool.a"}})
		err := s.store.DB.Write(t.Context(), func(tx state.Tx) error {
			if _, err := tx.Exec(`DELETE FROM grants`); err != nil {
				return err
			}
			list, err := s.For("x").Missing(state.Within(t.Context(), tx), "me@local", []string{"tool.a"})
			if err != nil || len(list) != 1 {
				t.Errorf("Missing returned %v, %v", list, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// BenchmarkMissing measures one check of two capabilities by the gate.
func BenchmarkMissing(b *testing.B) {
	db := statetest.Open(b)
	s := Of(keep(b, db))
	if _, err := s.Give(b.Context(), Asked{Subject: "me@local", Actions: []string{"tool.a", "tool.b"}}, "owner@local"); err != nil {
		b.Fatal(err)
	}
	held := s.For("x@local")
	for b.Loop() {
		if missing, err := held.Missing(b.Context(), "me@local", []string{"tool.a", "tool.b"}); err != nil || len(missing) > 0 {
			b.Fatal(missing, err)
		}
	}
}
