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
		test(t, store.New(db, keys, nil))
	})
}

// question returns a question that is asked at the given time and expires an hour later.
func question(id, principal string, at time.Time) *Question {
	return &Question{
		ID: id, Agent: "payer", Digest: "sha256:d", Tool: "pay", Principal: principal, Call: "call-" + id,
		Arguments: json.RawMessage(`{"id":"` + id + `"}`), Asked: at, Expires: at.Add(time.Hour),
	}
}

// The number of pending questions is limited, separately for each agent and principal.
func TestPendingIsBounded(t *testing.T) {
	each(t, func(t *testing.T, b *store.Store) {
		now := time.Now()
		ask := func(id, principal string, at time.Time) error {
			_, err := Ask(t.Context(), b, question(id, principal, at))
			return err
		}
		if err := ask("long ago", "me", now.Add(-2*time.Hour)); err != nil { // an expired question does not count
			t.Fatal(err)
		}
		for i := range maxPending {
			if err := ask(fmt.Sprint("q", i), "me", now); err != nil {
				t.Fatalf("question %d: %v", i+1, err)
			}
		}
		if err := ask("more", "me", now); !errors.Is(err, ErrTooMany) {
			t.Errorf("a question above the limit returned %v, want ErrTooMany", err)
		}
		if asked, err := Ask(t.Context(), b, &Question{
			ID: "again", Agent: "payer", Digest: "sha256:d", Tool: "pay", Principal: "me", Arguments: json.RawMessage(`{"id":"q0"}`), Asked: now, Expires: now.Add(time.Hour),
		}); err != nil || asked.ID != "q0" {
			t.Errorf("asking an identical question returned %+v, %v", asked, err)
		}
		if err := ask("yours", "you", now); err != nil {
			t.Errorf("another principal cannot ask: %v", err)
		}
		if err := Decide(t.Context(), b, "q1", false, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		if err := ask("more", "me", now); err != nil {
			t.Errorf("asking after an answer failed: %v", err)
		}
	})
}

// The total size of the arguments of pending questions is limited. Expired questions do not count.
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
		if err := ask("long ago", "me", now.Add(-2*time.Hour), 512); err != nil { // an expired question does not count
			t.Fatal(err)
		}
		for _, id := range []string{"first", "second"} {
			if err := ask(id, "me", now, half); err != nil {
				t.Fatalf("asking %s failed: %v", id, err)
			}
		}
		if n := kept(t, b, "long ago"); n != 0 {
			t.Errorf("%d bytes of an expired question are still stored", n)
		}
		if err := ask("third", "me", now, 2048); !errors.Is(err, ErrTooMany) || !strings.Contains(fmt.Sprint(err), "exceed 32 MiB") {
			t.Errorf("a question above the limit returned %v, want ErrTooMany", err)
		}
		if err := ask("yours", "you", now, 2048); err != nil {
			t.Errorf("another principal cannot ask: %v", err)
		}
		for id, yes := range map[string]bool{"first": false, "second": true} {
			if err := Decide(t.Context(), b, id, yes, "boss@local", ""); err != nil {
				t.Fatal(err)
			}
			if n := kept(t, b, id); n != 0 {
				t.Errorf("%d bytes are still stored of a question that was answered with %v", n, yes)
			}
			if q, err := Get(t.Context(), b, id); err != nil || q.Arguments != nil || q.Decider != "boss@local" {
				t.Errorf("the answered question is %+v, %v", q, err)
			}
		}
		if err := ask("third", "me", now, 2048); err != nil {
			t.Errorf("asking after the answers failed: %v", err)
		}
		// An approval still applies to an identical call although its arguments are no longer stored.
		same := question("second again", "me", now)
		same.Arguments = json.RawMessage(`{"id":"second` + strings.Repeat("x", half) + `"}`)
		if q, err := Ask(t.Context(), b, same); err != nil || q.ID != "second" || q.State != Approved {
			t.Errorf("asking again about an approved call returned %+v, %v; want the approved question", q, err)
		}
	})
}

// kept returns how many bytes of a question's arguments are stored.
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

