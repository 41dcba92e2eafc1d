package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

func show(t *testing.T, j *Journal, f Filter) []Entry {
	t.Helper()
	out, err := j.Show(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func seqs(entries []Entry) (out []int64) {
	for _, e := range entries {
		out = append(out, e.Seq)
	}
	return out
}

func TestShow(t *testing.T) {
	j := newJournal(t, 50)
	at := func(i int) time.Time { return started.Add(time.Duration(i) * time.Second) }
	for _, tt := range []struct {
		name string
		f    Filter
		want []int64
	}{
		{"newest first", Filter{Limit: 3}, []int64{49, 48, 47}},
		{"by tool", Filter{Tool: "delete"}, []int64{43, 33, 23, 13, 3}},
		{"by URI", Filter{Tool: "matrix://tool/mcp/fs/list@1.0.0", Limit: 1}, []int64{49}},
		{"by decision", Filter{Decision: Deny, Limit: 2}, []int64{43, 33}},
		{"by code", Filter{Code: "side_effect_denied", Limit: 1}, []int64{43}},
		{"by call", Filter{Call: "call-000007"}, []int64{7}},
		{"by agent", Filter{Agent: "shop", Limit: 1}, []int64{49}},
		{"by the agent's id", Filter{Agent: "matrix://agent/shop", Limit: 1}, []int64{49}},
		{"a value of another field does not match", Filter{Agent: "list"}, nil},
		{"by principal", Filter{Principal: "eve@local"}, nil},
		{"since", Filter{Since: at(48)}, []int64{49, 48}},
		{"until", Filter{Until: at(1)}, []int64{1, 0}},
		{"between two times, by tool", Filter{Since: at(10), Until: at(30), Tool: "delete"}, []int64{23, 13}},
		{"the records before an end", Filter{Before: Ends{0: 5}, Limit: 2}, []int64{4, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := seqs(show(t, j, tt.f)); !slices.Equal(got, tt.want) {
				t.Errorf("got records %v, want %v", got, tt.want)
			}
		})
	}
	e := show(t, j, Filter{Call: "call-000003"})[0]
	want := *sample(3)
	want.Seq = 3
	if fmt.Sprintf("%+v", e.Record) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", e.Record, want)
	}
}

func TestShowHasALimitOfItsOwn(t *testing.T) {
	if got := show(t, newJournal(t, 150), Filter{}); len(got) != 100 || got[0].Seq != 149 {
		t.Errorf("Show returned %d records, want the newest 100", len(got))
	}
}

// Show finds a rare record that is many pages back.
func TestShowReadsOn(t *testing.T) {
	j := newJournal(t, 2*page+5)
	if got := seqs(show(t, j, Filter{Call: "call-000001", Limit: 1})); !slices.Equal(got, []int64{1}) {
		t.Errorf("found records %v", got)
	}
}

// A record is not hidden from --since if the clock went back a little.
func TestShowSinceIncludesLateRecords(t *testing.T) {
	j := open(statetest.Open(t))
	for _, i := range []int{100, 90, 101} {
		err := j.db.Write(t.Context(), func(tx state.Tx) error { _, err := j.Append(tx, sample(i)); return err })
		if err != nil {
			t.Fatal(err)
		}
	}
	got := seqs(show(t, j, Filter{Since: started.Add(95 * time.Second)}))
	if !slices.Equal(got, []int64{2, 0}) {
		t.Errorf("found records %v", got)
	}
}

// A clock was ahead for a while, so records with wrong times come before older records. The flag --until
// still finds these older records, with or without newer records after them.
func TestShowUntilBearsAClockThatWasAhead(t *testing.T) {
	j := open(statetest.Open(t))
	const run = 2*blockSize + 7
	day := func(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }
	write := func(n int, at time.Duration) {
		t.Helper()
		err := j.db.Write(t.Context(), func(tx state.Tx) error {
			for i := range n {
				r := sample(i)
				r.Time = started.Add(at + time.Duration(i)*time.Millisecond)
				if _, err := j.Append(tx, r); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string, until time.Duration, newest int64, n int) {
		t.Helper()
		found := seqs(show(t, j, Filter{Until: started.Add(until), Limit: 10 * run}))
		if len(found) != n || n > 0 && found[0] != newest {
			t.Errorf("%s: found %d records, want %d", name, len(found), n)
		}
	}
	write(run, 0)
	write(3*run, day(30))
	write(run, day(2))
	check("the last records are old enough", day(3), 5*run-1, 2*run)
	write(3*run, day(8))
	check("newer records follow", day(3), 5*run-1, 2*run)
	check("only the first records are old enough", day(1), run-1, run)
	check("all records are too new", -day(2), 0, 0)
	write(10, day(40))
	check("all records except the last 10", day(35), 8*run-1, 8*run)
}

// Show stops at records that are certainly too old.
func TestShowSinceStops(t *testing.T) {
	j := open(statetest.Open(t))
	old := sample(0)
	old.Time = started.Add(-2 * maxSkew)
	for _, r := range []*Record{old, old, sample(1)} {
		if err := j.db.Write(t.Context(), func(tx state.Tx) error { _, err := j.Append(tx, r); return err }); err != nil {
			t.Fatal(err)
		}
	}
	b := &backwardReader{j: j, next: 3, c: Filter{Since: started.Add(time.Hour), Limit: 2}.compile()}
	if err := b.fill(t.Context()); err != nil || b.next != 0 || b.size != 2 {
		t.Errorf("got state %+v, %v", b, err)
	}
}

func TestShowMergesLogsByTime(t *testing.T) {
	db := statetest.Open(t)
	a, b := open(asLog{db, 1}), open(asLog{db, 2})
	for i := range 20 {
		j := a
		if i%3 == 0 {
			j = b
		}
		if err := db.Write(t.Context(), func(tx state.Tx) error { _, err := j.Append(tx, sample(i)); return err }); err != nil {
			t.Fatal(err)
		}
	}
	got := show(t, a, Filter{Limit: 20})
	for i, e := range got {
		if want := sample(19 - i).Call; e.Call != want {
			t.Errorf("entry %d is %s, want %s", i, e.Call, want)
		}
	}
	if len(got) != 20 {
		t.Errorf("Show returned %d records, want 20 without roster records", len(got))
	}
}

func TestShowErasedAndDamaged(t *testing.T) {
	j := newJournal(t, 5)
	exec(t, j, `UPDATE leaves SET record = NULL WHERE place = 1`)
	exec(t, j, `UPDATE leaves SET record = $1 WHERE place = 2`, []byte("{"))
	exec(t, j, `UPDATE leaves SET record = 'x' WHERE place = 3`)
	got := show(t, j, Filter{})
	slices.Reverse(got)
	if len(got) != 5 || !got[1].Erased || got[2].Kind != kindUnreadable || got[3].Kind != kindUnreadable {
		t.Errorf("got entries %+v", got)
	}
	if got := seqs(show(t, j, Filter{Agent: "shop"})); !slices.Equal(got, []int64{4, 0}) {
		t.Errorf("found records %v", got)
	}
}

func TestShowUnknown(t *testing.T) {
	j := newJournal(t, 20)
	if got := show(t, j, Filter{Unknown: true}); len(got) != 0 {
		t.Fatalf("got entries %+v", got)
	}
	add := func(id, st string, i int) {
		exec(t, j, `INSERT INTO calls (id, agent, digest, tool, principal, state, started) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			id, "shop", "sha256:00", "pay", "ada@local", st, started.Add(time.Duration(i)*time.Second).UnixMicro())
	}
	add("call-lost", "unknown", 30)
	add("call-settled", "done", 31)
	add("call-journaled", "unknown", 32)
	for _, call := range []string{"call-journaled", "call-settled"} {
		r := sample(33)
		r.Call, r.Decision, r.Tool, r.Code = call, Unknown, "pay", "outcome_unknown"
		if err := j.db.Write(t.Context(), func(tx state.Tx) error { _, err := j.Append(tx, r); return err }); err != nil {
			t.Fatal(err)
		}
	}
	got := show(t, j, Filter{Unknown: true})
	if len(got) != 2 || got[0].Call != "call-journaled" || got[0].Seq != 20 || got[1].Call != "call-lost" || got[1].Seq != -1 || got[1].Tool != "pay" {
		t.Errorf("got entries %+v", got)
	}
	if got := show(t, j, Filter{Unknown: true, Call: "call-lost"}); len(got) != 1 {
		t.Errorf("got entries %+v", got)
	}
	if got := show(t, j, Filter{Unknown: true, Limit: 1}); len(got) != 1 {
		t.Errorf("got entries %+v", got)
	}
}

func TestFollow(t *testing.T) {
	j := newJournal(t, 10)
	from, err := j.Ends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fill(t, j, 5) // before Follow starts
	enough := errors.New("enough")
	listening, got := make(chan struct{}), make(chan int64, 100)
	done := make(chan error, 1)
	go func() {
		done <- j.Follow(t.Context(), from, Filter{Tool: "list"}, func(e Entry) error {
			if e.Seq == 10 {
				close(listening)
			}
			got <- e.Seq
			if e.Seq >= 17 {
				return enough
			}
			return nil
		})
	}()
	<-listening
	fill(t, j, 3)
	if err := <-done; !errors.Is(err, enough) {
		t.Fatal(err)
	}
	close(got)
	var all []int64
	for seq := range got {
		all = append(all, seq)
	}
	if !slices.Equal(all, []int64{10, 11, 12, 14, 15, 16, 17}) {
		t.Errorf("Follow returned records %v", all)
	}
}

func TestFollowEnds(t *testing.T) {
	j := newJournal(t, 1)
	ctx, stop := context.WithCancel(t.Context())
	err := j.Follow(ctx, nil, Filter{}, func(Entry) error { stop(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
