package journal

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// testKey is fixed, so that the signatures are the same in every run.
var testKey = ed25519.NewKeyFromSeed([]byte("the seed of a key for tests only"))

// started is the time of the first record of a test; record i is i seconds later.
var started = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// asLog is a store that appends to a log of its own, as every process with a PostgreSQL store does.
type asLog struct {
	state.DB
	log int64
}

func (d asLog) Log() int64 { return d.log }

// open returns a journal with a fixed clock.
func open(db state.DB) *Journal {
	j := New(db, testKey, "test")
	j.now = func() time.Time { return started }
	return j
}

func sample(i int) *Record {
	r := &Record{
		Time: started.Add(time.Duration(i) * time.Second), Call: fmt.Sprintf("call-%06d", i), Agent: "shop", ID: "matrix://agent/shop",
		Digest: "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef", Principal: "ada@local",
		Tool: "list", URI: "matrix://tool/mcp/fs/list@1.0.0", SideEffect: "read", Decision: Allow,
		Arguments: json.RawMessage(`{"path":"/srv/data","depth":3}`), ArgumentsSize: 30, ResultSize: 512, DurationUS: 1234,
	}
	if i%10 == 3 {
		r.Tool, r.Decision, r.Code, r.Stage, r.Detail = "delete", Deny, "side_effect_denied", "gate", "its side effect write is not allowed"
	}
	return r
}

// fill appends n records, in transactions of up to 100 records.
func fill(t testing.TB, j *Journal, n int) {
	t.Helper()
	for done := 0; done < n; {
		batch := min(100, n-done)
		err := j.db.Write(t.Context(), func(tx state.Tx) error {
			for i := range batch {
				if _, err := j.Append(tx, sample(done+i)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		done += batch
	}
}

func newJournal(t testing.TB, records int) *Journal {
	t.Helper()
	j := open(statetest.Open(t))
	fill(t, j, records)
	return j
}

func exec(t testing.TB, j *Journal, query string, args ...any) {
	t.Helper()
	err := j.db.Write(t.Context(), func(tx state.Tx) error {
		rows, err := tx.Exec(query, args...)
		if err == nil && rows == 0 {
			err = fmt.Errorf("the statement changed no row: %s", query)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func verify(t testing.TB, j *Journal, notes ...[]byte) Report {
	t.Helper()
	r, err := j.Verify(t.Context(), Check{Checkpoints: notes})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func checkpoint(t testing.TB, j *Journal) []byte {
	t.Helper()
	text, err := j.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// saved copies the journal's tables and returns a function that restores them.
func saved(t *testing.T, j *Journal) (restore func(*testing.T)) {
	t.Helper()
	run := func(t *testing.T, statements ...string) {
		t.Helper()
		err := j.db.Write(t.Context(), func(tx state.Tx) error {
			for _, table := range []string{"leaves", "heads", "tiles", "checkpoints", "journal_values", "journal_calls"} {
				for _, s := range statements {
					if _, err := tx.Exec(strings.ReplaceAll(s, "TABLE_", table)); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, `CREATE TABLE saved_TABLE_ AS SELECT * FROM TABLE_`)
	return func(t *testing.T) {
		t.Helper()
		run(t, `DELETE FROM TABLE_`, `INSERT INTO TABLE_ SELECT * FROM saved_TABLE_`)
	}
}

// appendRecord appends a record's complete JSON.
func appendRecord(b []byte, r *Record) []byte { return appendBody(appendHead(b, r.Log, r.Seq), r) }
