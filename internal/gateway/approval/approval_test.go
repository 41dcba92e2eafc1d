package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

func each(t *testing.T, test func(*testing.T, *store.Store)) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
		if err != nil {
			t.Fatal(err)
		}
		db := connect()
		test(t, &store.Store{DB: db, Keys: keys, Journal: journal.New(db, keys.Signer(), "test")})
	})
}

// question is one that is good for an hour from a time on.
func question(id, principal string, at time.Time) *Question {
	return &Question{
		ID: id, Agent: "payer", Digest: "sha256:d", Tool: "pay", Principal: principal, Call: "call-" + id,
		Arguments: json.RawMessage(`{"id":"` + id + `"}`), Asked: at, Expires: at.Add(time.Hour),
	}
}

// The number of pending questions is bounded, separately for each agent and principal.
func TestPendingIsBounded(t *testing.T) {
	each(t, func(t *testing.T, b *store.Store) {
		now := time.Now()
		ask := func(id, principal string, at time.Time) error {
			_, err := Ask(t.Context(), b, question(id, principal, at))
			return err
		}
		if err := ask("long ago", "me", now.Add(-2*time.Hour)); err != nil { // which does not count any more
			t.Fatal(err)
		}
		for i := range maxPending {
			if err := ask(fmt.Sprint("q", i), "me", now); err != nil {
				t.Fatalf("question %d: %v", i+1, err)
			}
		}
		if err := ask("more", "me", now); !errors.Is(err, ErrTooMany) {
			t.Errorf("one more was asked: %v", err)
		}
		if asked, err := Ask(t.Context(), b, &Question{
			ID: "again", Agent: "payer", Digest: "sha256:d", Tool: "pay", Principal: "me", Arguments: json.RawMessage(`{"id":"q0"}`), Asked: now, Expires: now.Add(time.Hour),
		}); err != nil || asked.ID != "q0" {
			t.Errorf("the same question again is %+v, %v", asked, err)
		}
		if err := ask("yours", "you", now); err != nil {
			t.Errorf("another principal cannot ask: %v", err)
		}
		if err := Decide(t.Context(), b, "q1", false, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		if err := ask("more", "me", now); err != nil {
			t.Errorf("after an answer: %v", err)
		}
	})
}

// The bytes of pending questions are bounded, and expired questions do not count.
func TestPendingBytesAreBounded(t *testing.T) {
	each(t, func(t *testing.T, b *store.Store) {
		now := time.Now()
		ask := func(id, principal string, at time.Time, size int) error {
			q := question(id, principal, at)
			q.Arguments = json.RawMessage(`{"id":"` + id + strings.Repeat("x", size) + `"}`)
			_, err := Ask(t.Context(), b, q)
			return err
		}
		const half = maxPendingBytes/2 - 512
		if err := ask("long ago", "me", now.Add(-2*time.Hour), 512); err != nil { // which does not count any more
			t.Fatal(err)
		}
		for _, id := range []string{"first", "second"} {
			if err := ask(id, "me", now, half); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
		}
		if n := kept(t, b, "long ago"); n != 0 {
			t.Errorf("%d bytes of an expired question are kept", n)
		}
		if err := ask("third", "me", now, 2048); !errors.Is(err, ErrTooMany) || !strings.Contains(fmt.Sprint(err), "exceed 32 MiB") {
			t.Errorf("one more was asked: %v", err)
		}
		if err := ask("yours", "you", now, 2048); err != nil {
			t.Errorf("another principal cannot ask: %v", err)
		}
		for id, yes := range map[string]bool{"first": false, "second": true} {
			if err := Decide(t.Context(), b, id, yes, "boss@local", ""); err != nil {
				t.Fatal(err)
			}
			if n := kept(t, b, id); n != 0 {
				t.Errorf("%d bytes of a question are kept that was answered %v", n, yes)
			}
			if q, err := Get(t.Context(), b, id); err != nil || q.Arguments != nil || q.Decider != "boss@local" {
				t.Errorf("after the answer it is %+v, %v", q, err)
			}
		}
		if err := ask("third", "me", now, 2048); err != nil {
			t.Errorf("after the answers: %v", err)
		}
		// An answer is bound to arguments that are not kept.
		same := question("second again", "me", now)
		same.Arguments = json.RawMessage(`{"id":"second` + strings.Repeat("x", half) + `"}`)
		if q, err := Ask(t.Context(), b, same); err != nil || q.ID != "second" || q.State != Approved {
			t.Errorf("the call that was approved gets %+v, %v", q, err)
		}
	})
}

// kept is how many bytes the store holds of a question's arguments.
func kept(t *testing.T, b *store.Store, id string) (n int64) {
	t.Helper()
	err := b.DB.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT COALESCE(LENGTH(sealed), 0) FROM approvals WHERE id = $1`, []any{id}, func(row state.Row) error { return row.Scan(&n) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Counting questions and waiting for an answer decrypt no arguments: both work without
// the key.
func TestCountingOpensNothing(t *testing.T) {
	each(t, func(t *testing.T, b *store.Store) {
		now := time.Now()
		if _, err := Ask(t.Context(), b, question("q", "me", now)); err != nil {
			t.Fatal(err)
		}
		keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "other"))
		if err != nil {
			t.Fatal(err)
		}
		other := &store.Store{DB: b.DB, Keys: keys, Journal: b.Journal}
		if list, err := Waiting(t.Context(), other, now); err != nil || len(list) != 1 || list[0].ID != "q" || list[0].sealed != nil || list[0].Arguments != nil {
			t.Errorf("there wait %+v, %v", list, err)
		}
		if q, err := Look(t.Context(), other, "q"); err != nil || q.State != Pending || q.sealed != nil || q.Arguments != nil {
			t.Errorf("it is %+v, %v", q, err)
		}
		if _, err := List(t.Context(), other, now); err == nil {
			t.Error("the arguments were opened with another key")
		}
		if list, err := List(t.Context(), b, now); err != nil || len(list) != 1 || string(list[0].Arguments) != `{"id":"q"}` {
			t.Errorf("there wait %+v, %v", list, err)
		}
	})
}

// The journal says for which call it was decided.
func TestDecisionNamesItsCall(t *testing.T) {
	each(t, func(t *testing.T, b *store.Store) {
		if _, err := Ask(t.Context(), b, question("q", "me", time.Now())); err != nil {
			t.Fatal(err)
		}
		if err := Decide(t.Context(), b, "q", true, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		list, err := b.Journal.Show(t.Context(), journal.Filter{Call: "q"})
		if err != nil || len(list) != 1 || list[0].Parent != "call-q" || list[0].Principal != "boss@local" || list[0].Stage != "approve" {
			t.Errorf("the journal has %+v, %v", list, err)
		}
		if q, err := Get(t.Context(), b, "q"); err != nil || q.Call != "call-q" {
			t.Errorf("the question is %+v, %v", q, err)
		}
	})
}

// Expired questions lose their arguments and are deleted later, a few at a time; others
// stay.
func TestForget(t *testing.T) {
	each(t, func(t *testing.T, b *store.Store) {
		now := time.Now()
		for i := range 5 {
			if _, err := Ask(t.Context(), b, question(fmt.Sprint("old", i), "me", now.Add(-Kept-2*time.Hour))); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Ask(t.Context(), b, question("new", "me", now))
		if err == nil { // asked last, since the next question takes the arguments of one that is over
			_, err = Ask(t.Context(), b, question("just over", "me", now.Add(-Kept)))
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{2, 2, 2, 0} { // the last of them lost only its arguments
			if n, err := Forget(t.Context(), b, now, 2); err != nil || n != want {
				t.Errorf("batch %d deleted %d, want %d: %v", i+1, n, want, err)
			}
		}
		for id, want := range map[string]string{"new": `{"id":"new"}`, "just over": ""} {
			if q, err := Get(t.Context(), b, id); err != nil || string(q.Arguments) != want {
				t.Errorf("%s: %+v, %v", id, q, err)
			}
		}
		if _, err := Get(t.Context(), b, "old0"); !errors.Is(err, ErrUnknown) {
			t.Errorf("an old one: %v", err)
		}
	})
}
