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

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// counted counts the rows that read transactions get.
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

// looks runs a query. It returns the number of rows read and the sequence numbers of the found records.
func looks(t *testing.T, j *Journal, f Filter) (n int, found []int64) {
	t.Helper()
	db := j.db
	j.Through(counted{db, &n})
	defer j.Through(db)
	return n, seqs(show(t, j, f))
}

// rare returns a record whose values occur in no other record.
func rare(i int) *Record {
	r := sample(i)
	r.Call, r.Agent, r.ID, r.Digest, r.Principal, r.Tool, r.URI = "a rare call", "rare", "matrix://agent/rare", "sha256:rare", "eve@local", "once", "matrix://tool/mcp/fs/once@1.0.0"
	r.Decision, r.Code = Unknown, "outcome_unknown"
	return r
}

var rareFilters = map[string]Filter{
	"tool": {Tool: "once"}, "URI": {Tool: "matrix://tool/mcp/fs/once@1.0.0"}, "agent": {Agent: "rare"}, "id": {Agent: "matrix://agent/rare"},
	"digest": {Agent: "sha256:rare"}, "principal": {Principal: "eve@local"}, "code": {Code: "outcome_unknown"}, "decision": {Decision: Unknown},
	"two values": {Tool: "once", Agent: "shop"}, "no match": {Tool: "never"},
}

func appendOne(t testing.TB, j *Journal, r *Record) {
	t.Helper()
	if err := j.db.Write(t.Context(), func(tx state.Tx) error { _, err := j.Append(tx, r); return err }); err != nil {
		t.Fatal(err)
	}
}

// A search for a rare record does not read the whole log: in a log with four times as many records, it reads
// only a few more rows.
func TestRareRecordsAreFoundInFewRows(t *testing.T) {
	statetest.Each(t, func(t *testing.T, opened func() state.DB) {
		j := open(opened())
		appendOne(t, j, rare(0))
		const size = 4400
		fill(t, j, size)
		want := map[string][]int64{"two values": nil, "no match": nil}
		first := map[string]int{}
		for name, f := range rareFilters {
			rows, found := looks(t, j, f)
			first[name] = rows
			if w, ok := want[name]; !ok && !slices.Equal(found, []int64{0}) || ok && !slices.Equal(found, w) {
				t.Errorf("%s: found %v", name, found)
			}
			// The newest block is incomplete, so the search reads its records. Then it reads a few
			// index rows and one complete block.
			if most := size%blockSize + blockSize + 20; rows > most {
				t.Errorf("%s: read %d rows, want at most %d", name, rows, most)
			}
		}
		fill(t, j, 3*page)
		for name, f := range rareFilters {
			if rows, _ := looks(t, j, f); rows > first[name]+blockSize {
				t.Errorf("%s: the search read %d rows, but only %d rows in the smaller log", name, rows, first[name])
			}
		}
		if rows, _ := looks(t, j, Filter{Call: "a rare call"}); rows > (size+3*page)/blockSize+2*blockSize+100 {
			t.Errorf("call: read %d rows", rows)
		}
		// The search reads one record of each block, and all records of the first block.
		if rows, found := looks(t, j, Filter{Until: started.Add(-maxSkew - time.Hour), Limit: 1}); found != nil || rows > (size+3*page)/blockSize+blockSize+40 {
			t.Errorf("with Until: the search read %d rows and found %v", rows, found)
		}
	})
}

// SQLite uses the primary key for lookups of values.
func TestIndexIsUsed(t *testing.T) {
	j := newJournal(t, 1)
	var plan string
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query("EXPLAIN QUERY PLAN "+lastValueQuery, []any{int64(0), int64(0), int64(0), int64(1)}, func(r state.Row) error {
			var id, parent, unused int64
			var step string
			err := r.Scan(&id, &parent, &unused, &step)
			plan += step + "\n"
			return err
		})
	})
	if want := "SEARCH journal_values USING PRIMARY KEY (log=? AND sum=? AND block>? AND block<?)\n"; err != nil || plan != want {
		t.Errorf("got query plan %s (error %v), want %s", plan, err, want)
	}
}

