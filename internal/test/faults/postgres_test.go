//go:build linux

package faults

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// TestPostgresDropsConnections drops every connection to the database during a call, as a restart or failover
// does. The call has one effect and a record in the journal.
func TestPostgresDropsConnections(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		if !strings.HasPrefix(place, "postgres:") {
			t.Log("SQLite has no connections to drop: see TestStoreGone")
			return
		}
		h := newFixture(t, "", 0)
		d := h.serve("--store", place)
		type outcome struct {
			a   answer
			err error
		}
		got := make(chan outcome, 1)
		go func() { a, err := d.pay(); got <- outcome{a, err} }()
		h.until("the call has its effect", func() bool { return h.done() == 1 })
		conn, err := pgx.Connect(t.Context(), place)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
		h.open()
		o := <-got
		if o.err != nil {
			t.Fatal(o.err)
		}
		if o.a.status != 200 && (o.a.Error.Message == "" || o.a.Error.Effect == "none") {
			t.Errorf("the caller got %s", o.a.text)
		}
		h.until("the journal has the call", func() bool {
			list := h.decisions("--store", place)
			return len(list) > 0 && list[len(list)-1] != "deny"
		})
		if n := h.done(); n != 1 {
			t.Errorf("there were %d effects, want 1", n)
		}
		h.whole("--store", place)
		// The daemon can still make calls.
		go func() { a, err := d.pay(); got <- outcome{a, err} }()
		h.until("the next call has its effect", func() bool { return h.done() == 2 })
		h.open()
		if o := <-got; o.err != nil || o.a.status != 200 {
			t.Errorf("the next call returned %+v", o)
		}
	})
}
