package journal

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/sqlite"
)

var errFault = errors.New("the disk has failed")

// faulty is a store in which one statement fails.
type faulty struct {
	state.DB
	mu   sync.Mutex
	left int // the number of statements until the failure; 0 means that none fails
}

// fails counts a statement and reports whether this statement must fail.
func (f *faulty) fails() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return false
	}
	f.left--
	return f.left == 0
}

func (f *faulty) after(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = n
}

// pending reports whether the failure has not happened yet.
func (f *faulty) pending() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.left > 0
}

func (f *faulty) Write(ctx context.Context, do func(state.Tx) error) error {
	return f.DB.Write(ctx, func(tx state.Tx) error { return do(&faultyTx{Tx: tx, of: f}) })
}

func (f *faulty) Read(ctx context.Context, do func(state.Tx) error) error {
	return f.DB.Read(ctx, func(tx state.Tx) error { return do(&faultyTx{Tx: tx, of: f}) })
}

// faultyTx fails all statements after the first failure, as a real transaction does.
type faultyTx struct {
	state.Tx
	of   *faulty
	lost bool
}

func (x *faultyTx) Exec(query string, args ...any) (int64, error) {
	if x.lost = x.lost || x.of.fails(); x.lost {
		return 0, errFault
	}
	return x.Tx.Exec(query, args...)
}

func (x *faultyTx) Query(query string, args []any, each func(state.Row) error) error {
	if x.lost = x.lost || x.of.fails(); x.lost {
		return errFault
	}
	if strings.Contains(query, "FROM leaves") {
		return x.Tx.Query(query, args, each) // an unreadable row of this table is a finding of Verify, not an error
	}
	return x.Tx.Query(query, args, func(r state.Row) error {
		if x.lost = x.lost || x.of.fails(); x.lost {
			return errFault
		}
		return each(r)
	})
}

