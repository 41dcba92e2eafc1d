package journal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/journal/words"
	"github.com/ambit-run/ambit/internal/state"
	"github.com/ambit-run/ambit/internal/state/statetest"
)

// counted counts the rows that reads are given.
type counted struct {
	state.DB
	rows *int
}

func (d counted) Read(ctx context.Context, f func(state.Tx) error) error {
	return d.DB.Read(ctx, func(tx state.Tx) error { return f(countedTx{tx, d.rows}) })
}

type countedTx struct {
	state.Tx
	rows *int
}

func (t countedTx) Query(query string, args []any, each func(state.Row) error) error {
	return t.Tx.Query(query, args, func(r state.Row) error { *t.rows++; return each(r) })
}

// looks tells how many rows it takes to answer.
func looks(t *testing.T, j *Journal, f Filter) (n int, found []int64) {
	t.Helper()
	db := j.db
	j.Through(counted{db, &n})
	defer j.Through(db)
	return n, seqs(show(t, j, f))
}

// rare is a record that has every word for itself.
func rare(i int) *Record {
	r := sample(i)
	r.Call, r.Agent, r.ID, r.Digest, r.Principal, r.Tool, r.URI = "a rare call", "rare", "matrix://agent/rare", "sha256:rare", "eve@local", "once", "matrix://tool/mcp/fs/once@1.0.0"
	r.Decision, r.Code = Unknown, "outcome_unknown"
	return r
}

var rareFilters = map[string]Filter{
	"tool": {Tool: "once"}, "URI": {Tool: "matrix://tool/mcp/fs/once@1.0.0"}, "agent": {Agent: "rare"}, "id": {Agent: "matrix://agent/rare"},
	"digest": {Agent: "sha256:rare"}, "principal": {Principal: "eve@local"}, "code": {Code: "outcome_unknown"}, "decision": {Decision: Unknown},
	"two of them": {Tool: "once", Agent: "shop"}, "nothing": {Tool: "never"},
}

func appendOne(t testing.TB, j *Journal, r *Record) {
	t.Helper()
	if err := j.db.Write(t.Context(), func(tx state.Tx) error { _, err := j.Append(tx, r); return err }); err != nil {
		t.Fatal(err)
	}
}

// A rare record is found without reading the log: with four times the records
// there are no more than a few rows more to look at.
func TestRareRecordsAreFoundInFewRows(t *testing.T) {
	statetest.Each(t, func(t *testing.T, opened func() state.DB) {
		j := open(opened())
		appendOne(t, j, rare(0))
		const size = 4400
		fill(t, j, size)
		want := map[string][]int64{"two of them": nil, "nothing": nil}
		first := map[string]int{}
		for name, f := range rareFilters {
			rows, found := looks(t, j, f)
			first[name] = rows
			if w, ok := want[name]; !ok && !slices.Equal(found, []int64{0}) || ok && !slices.Equal(found, w) {
				t.Errorf("%s: found %v", name, found)
			}
			// The newest records, which make up no block yet, the rows of words, and one block.
			if most := size%blockSize + 4*fan + blockSize + 10; rows > most {
				t.Errorf("%s: %d rows were looked at, not %d", name, rows, most)
			}
		}
		fill(t, j, 3*page)
		for name, f := range rareFilters {
			if rows, _ := looks(t, j, f); rows > first[name]+2*fan {
				t.Errorf("%s: %d rows were looked at, and %d before", name, rows, first[name])
			}
		}
		if rows, _ := looks(t, j, Filter{Call: "a rare call"}); rows > (size+3*page)/blockSize+2*blockSize+100 {
			t.Errorf("call: %d rows were looked at", rows)
		}
		// One of each block, and all of the first.
		if rows, found := looks(t, j, Filter{Until: started.Add(-late - time.Hour), Limit: 1}); found != nil || rows > (size+3*page)/blockSize+blockSize+40 {
			t.Errorf("until: %d rows were looked at for %v", rows, found)
		}
	})
}