// A filter finds the same records as a scan of all records. This is true for any set of indexed blocks. It is
// also true if the result is read page by page.
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
					t.Errorf("%+v: found %d records, want %d", f, len(got), len(want))
				}
			}
		}
		check(t)
		for _, first := range []int64{7, 18, 21} {
			forgetIndex(t, j)
			err := j.db.Write(t.Context(), func(tx state.Tx) error {
				if err := reindex(tx, log, first, size/blockSize); err != nil {
					return err
				}
				return setIndexed(tx, log, first, size/blockSize)
			})
			if err != nil {
				t.Fatal(err)
			}
			check(t)
		}
		forgetIndex(t, j)
		check(t)
		if r := verify(t, j); !r.OK {
			t.Errorf("got report %+v", r)
		}
	})
}

// In a store without an index, the first filter that needs the index creates it. Later filters use
// the index.
func TestIndexIsBackfilled(t *testing.T) {
	statetest.Each(t, func(t *testing.T, opened func() state.DB) {
		j := open(opened())
		appendOne(t, j, rare(0))
		fill(t, j, 2*page+blockSize)
		for name, prepare := range map[string]func(){
			"no block is indexed": func() { forgetIndex(t, j) },
			"an older version appended blocks": func() {
				forgetIndex(t, j)
				exec(t, j, `INSERT INTO journal_indexed (log, first, next) VALUES ($1, 20, 20)`, j.db.Log())
			},
			"only new blocks are indexed": func() { forgetIndex(t, j); fill(t, j, blockSize) },
		} {
			prepare()
			_, found := looks(t, j, Filter{Tool: "once"})
			after, again := looks(t, j, Filter{Tool: "once"})
			if !slices.Equal(found, []int64{0}) || !slices.Equal(again, found) || after > 2*blockSize+20 {
				t.Errorf("%s: the first search found %v, and the second found %v in %d rows", name, found, again, after)
			}
			if r := verify(t, j); !r.OK {
				t.Errorf("%s: got report %+v", name, r)
			}
		}
	})
}

