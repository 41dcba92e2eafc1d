package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// each runs a test with the memory of a new store, on SQLite and on PostgreSQL.
func each(t *testing.T, test func(*testing.T, *Memory)) {
	t.Helper()
	statetest.Each(t, func(t *testing.T, open func() state.DB) { test(t, in(t, open())) })
}

// in returns the memory in a database.
func in(t *testing.T, db state.DB) *Memory {
	t.Helper()
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return New(store.New(db, keys, nil), time.Hour)
}

// asked returns a call whose caller holds the given capabilities.
func asked(held ...string) *call.Call { return &call.Call{Principal: "me@local", Held: held} }

func answer(t *testing.T, id, text string, sources ...string) call.Result {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"structuredContent": map[string]any{"intent_id": id, "status": "ok", "text": text, "sources": sources}})
	if err != nil {
		t.Fatal(err)
	}
	return call.Result{Raw: raw}
}

func keep(t *testing.T, m *Memory, agentID string, c *call.Call, r call.Result, stopped *call.Refusal) {
	t.Helper()
	p := Participant{m, &agent.Agent{ID: agentID, Program: &agent.Program{}}}
	o := call.Outcome{Result: r, Refusal: stopped}
	if err := m.store.DB.Write(t.Context(), func(tx state.Tx) error { return p.Record(tx, c, o) }); err != nil {
		t.Fatal(err)
	}
}

// texts returns the records that an agent's program reads, in the form ID=TEXT.
func texts(t *testing.T, m *Memory, agentID string) string {
	t.Helper()
	lines, _, err := m.Lines(t.Context(), agentID)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(lines)) {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, r.ID+"="+r.Text)
	}
	return strings.Join(all, " ")
}

func TestKept(t *testing.T) {
	each(t, func(t *testing.T, m *Memory) {
		keep(t, m, "a@local", asked(Write), answer(t, "1", "one\ntwo", "https://example.com"), nil)
		keep(t, m, "a@local", asked(Write), answer(t, "2", "again"), nil)
		keep(t, m, "a@local", asked(Write), answer(t, "2", "repeated with its idempotency key"), nil)
		keep(t, m, "b@local", asked(Write), answer(t, "1", "of another"), nil)
		// The answers of the following calls are not stored.
		keep(t, m, "a@local", asked(Read), answer(t, "3", "without the capability"), nil)
		keep(t, m, "a@local", asked(Write), answer(t, "4", "refused"), call.Refuse("act", call.ProgramFailed, "x"))
		keep(t, m, "a@local", asked(Write), call.Result{Raw: jsontext.Value(`{"content":[]}`)}, nil)
		keep(t, m, "a@local", asked(Write), call.Result{Raw: jsontext.Value(`{`)}, nil)
		if got := texts(t, m, "a@local"); got != "1=one\ntwo 2=again" {
			t.Errorf("the records of a@local are %q", got)
		}
		if got := texts(t, m, "b@local"); got != "1=of another" {
			t.Errorf("the records of b@local are %q", got)
		}
		if got := texts(t, m, "c@local"); got != "" {
			t.Errorf("the records of c@local are %q, want none", got)
		}
		r, err := m.Get(t.Context(), "a@local", "1")
		if err != nil || r.Issuer != "me@local" || len(r.Sources) != 1 || r.Cut || time.Since(time.UnixMilli(r.Time)) > time.Minute {
			t.Errorf("record = %+v, error %v", r, err)
		}
		if _, err := m.Get(t.Context(), "c@local", "1"); !errors.Is(err, ErrUnknown) {
			t.Errorf("error = %v, want ErrUnknown", err)
		}
	})
}