// The same with more levels of words than a test has records for.
func TestBlocksAreFoundOnEveryLevel(t *testing.T) {
	j := open(statetest.Open(t))
	const blocks = fan*fan*fan + 3*fan*fan + 5*fan + 7
	row := func(text string) words.Row {
		var s words.Set
		s.Record([]byte(text))
		return s.Keep()
	}
	rnd := rand.New(rand.NewPCG(3, 3))
	var there []int64
	err := j.db.Write(t.Context(), func(tx state.Tx) error {
		there = there[:0]
		for n := range int64(blocks) {
			kept := row(fmt.Sprintf(`{"agent":"common","tool":"tool-%d"}`, n))
			if n == 0 || rnd.IntN(700) == 0 {
				kept = row(`{"agent":"common","tool":"odd"}`)
				there = append(there, n)
			}
			if err := addWords(tx, 0, n, kept); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := Filter{Agent: "common", Tool: "odd"}
	s := &seeker{j: j}
	s.words, s.rare = ask.words()
	for range 200 {
		n := rnd.Int64N(blocks + 1)
		want := int64(-1)
		for _, at := range there {
			if at < n {
				want = at
			}
		}
		rows := 0
		err := j.db.Read(t.Context(), func(tx state.Tx) error {
			got, err := s.climb(countedTx{tx, &rows}, n)
			if got != want {
				t.Errorf("before %d: %d, want %d", n, got, want)
			}
			return err
		})
		if err != nil || rows > 8*fan {
			t.Errorf("before %d: %d rows, %v", n, rows, err)
		}
	}
}

// Words are looked up by their key.
func TestWordsAreLookedUp(t *testing.T) {
	j := newJournal(t, 1)
	var plan string
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query("EXPLAIN QUERY PLAN "+wordsOf, []any{int64(0), int64(0), int64(0), int64(1)}, func(r state.Row) error {
			var id, parent, unused int64
			var step string
			err := r.Scan(&id, &parent, &unused, &step)
			plan += step + "\n"
			return err
		})
	})
	if err != nil || !strings.HasPrefix(plan, "SEARCH words USING INDEX") || strings.Count(plan, "\n") != 1 || !strings.Contains(plan, "log=? AND level=? AND n>? AND n<?") {
		t.Errorf("%v: %s", err, plan)
	}
}

// Whatever rows of words are there, a filter finds what reading every record finds,
// and page by page the same.
func TestFiltersFindWhatIsThere(t *testing.T) {
	statetest.Each(t, func(t *testing.T, opened func() state.DB) {
		rnd := rand.New(rand.NewPCG(7, 7))
		j := open(opened())
		const size = page + 1500
		log := j.db.Log()
		var all []*Record
		for from := 0; from < size; from += 100 {
			err := j.db.Write(t.Context(), func(tx state.Tx) error {
				all = all[:from]
				for i := from; i < min(from+100, size); i++ {
					r := sample(i)
					r.Tool = fmt.Sprintf("tool-%d", int(rnd.ExpFloat64()*40))
					r.Principal = fmt.Sprintf("p%d\"é@local", i/1000)
					if _, err := j.Append(tx, r); err != nil {
						return err
					}
					all = append(all, r)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		filters := []Filter{{Tool: "tool-100", Limit: 3}, {Tool: "tool-200", Limit: 1000}, {Principal: "p1\"é@local", Limit: 90}, {Principal: "p0\"é@local", Tool: "tool-90", Limit: 2}, {Call: "call-000077", Limit: 1}, {Decision: Deny, Tool: "tool-3", Limit: 50}}
		check := func(t *testing.T) {
			t.Helper()
			for _, f := range filters {
				var want []int64
				for _, r := range slices.Backward(all) {
					if f.matches(&Entry{Record: *r}) {
						want = append(want, r.Seq)
					}
				}
				var got []int64
				f.Before = Ends{log: size}
				for pages := 0; ; pages++ {
					found := seqs(show(t, j, f))
					got = append(got, found...)
					if len(found) == 0 || pages > size {
						break
					}
					f.Before = Ends{log: found[len(found)-1]}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%+v: %d found, %d there", f, len(got), len(want))
				}
			}
		}
		check(t)
		exec(t, j, `DELETE FROM words WHERE n % 3 = 1`)
		check(t)
		exec(t, j, `DELETE FROM words WHERE level = 1`)
		check(t)
		exec(t, j, `DELETE FROM words`)
		check(t)
		if r := verify(t, j); !r.OK {
			t.Errorf("%+v", r)
		}
	})
}

// A journal that was written without words gets them where somebody asks, once.
func TestWordsAreMadeWhereTheyAreMissing(t *testing.T) {
	statetest.Each(t, func(t *testing.T, opened func() state.DB) {
		j := open(opened())
		appendOne(t, j, rare(0))
		fill(t, j, page+blockSize)
		exec(t, j, `DELETE FROM words`)
		before, found := looks(t, j, Filter{Tool: "once"})
		after, again := looks(t, j, Filter{Tool: "once"})
		if !slices.Equal(found, []int64{0}) || !slices.Equal(again, found) || after > 2*blockSize+2*fan || after > before {
			t.Errorf("%v in %d rows, then %v in %d", found, before, again, after)
		}
	})
}

// Where words cannot be kept, records are read.
func TestFiltersBearAStoreThatCannotBeWritten(t *testing.T) {
	j := newJournal(t, page+10)
	exec(t, j, `DELETE FROM words`)
	j.Through(unwritable{j.db})
	if got := seqs(show(t, j, Filter{Call: "call-000003"})); !slices.Equal(got, []int64{3}) {
		t.Errorf("%v", got)
	}
}

// Where records are missing, their words cannot be made, and the others are read.
func TestFiltersBearMissingRecords(t *testing.T) {
	statetest.Each(t, func(t *testing.T, opened func() state.DB) {
		j := open(opened())
		fill(t, j, page+10)
		log := j.db.Log()
		exec(t, j, `DELETE FROM leaves WHERE place = $1`, place(log, 100))
		exec(t, j, `DELETE FROM words`)
		writes := 0
		j.Through(boundedWrites{j.db, &writes})
		for name, f := range map[string]Filter{"call-000003": {Call: "call-000003"}, "call-004000": {Call: "call-004000"}, "": {Tool: "never"}} {
			writes = 0
			found := show(t, j, f)
			if name == "" && found != nil || name != "" && (len(found) != 1 || found[0].Call != name) {
				t.Errorf("%+v: found %v", f, found)
			}
			if writes != 1 {
				t.Errorf("%+v: %d attempts to keep words", f, writes)
			}
		}
	})
}

// boundedWrites counts writes, and refuses when they are too many.
type boundedWrites struct {
	state.DB
	n *int
}

func (d boundedWrites) Write(ctx context.Context, do func(state.Tx) error) error {
	if *d.n++; *d.n > 20 {
		return state.ErrReadOnly
	}
	return d.DB.Write(ctx, do)
}

type unwritable struct{ state.DB }

func (unwritable) Write(context.Context, func(state.Tx) error) error { return state.ErrReadOnly }

// A record in another form than ours may hold any word.
func TestRecordsInAnotherFormAreNotPassedOver(t *testing.T) {
	j := newJournal(t, 3*blockSize)
	record := []byte(`{"log":0,"seq":5, "time":"2026-03-01T12:00:05Z", "tool": "spaced"}`)
	hash := tlog.RecordHash(record)
	exec(t, j, `UPDATE leaves SET record = $1, hash = $2 WHERE place = 5`, record, hash[:])
	exec(t, j, `UPDATE leaves SET record = 'x' WHERE place = 300`)
	exec(t, j, `DELETE FROM words`)
	err := j.db.Write(t.Context(), func(tx state.Tx) error {
		for n := range int64(3) {
			if err := addWords(tx, 0, n, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := seqs(show(t, j, Filter{Tool: "spaced"})); !slices.Equal(got, []int64{5}) {
		t.Errorf("%v", got)
	}
}

// holdingEve are the levels of the rows that hold the principal of a rare record.
func holdingEve(t *testing.T, j *Journal) (levels []int64) {
	t.Helper()
	eve := words.Of(words.Principal, []byte(`"eve@local"`))
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT level, sums FROM words ORDER BY level`, nil, func(r state.Row) error {
			var level int64
			var sums []byte
			err := r.Scan(&level, &sums)
			if words.Row(sums).May([]words.Sum{eve}) {
				levels = append(levels, level)
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return levels
}

// What was erased before its block was complete is not in the block's words, whether
// this process erased it or another.
func TestErasedRecordsOfABlockToComeLeaveNoWords(t *testing.T) {
	for _, tt := range []struct {
		name string
		by   func(*Journal) *Journal
	}{
		{"this process", func(j *Journal) *Journal { return j }},
		{"another process", func(j *Journal) *Journal { return open(j.db) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// The erasing is recorded in log 0. A writer of that would find the log grown, and read it.
			j := open(asLog{statetest.Open(t), 1})
			appendOne(t, j, rare(0))
			if n, err := tt.by(j).Erase(t.Context(), started.Add(time.Second/2), "ada@local"); err != nil || n != 1 {
				t.Fatalf("%d erased, %v", n, err)
			}
			fill(t, j, blockSize)
			if got := holdingEve(t, j); got != nil {
				t.Errorf("a row of level %v has what was erased", got)
			}
			if rows, got := looks(t, j, Filter{Call: "call-000011"}); !slices.Equal(got, []int64{12}) {
				t.Errorf("%v in %d rows", got, rows)
			}
			if r := verify(t, j); !r.OK {
				t.Errorf("%+v", r)
			}
		})
	}
}

// What was erased cannot be guessed from its words.
func TestErasedRecordsLeaveNoWords(t *testing.T) {
	j := open(statetest.Open(t))
	appendOne(t, j, rare(0))
	fill(t, j, page+blockSize)
	if got := holdingEve(t, j); !slices.Equal(got, []int64{0, 1}) {
		t.Fatalf("before: %v", got)
	}
	if _, err := j.Erase(t.Context(), started.Add(10*time.Second), "ada@local"); err != nil {
		t.Fatal(err)
	}
	if got := holdingEve(t, j); got != nil {
		t.Errorf("after: %v", got)
	}
	if r := verify(t, j); !r.OK {
		t.Errorf("%+v", r)
	}
	if rows, got := looks(t, j, Filter{Call: "call-000011"}); !slices.Equal(got, []int64{12}) {
		t.Errorf("%v in %d rows", got, rows)
	}
}

// Words that leave something out could hide a record.
func TestVerifyFindsChangedWords(t *testing.T) {
	j := open(statetest.Open(t))
	fill(t, j, 2*page)
	restore := saved(t, j)
	for _, tt := range []struct {
		name, change string
		seq          int64
	}{
		{"of a block", `UPDATE words SET sums = $1 WHERE level = 0 AND n = 3`, 3 * blockSize},
		{"of a level above", `UPDATE words SET sums = $1 WHERE level = 1 AND n = 1`, page},
	} {
		t.Run(tt.name, func(t *testing.T) {
			exec(t, j, tt.change, []byte{})
			if r := verify(t, j); r.OK || r.FirstBad == nil || r.FirstBad.Seq != tt.seq || !strings.Contains(r.Problem, "words") {
				t.Errorf("%+v", r)
			}
			restore(t)
			if r := verify(t, j); !r.OK {
				t.Errorf("%+v", r)
			}
		})
	}
}

// What is written can be read, whatever it is made of: every word that a filter may
// ask for is there.
func TestOwnRecordsHaveTheirWords(t *testing.T) {
	for _, tt := range []struct{ tool, agent, principal, args string }{
		{"list", "shop", "ada@local", `{"a":["x",{"b":"}"}],"tool":"other"}`},
		{"a\"b\\", "\x00é", "\xff", `"\\\""`},
		{"", "", "", `[`},
		{"a,b", "{", "]", "{\n}"},
	} {
		r := sample(3)
		r.Tool, r.Agent, r.Principal, r.Arguments = tt.tool, tt.agent, tt.principal, []byte(tt.args)
		r.Capabilities = &Capabilities{Required: []string{"a\"", "b"}, Held: []string{"c"}}
		var s words.Set
		s.Record(appendRecord(nil, r))
		row := s.Keep()
		ask := Filter{Principal: tt.principal, Tool: tt.tool, Agent: tt.agent, Code: r.Code, Decision: r.Decision, Call: r.Call}
		if all, _ := ask.words(); !row.May(all) {
			t.Errorf("%+v: some word is missing", tt)
		}
		never := Filter{Tool: "other"}
		if all, _ := never.words(); row.May(all) {
			t.Errorf("%+v: it could not be read, or what stands deeper was taken", tt)
		}
	}
}