// A filter that finds enough new records does not index the old ones.
func TestBackfillStopsWithTheFilter(t *testing.T) {
	j := newJournal(t, 3*page)
	forgetIndex(t, j)
	show(t, j, Filter{Tool: "delete", Limit: 1})
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		first, next, err := indexedBlocks(tx, 0)
		if next != 3*page/blockSize || first != next-backfillBlocks {
			t.Errorf("the indexed blocks are %d to %d, want only the newest blocks", first, next)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An older version of ambit can leave a gap in the index. A filter must also search the blocks before the
// gap.
func TestGapInTheIndex(t *testing.T) {
	j := open(statetest.Open(t))
	fill(t, j, blockSize)
	appendOne(t, j, rare(0))
	fill(t, j, 2*blockSize)
	exec(t, j, `DELETE FROM journal_values WHERE block = 1`)
	exec(t, j, `DELETE FROM journal_calls WHERE block = 1`)
	exec(t, j, `UPDATE journal_indexed SET next = 1`) // an older version of ambit would have left this range
	fill(t, j, blockSize)
	if _, got := looks(t, j, Filter{Tool: "once"}); !slices.Equal(got, []int64{blockSize}) {
		t.Errorf("found records %v, want [%d]", got, blockSize)
	}
	if r := verify(t, j); !r.OK {
		t.Errorf("got report %+v", r)
	}
}

// If the store is read-only, filters read the records that are not indexed.
func TestFiltersWithoutAWritableStore(t *testing.T) {
	j := newJournal(t, page+10)
	forgetIndex(t, j)
	j.Through(unwritable{j.db})
	if got := seqs(show(t, j, Filter{Call: "call-000003"})); !slices.Equal(got, []int64{3}) {
		t.Errorf("found records %v", got)
	}
}

// A missing record does not hide other records from filters.
func TestFiltersWithMissingRecords(t *testing.T) {
	statetest.Each(t, func(t *testing.T, opened func() state.DB) {
		j := open(opened())
		fill(t, j, page+10)
		log := j.db.Log()
		exec(t, j, `DELETE FROM leaves WHERE place = $1`, place(log, 100))
		forgetIndex(t, j)
		writes := 0
		j.Through(boundedWrites{j.db, &writes})
		for name, f := range map[string]Filter{"call-000003": {Call: "call-000003"}, "call-004000": {Call: "call-004000"}, "": {Tool: "never"}} {
			found := show(t, j, f)
			if name == "" && found != nil || name != "" && (len(found) != 1 || found[0].Call != name) {
				t.Errorf("%+v: found %v", f, found)
			}
		}
		if writes != 1 {
			t.Errorf("%d transactions wrote to the index, want 1", writes)
		}
	})
}

// boundedWrites counts write transactions and refuses them after the first 20.
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

// Filters also find records whose JSON has different spacing.
func TestRecordsInAnotherFormAreFound(t *testing.T) {
	j := newJournal(t, 3*blockSize)
	record := []byte(`{"log":0,"seq":5, "time":"2026-03-01T12:00:05Z", "tool": "spaced"}`)
	hash := tlog.RecordHash(record)
	exec(t, j, `UPDATE leaves SET record = $1, hash = $2 WHERE place = 5`, record, hash[:])
	exec(t, j, `UPDATE leaves SET record = 'x' WHERE place = 300`)
	forgetIndex(t, j)
	if got := seqs(show(t, j, Filter{Tool: "spaced"})); !slices.Equal(got, []int64{5}) {
		t.Errorf("found records %v", got)
	}
	if got := seqs(show(t, j, Filter{Tool: "spaced"})); !slices.Equal(got, []int64{5}) {
		t.Errorf("the search found the records %v with the index", got)
	}
}

// forgetIndex removes the index. The store then looks like a store of an older version of ambit.
func forgetIndex(t testing.TB, j *Journal) {
	t.Helper()
	err := j.db.Write(t.Context(), func(tx state.Tx) error {
		for _, table := range []string{"journal_values", "journal_calls", "journal_indexed"} {
			if _, err := tx.Exec(`DELETE FROM ` + table); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// indexedEve reports whether the index contains the principal or the call of a rare record.
func indexedEve(t *testing.T, j *Journal) (found bool) {
	t.Helper()
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		found = false
		value, err := lastValue(tx, j.db.Log(), valueSum(kindPrincipal, []byte(`"eve@local"`)), 0, 1<<20)
		if err != nil {
			return err
		}
		call, err := lastCall(tx, j.db.Log(), callSum([]byte(`"a rare call"`)), 0, 1<<20)
		if value >= 0 != (call >= 0) {
			t.Errorf("the index has the principal in block %d and the call in block %d, want both or neither",
				value, call)
		}
		found = value >= 0
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Records that are erased before their block is complete get no index entries.
func TestErasedRecordsOfAnIncompleteBlockAreNotIndexed(t *testing.T) {
	j := open(asLog{statetest.Open(t), 1})
	appendOne(t, j, rare(0))
	if n, err := j.Erase(t.Context(), started.Add(time.Second/2), "ada@local"); err != nil || n != 1 {
		t.Fatalf("Erase erased %d records (error %v), want 1", n, err)
	}
	fill(t, j, blockSize)
	if indexedEve(t, j) {
		t.Error("the index contains an erased value")
	}
	if rows, got := looks(t, j, Filter{Call: "call-000011"}); !slices.Equal(got, []int64{12}) {
		t.Errorf("the search found the records %v in %d rows", got, rows)
	}
	if r := verify(t, j); !r.OK {
		t.Errorf("got report %+v", r)
	}
}

// Erasing a record removes its index entries, because a hash could confirm a guess. Entries of older versions
// of ambit are removed too.
func TestErasedRecordsLeaveTheIndex(t *testing.T) {
	statetest.Each(t, func(t *testing.T, opened func() state.DB) {
		j := open(opened())
		appendOne(t, j, rare(0))
		fill(t, j, page+blockSize)
		exec(t, j, `INSERT INTO words (log, level, n, sums) VALUES ($1, 0, 0, $2)`, j.db.Log(), []byte("sums"))
		if !indexedEve(t, j) {
			t.Fatal("the value is not indexed")
		}
		if _, err := j.Erase(t.Context(), started.Add(10*time.Second), "ada@local"); err != nil {
			t.Fatal(err)
		}
		if indexedEve(t, j) {
			t.Error("the index contains an erased value")
		}
		err := j.db.Read(t.Context(), func(tx state.Tx) error {
			return tx.Query(`SELECT n FROM words`, nil, func(state.Row) error { t.Error("a hash in the table words is left"); return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		if r := verify(t, j); !r.OK {
			t.Errorf("got report %+v", r)
		}
		if rows, got := looks(t, j, Filter{Call: "call-000011"}); !slices.Equal(got, []int64{12}) {
			t.Errorf("the search found the records %v in %d rows", got, rows)
		}
	})
}

// Verify reports missing index entries, because they could hide records from filters.
func TestVerifyFindsMissingIndexEntries(t *testing.T) {
	j := open(statetest.Open(t))
	fill(t, j, 2*page)
	restore := saved(t, j)
	for _, tt := range []struct {
		name, change string
		seq          int64
	}{
		{"the values of a block are missing", `DELETE FROM journal_values WHERE block = 3`, 3 * blockSize},
		{"one value", fmt.Sprintf(`DELETE FROM journal_values WHERE block = 17 AND sum = %d`, valueSum(kindTool, []byte(`"delete"`))), 17*blockSize + 1},
		{"the calls of a block are missing", `DELETE FROM journal_calls WHERE block = 20`, 20 * blockSize},
		{"a changed call", `UPDATE journal_calls SET calls = zeroblob(1024) WHERE block = 20`, 20 * blockSize},
		{"the calls of a block have another type", `UPDATE journal_calls SET calls = 'x' WHERE block = 20`, 20 * blockSize},
	} {
		t.Run(tt.name, func(t *testing.T) {
			exec(t, j, tt.change)
			if r := verify(t, j); r.OK || r.FirstBad == nil || r.FirstBad.Seq != tt.seq || !strings.Contains(r.Problem, "index") {
				t.Errorf("got report %+v", r)
			}
			restore(t)
			if r := verify(t, j); !r.OK {
				t.Errorf("got report %+v", r)
			}
		})
	}
}

// fieldValues.read finds every value that a filter can search for, whatever characters the values contain.
func TestRecordsHaveTheirValues(t *testing.T) {
	for _, tt := range []struct{ tool, agent, principal, args string }{
		{"list", "shop", "ada@local", `{"a":["x",{"b":"}"}],"tool":"other"}`},
		{"a\"b\\", "\x00é", "\xff", `"\\\""`},
		{"", "", "", `[`},
		{"a,b", "{", "]", "{\n}"},
		{`,"tool":"x"`, `","id":"y","`, `\`, `{"x":1,"uri":"z","decision":"other","code":"nested"}`},
	} {
		for _, uri := range []string{"matrix://tool/x", ""} {
			r := sample(3)
			r.Tool, r.Agent, r.Principal, r.Arguments, r.URI = tt.tool, tt.agent, tt.principal, []byte(tt.args), uri
			r.Capabilities = &Capabilities{Required: []string{"a\"", "b"}, Held: []string{"c"}}
			var values, want fieldValues
			values.read(appendRecord(nil, r))
			for i, s := range []string{r.Call, r.Agent, r.ID, r.Digest, r.Principal, r.Tool, r.URI, string(r.Decision), r.Code} {
				if want[i] = appendString(nil, s); s == "" && values[i] == nil {
					want[i] = nil
				}
				if string(values[i]) != string(want[i]) {
					t.Errorf("%+v: field %d is %s, want %s", tt, i, values[i], want[i])
				}
			}
		}
	}
}

// FuzzFieldValues compares the byte search in fieldValues.read with encoding/json, for records that appendBody
// writes.
func FuzzFieldValues(f *testing.F) {
	f.Add("list", "shop", "", `{"x":1,"uri":"z","decision":"other"}`)
	f.Add(`,"tool":"x"`, "\x00", "code", `[`)
	f.Fuzz(func(t *testing.T, tool, agent, code, args string) {
		r := sample(1)
		r.Tool, r.Agent, r.Code, r.URI, r.Arguments = tool, agent, code, "", []byte(args)
		record := appendRecord(nil, r)
		var found, want fieldValues
		found.read(record)
		want.decode(record)
		for i := range want {
			if want[i] != nil && string(found[i]) != string(want[i]) {
				t.Errorf("%s: field %d is %s, want %s", record, i, found[i], want[i])
			}
		}
	})
}