// Any SQL statement can fail. The caller then gets the error, earlier records stay intact, and the
// next attempt succeeds.
func TestEveryStatementMayFail(t *testing.T) {
	const records = 300 // the records fill more than one tile
	appendOne := func(ctx context.Context, j *Journal) error {
		return j.db.Write(ctx, func(tx state.Tx) error {
			_, err := j.Append(tx, sample(records))
			return err
		})
	}
	for _, c := range []struct {
		name string
		do   func(context.Context, *Journal) error
		// The field adds is the number of new records. If part is set, some of them may be stored
		// when a later statement fails.
		adds int64
		part bool
	}{
		{name: "append", do: appendOne, adds: 1},
		{name: "note", do: func(_ context.Context, j *Journal) error { return j.Note(sample(records)) }, adds: 1},
		{name: "checkpoint", do: func(ctx context.Context, j *Journal) error { _, err := j.Checkpoint(ctx); return err }, part: true},
		{name: "close", do: func(ctx context.Context, j *Journal) error { j.written.Store(true); return j.Close(ctx) }, part: true},
		{name: "show", do: func(ctx context.Context, j *Journal) error { _, err := j.Show(ctx, Filter{Tool: "delete"}); return err }},
		{name: "unknown", do: func(ctx context.Context, j *Journal) error { _, err := j.Show(ctx, Filter{Unknown: true}); return err }},
		{name: "show until", do: func(ctx context.Context, j *Journal) error {
			_, err := j.Show(ctx, Filter{Tool: "delete", Until: started.Add(time.Minute)})
			return err
		}},
		{name: "unknown calls", do: func(ctx context.Context, j *Journal) error {
			err := j.db.(*faulty).DB.Write(ctx, func(tx state.Tx) error {
				_, err := tx.Exec(`INSERT INTO calls (id, agent, digest, tool, principal, state, started) VALUES ('open', 'shop', '', 'list', 'ada@local', 'unknown', $1) ON CONFLICT (id) DO NOTHING`, started.UnixMicro())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			entries, err := j.Show(ctx, Filter{Unknown: true})
			if err == nil && (len(entries) != 1 || entries[0].Call != "open") {
				t.Errorf("the calls with an unknown outcome are %+v, want one", entries)
			}
			return err
		}},
		{name: "ends", do: func(ctx context.Context, j *Journal) error { _, err := j.Ends(ctx); return err }},
		{name: "prove", do: func(ctx context.Context, j *Journal) error { _, err := j.Prove(ctx, j.db.Log(), 7); return err }, part: true},
		{name: "prove the newest", do: func(ctx context.Context, j *Journal) error {
			_, err := j.Prove(ctx, j.db.Log(), records-1)
			return err
		}, part: true},
		{name: "prove since", do: func(ctx context.Context, j *Journal) error {
			e := edge{}
			text, err := j.sign(0, 0, e.root())
			if err == nil {
				_, err = j.ProveSince(ctx, text)
			}
			return err
		}, part: true},
		{name: "export", do: func(ctx context.Context, j *Journal) error { return j.Export(ctx, io.Discard) }, part: true},
		{name: "erase", do: func(ctx context.Context, j *Journal) error {
			_, err := j.Erase(ctx, started.Add(20*time.Second), "ada@local")
			return err
		}, part: true},
		{name: "follow", do: func(ctx context.Context, j *Journal) error {
			seen := errors.New("all were seen")
			n := 0
			err := j.Follow(ctx, Ends{}, Filter{Agent: "shop"}, func(Entry) error {
				if n++; n == records {
					return seen
				}
				return nil
			})
			if errors.Is(err, seen) {
				return nil
			}
			return err
		}},
		{name: "verify", do: func(ctx context.Context, j *Journal) error {
			report, err := j.Verify(ctx, Check{Erased: true})
			if err == nil && !report.OK {
				t.Errorf("Verify reported a failed statement as tampering: %+v", report)
			}
			return err
		}},
	} {
		for log, engine := range []string{"one log", "own log"} {
			t.Run(c.name+", "+engine, func(t *testing.T) {
				dir := t.TempDir()
				db, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { db.Close() })
				as := asLog{db, int64(log)}
				fill(t, open(as), records)
				was := verify(t, open(as)).Records
				f := &faulty{DB: as}
				j := open(f)
				failures := 0
				for n := 1; ; n++ {
					if n > 500 {
						t.Fatal("the operation still fails after 500 attempts")
					}
					f.after(n)
					err := c.do(t.Context(), j)
					if f.pending() { // the operation ended before statement n
						if err != nil {
							t.Fatalf("the operation failed although no statement failed: %v", err)
						}
						break
					}
					if failures++; !errors.Is(err, errFault) {
						t.Fatalf("statement %d failed, but the operation returned %v, want the error of the statement",
							n, err)
					}
					f.after(0)
					report := verify(t, open(as))
					if !report.OK || report.Records < was || report.Records > was && !c.part {
						t.Fatalf("after statement %d failed: got report %+v, want %d records", n, report, was)
					}
				}
				f.after(0)
				if failures == 0 {
					t.Fatal("the test made no statement fail")
				}
				report := verify(t, open(as))
				if !report.OK || report.Records < was+c.adds || !c.part && report.Records > was+c.adds {
					t.Errorf("after all attempts: got the report %+v, want an intact journal; it had %d records before",
						report, was)
				}
			})
		}
	}
}

// If any statement of Post fails, no record is lost and none is posted twice.
func TestPostingMayFail(t *testing.T) {
	dir := t.TempDir()
	dead := noting(t, dir)
	jot(t, dead, 300)
	if err := dead.db.Close(); err != nil { // close only the database, as if the process had been killed
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f := &faulty{DB: db}
	j := New(f, testKey, "test")
	j.SetWALDir(filepath.Join(dir, "daybooks"))
	n := 1
	for ; ; n++ {
		f.after(n)
		if err = j.Post(t.Context()); err == nil {
			break
		}
		if !errors.Is(err, errFault) {
			t.Fatal(err)
		}
	}
	f.after(0)
	if n < 5 {
		t.Errorf("the test made only %d statements fail", n-1)
	}
	sound(t, j, 300)
}