// Waiting and Look decrypt no arguments, so they work without the key.
func TestCountingDecryptsNothing(t *testing.T) {
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
			t.Errorf("Waiting returned %+v, %v; want one question without arguments", list, err)
		}
		if q, err := Look(t.Context(), other, "q"); err != nil || q.State != Pending || q.sealed != nil || q.Arguments != nil {
			t.Errorf("the question is %+v, %v", q, err)
		}
		if list, err := List(t.Context(), other, now); err != nil || len(list) != 0 {
			t.Errorf("with another key, the pending questions are %+v, %v; want none", list, err)
		}
		if list, err := List(t.Context(), b, now); err != nil || len(list) != 1 || string(list[0].Arguments) != `{"id":"q"}` {
			t.Errorf("the pending questions are %+v, %v", list, err)
		}
	})
}

// A question is marked when its last caller leaves. A denial that no caller heard is returned once.
func TestLeave(t *testing.T) {
	each(t, func(t *testing.T, b *store.Store) {
		now := time.Now()
		ask := func(id string, want State) {
			t.Helper()
			q := question("q", "me", now)
			q.ID = id
			if asked, err := Ask(t.Context(), b, q); err != nil || asked.State != want {
				t.Fatalf("asking returned %+v, %v; want a question that is %s", asked, err, want)
			}
		}
		left := func(want bool) {
			t.Helper()
			if err := Leave(t.Context(), b, "q", false, now); err != nil {
				t.Fatal(err)
			}
			if q, err := Look(t.Context(), b, "q"); err != nil || !q.Left.IsZero() != want {
				t.Errorf("the last caller left at %v (%v), want a time: %t", q.Left, err, want)
			}
		}
		ask("q", "")
		ask("q2", Pending)
		left(false)
		left(true)
		ask("q3", Pending)
		left(true)
		if err := Decide(t.Context(), b, "q", false, "boss@local", "not today"); err != nil {
			t.Fatal(err)
		}
		list, err := b.Journal.Show(t.Context(), journal.Filter{Call: "q"})
		if err != nil || len(list) != 1 || list[0].Detail != "a call by me was refused by boss@local: not today" {
			t.Errorf("the journal has %+v, %v", list, err)
		}
		ask("q4", Denied)
		ask("q5", "") // the denial was returned once, so the next call asks again
		deny := func(id string, heard bool) {
			t.Helper()
			err := Decide(t.Context(), b, id, false, "boss@local", "")
			if err == nil {
				err = Leave(t.Context(), b, id, heard, now)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		deny("q5", true)
		ask("q6", "") // the caller that waited got the denial
		deny("q6", false)
		ask("q7", Denied) // the caller stopped waiting just before the denial
		ask("q8", "")
		if err := Decide(t.Context(), b, "q8", false, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		ask("q9", Denied) // the process of the caller died
	})
}

// The journal record of a decision names the call that was decided.
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

// Forget deletes the arguments of expired questions, and later the questions, in small batches. Other questions stay.
func TestForget(t *testing.T) {
	each(t, func(t *testing.T, b *store.Store) {
		now := time.Now()
		for i := range 5 {
			if _, err := Ask(t.Context(), b, question(fmt.Sprint("old", i), "me", now.Add(-Kept-2*time.Hour))); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Ask(t.Context(), b, question("new", "me", now))
		if err == nil { // asked last, because asking deletes the arguments of expired questions
			_, err = Ask(t.Context(), b, question("just over", "me", now.Add(-Kept)))
		}
		if err != nil {
			t.Fatal(err)
		}
		// Forget deletes five questions, and the arguments of a sixth.
		for i, want := range []int{2, 2, 2, 0} {
			if n, err := Forget(t.Context(), b, now, 2); err != nil || n != want {
				t.Errorf("batch %d changed %d questions, want %d: %v", i+1, n, want, err)
			}
		}
		for id, want := range map[string]string{"new": `{"id":"new"}`, "just over": ""} {
			if q, err := Get(t.Context(), b, id); err != nil || string(q.Arguments) != want {
				t.Errorf("the question %s is %+v, %v", id, q, err)
			}
		}
		if _, err := Get(t.Context(), b, "old0"); !errors.Is(err, ErrUnknown) {
			t.Errorf("getting an old question returned %v, want ErrUnknown", err)
		}
	})
}

// An attacker who writes to the store cannot approve a call, use an approval twice, or make a person approve a call
// other than the one that the person sees.
func TestAnswersOfOthers(t *testing.T) {
	each(t, func(t *testing.T, b *store.Store) {
		now := time.Now()
		exec := func(statement string) {
			t.Helper()
			err := b.DB.Write(t.Context(), func(tx state.Tx) error { _, err := tx.Exec(statement); return err })
			if err != nil {
				t.Fatal(err)
			}
		}
		useFor := func(id string, made *Question) (good bool) {
			t.Helper()
			err := b.DB.Write(t.Context(), func(tx state.Tx) (err error) {
				good, err = Use(tx, b, id, made, now)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return good
		}
		use := func(id string) bool { t.Helper(); return useFor(id, question(id, "me", now)) }
		ask := func(id string) *Question {
			t.Helper()
			q, err := Ask(t.Context(), b, question(id, "me", now))
			if err != nil {
				t.Fatal(err)
			}
			return q
		}
		ask("forged")
		exec(`UPDATE approvals SET state = 'approved', decider = 'boss@local'`)
		if use("forged") {
			t.Error("a call was approved by a change of its row")
		}
		again := question("again", "me", now)
		again.Arguments = question("forged", "me", now).Arguments
		if q, err := Ask(t.Context(), b, again); err != nil || q.ID != "again" {
			t.Errorf("the call with the forged approval got %+v, %v; want a new question", q, err)
		}
		ask("used")
		if err := Decide(t.Context(), b, "used", true, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		restore := statetest.Keep(t, b.DB, "approvals")
		if useFor("used", question("another", "me", now)) || useFor("used", question("used", "eve", now)) {
			t.Error("an approval was used for another call")
		}
		if !use("used") {
			t.Fatal("the approval has no effect")
		}
		restore()
		if use("used") {
			t.Error("an approval was used twice after its row was restored")
		}
		ask("over")
		exec(`UPDATE approvals SET expires = expires + 1000000000 WHERE id = 'over'`)
		if err := Decide(t.Context(), b, "over", true, "boss@local", ""); !errors.Is(err, ErrUnknown) {
			t.Errorf("deciding a question that was extended returned %v, want ErrUnknown", err)
		}
		// The person would approve "harmless", and the row would approve the call of "harmful".
		ask("harmful")
		ask("harmless")
		exec(`UPDATE approvals SET mac = (SELECT mac FROM approvals WHERE id = 'harmful') WHERE id = 'harmless'`)
		exec(`UPDATE approvals SET tool = 'look' WHERE id = 'harmful'`)
		for _, id := range []string{"harmless", "harmful"} {
			if err := Decide(t.Context(), b, id, true, "boss@local", ""); !errors.Is(err, ErrUnknown) {
				t.Errorf("deciding the changed question %s returned %v, want ErrUnknown", id, err)
			}
		}
		list, err := List(t.Context(), b, now)
		if err != nil || len(list) != 1 || list[0].ID != "again" {
			t.Errorf("the pending questions are %+v, %v; want only the unchanged one", list, err)
		}
	})
}

// A person approves the call that they have read, even if someone who can write to the store replaces its question with
// the question about another call that has the same arguments.
func TestReplacedQuestion(t *testing.T) {
	for _, columns := range []string{"agent, digest, tool, principal, mac, call", "call"} {
		t.Run(columns, func(t *testing.T) {
			each(t, func(t *testing.T, b *store.Store) {
				now := time.Now()
				seen, other := question("seen", "me", now), question("other", "me", now)
				other.Agent, other.Digest, other.Tool, other.Principal = "bank", "sha256:e", "pay_all", "you"
				other.Arguments = seen.Arguments
				for _, q := range []*Question{seen, other} {
					if _, err := Ask(t.Context(), b, q); err != nil {
						t.Fatal(err)
					}
				}
				err := b.DB.Write(t.Context(), func(tx state.Tx) error {
					for _, column := range strings.Split(columns, ", ") {
						if _, err := tx.Exec(`UPDATE approvals SET ` + column + ` = (SELECT ` + column +
							` FROM approvals WHERE id = 'other') WHERE id = 'seen'`); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := Decide(t.Context(), b, "seen", true, "boss@local", ""); !errors.Is(err, ErrUnknown) {
					t.Errorf("approving the replaced question returned %v, want ErrUnknown", err)
				}
			})
		})
	}
}