// TestMoved checks that a record is never shown if it was modified or moved to another agent.
func TestMoved(t *testing.T) {
	each(t, func(t *testing.T, m *Memory) {
		for _, change := range []string{"agent = 'b@local'", "id = '2'", "sealed = $1"} {
			keep(t, m, "a@local", asked(Write), answer(t, "1", "canary"), nil)
			err := m.store.DB.Write(t.Context(), func(tx state.Tx) error {
				var args []any
				if strings.Contains(change, "$1") {
					args = []any{[]byte("other bytes")}
				}
				_, err := tx.Exec("UPDATE memories SET "+change, args...)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			changed := 0
			for _, id := range []string{"a@local", "b@local"} {
				lines, n, err := m.Lines(t.Context(), id)
				if err != nil || len(lines) > 0 {
					t.Errorf("%s: the program of %s sees %s, error %v", change, id, lines, err)
				}
				changed += n
				if found, err := m.Search(t.Context(), id, "canary"); err != nil || len(found) > 0 {
					t.Errorf("%s: found %v %v", change, found, err)
				}
				if _, err := m.Purge(t.Context(), id, nil, time.Time{}, "owner@local"); err != nil {
					t.Fatal(err)
				}
			}
			if changed != 1 {
				t.Errorf("%s: %d records are reported as changed, want 1", change, changed)
			}
		}
	})
}

func TestForgotten(t *testing.T) {
	each(t, func(t *testing.T, m *Memory) {
		now := time.Now()
		m.now = func() time.Time { return now }
		keep(t, m, "a@local", asked(Write), answer(t, "1", "x"), nil)
		now = now.Add(time.Hour - time.Microsecond)
		if got := texts(t, m, "a@local"); got != "1=x" {
			t.Errorf("the records before the expiry are %q", got)
		}
		now = now.Add(time.Microsecond)
		if got := texts(t, m, "a@local"); got != "" {
			t.Errorf("the records after the expiry are %q", got)
		}
		keep(t, m, "a@local", asked(Write), answer(t, "2", "y"), nil)
		if n := rows(t, m); n != 1 {
			t.Errorf("%d rows are left, want 1", n)
		}
	})
}

func rows(t *testing.T, m *Memory) (n int64) {
	t.Helper()
	err := m.store.DB.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT COUNT(*) FROM memories`, nil, func(row state.Row) error { return row.Scan(&n) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestBounds(t *testing.T) {
	each(t, bounds)
}

func bounds(t *testing.T, m *Memory) {
	long := strings.Repeat("ü", MaxText) + "end"
	keep(t, m, "a@local", asked(Write), answer(t, "long", long, make([]string, MaxSources+1)...), nil)
	r, err := m.Get(t.Context(), "a@local", "long")
	if err != nil || !r.Cut || len(r.Text) > MaxText || !utf8.ValidString(r.Text) || len(r.Sources) != MaxSources {
		t.Errorf("the record has %d bytes and %d sources, cut %t, error %v", len(r.Text), len(r.Sources), r.Cut, err)
	}

	if m.maxRecords != MaxRecords || m.maxBytes != MaxBytes {
		t.Errorf("the memory has the limits of %d records and %d bytes", m.maxRecords, m.maxBytes)
	}
	// The oldest records are deleted first.
	m.maxRecords, m.maxBytes = 20, 10*MaxText
	now := time.Now()
	m.now = func() time.Time { now = now.Add(time.Microsecond); return now }
	flood(t, m, "a@local", 15, strings.Repeat("x", MaxText))
	list, err := m.List(t.Context(), "a@local")
	if err != nil || len(list) != 9 || list[0].ID != "6" { // an encrypted record is a few bytes larger than its text
		t.Errorf("%d records, error %v; want 9, beginning with 6", len(list), err)
	}
	flood(t, m, "b@local", 25, "x")
	if list, err := m.List(t.Context(), "b@local"); err != nil || len(list) != 20 || list[0].ID != "5" {
		t.Errorf("%d records, error %v; want 20, beginning with 5", len(list), err)
	}
}

// flood records n answers in one transaction.
func flood(t *testing.T, m *Memory, agentID string, n int, text string) {
	t.Helper()
	p := Participant{m, &agent.Agent{ID: agentID, Program: &agent.Program{}}}
	err := m.store.DB.Write(t.Context(), func(tx state.Tx) error {
		for i := range n {
			if err := p.Record(tx, asked(Write), call.Outcome{Result: answer(t, fmt.Sprint(i), text)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSearch(t *testing.T) {
	m := in(t, statetest.Open(t))
	keep(t, m, "a@local", asked(Write), answer(t, "1", "Landlock is a kernel feature", "https://example.com/lsm"), nil)
	keep(t, m, "a@local", asked(Write), answer(t, "2", "seccomp is another"), nil)
	for query, want := range map[string]string{
		"landlock": "1", "KERNEL landlock": "1", "lsm": "1", "is": "1 2", "landlock another": "", "me@local": "1 2", "nothing": "",
	} {
		found, err := m.Search(t.Context(), "a@local", query)
		var ids []string
		for _, r := range found {
			ids = append(ids, r.ID)
		}
		if got := strings.Join(ids, " "); err != nil || got != want {
			t.Errorf("Search(%s) = %s, %v; want %s", query, got, err, want)
		}
	}
}

func TestPurge(t *testing.T) {
	each(t, func(t *testing.T, m *Memory) {
		now := time.Now()
		m.now = func() time.Time { return now }
		for i := range 4 {
			keep(t, m, "a@local", asked(Write), answer(t, fmt.Sprint(i), "x"), nil)
			keep(t, m, "b@local", asked(Write), answer(t, fmt.Sprint(i), "x"), nil)
			now = now.Add(time.Minute)
		}
		purge := func(before time.Time, ids ...string) (int64, error) {
			return m.Purge(t.Context(), "a@local", ids, before, "owner@local")
		}
		if _, err := purge(time.Time{}, "0", "nosuch"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "nosuch") {
			t.Errorf("error = %v, want ErrUnknown with the id", err)
		}
		if got := texts(t, m, "a@local"); got != "0=x 1=x 2=x 3=x" {
			t.Errorf("a failed purge deleted records: %s", got)
		}
		if n, err := purge(time.Time{}, "2"); err != nil || n != 1 {
			t.Errorf("Purge of one id deleted %d records, error %v; want 1", n, err)
		}
		if n, err := purge(now.Add(-150 * time.Second)); err != nil || n != 2 || texts(t, m, "a@local") != "3=x" {
			t.Errorf("Purge of old records deleted %d records, error %v; %s is left", n, err, texts(t, m, "a@local"))
		}
		if n, err := purge(time.Time{}); err != nil || n != 1 {
			t.Errorf("Purge of all records deleted %d records, error %v; want 1", n, err)
		}
		if got := texts(t, m, "b@local"); got != "0=x 1=x 2=x 3=x" {
			t.Errorf("the purge deleted another agent's records: %s", got)
		}
		records, err := m.store.Journal.Show(t.Context(), journal.Filter{})
		if err != nil || len(records) != 3 || records[0].Principal != "owner@local" || records[0].ID != "a@local" || records[0].Tool != "purge" {
			t.Errorf("the journal has %d records, error %v; want 3 of the purges", len(records), err)
		}
	})
}

func TestTTL(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": DefaultTTL, "[login]\nissuer = 'x'\n": DefaultTTL, "[memory]\n": DefaultTTL,
		"[memory]\nttl = '12h'\n": 12 * time.Hour, "[memory]\nttl = '7d'\n": 7 * 24 * time.Hour,
		"[memory]\nttl = 'soon'\n": 0, "[memory]\nttl = '-1h'\n": 0, "[memory]\nttl = '0d'\n": 0, "[memory]\nttl = '99999999999d'\n": 0,
		"[memory]\nttl = '40000d'\n": 0, "[memory]\nttl = '-150000d'\n": 0, "[memory]\nttl = 5\n": 0, "[memory]\nlife = '1h'\n": 0,
	} {
		dir := t.TempDir()
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := TTL(home.At(dir))
		if (err != nil) != (want == 0) || err == nil && got != want {
			t.Errorf("TTL for %q = %s, %v; want %s", text, got, err, want)
		}
	}
}
