package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/identity"
	"github.com/ambit-run/ambit/internal/journal"
	"github.com/ambit-run/ambit/internal/state"
	"github.com/ambit-run/ambit/internal/state/statetest"
)

func each(t *testing.T, test func(*testing.T, *books.Books)) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
		if err != nil {
			t.Fatal(err)
		}
		db := connect()
		test(t, &books.Books{DB: db, Keys: keys, Journal: journal.New(db, keys.Signer(), "test")})
	})
}

// question is one that is good for an hour from a time on.
func question(id, principal string, at time.Time) *Question {
	return &Question{
		ID: id, Agent: "payer", Digest: "sha256:d", Tool: "pay", Principal: principal, Call: "call-" + id,
		Arguments: json.RawMessage(`{"id":"` + id + `"}`), Asked: at, Expires: at.Add(time.Hour),
	}
}

// Nobody buries a person in questions, or keeps others from asking.
func TestPendingIsBounded(t *testing.T) {
	each(t, func(t *testing.T, b *books.Books) {
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
			t.Errorf("somebody else cannot ask: %v", err)
		}
		if err := Decide(t.Context(), b, "q1", false, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		if err := ask("more", "me", now); err != nil {
			t.Errorf("after an answer: %v", err)
		}
	})
}

// The journal says for which call it was decided.
func TestDecisionNamesItsCall(t *testing.T) {
	each(t, func(t *testing.T, b *books.Books) {
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

// What is over is deleted after a while, a little at a time; what is not stays.
func TestForget(t *testing.T) {
	each(t, func(t *testing.T, b *books.Books) {
		now := time.Now()
		for i := range 5 {
			if _, err := Ask(t.Context(), b, question(fmt.Sprint("old", i), "me", now.Add(-Kept-2*time.Hour))); err != nil {
				t.Fatal(err)
			}
		}
		for id, at := range map[string]time.Time{"new": now, "just over": now.Add(-Kept)} {
			if _, err := Ask(t.Context(), b, question(id, "me", at)); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []int{2, 2, 1, 0} {
			if n, err := Forget(t.Context(), b, now, 2); err != nil || n != want {
				t.Errorf("batch %d deleted %d, want %d: %v", i+1, n, want, err)
			}
		}
		for _, id := range []string{"new", "just over"} {
			if _, err := Get(t.Context(), b, id); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		if _, err := Get(t.Context(), b, "old0"); !errors.Is(err, ErrUnknown) {
			t.Errorf("an old one: %v", err)
		}
	})
}
