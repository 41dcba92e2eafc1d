package journal

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// BenchmarkAppend measures an append inside a transaction, without the commit.
func BenchmarkAppend(b *testing.B) {
	j := New(statetest.Open(b), testKey, "test")
	r := sample(1)
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		batch := min(5000, b.N-done)
		err := j.db.Write(b.Context(), func(tx state.Tx) error {
			for range batch {
				if _, err := j.Append(tx, r); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		done += batch
	}
}

// BenchmarkAppendCommit measures appends by many concurrent callers, with one commit each. BenchmarkCommit
// measures the same commits without the journal.
func BenchmarkAppendCommit(b *testing.B) {
	j := New(statetest.Open(b), testKey, "test")
	commits(b, j, func(tx state.Tx) error { _, err := j.Append(tx, sample(1)); return err })
}

// BenchmarkAppendAlone measures appends by one caller, which waits for every commit.
func BenchmarkAppendAlone(b *testing.B) {
	j := New(statetest.Open(b), testKey, "test")
	r := sample(1)
	b.ReportAllocs()
	for b.Loop() {
		if err := j.db.Write(b.Context(), func(tx state.Tx) error { _, err := j.Append(tx, r); return err }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCommit(b *testing.B) {
	j := newJournal(b, 1)
	exec(b, j, `INSERT INTO checkpoints (log, size, note, made) VALUES (9, 1, $1, 0)`, []byte{})
	commits(b, j, func(tx state.Tx) error {
		_, err := tx.Exec(`UPDATE checkpoints SET made = made + 1 WHERE log = 9`)
		return err
	})
}

func commits(b *testing.B, j *Journal, f func(state.Tx) error) {
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := j.db.Write(b.Context(), f); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	r, buf := sample(1), []byte(nil)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendRecord(buf[:0], r)
	}
	b.SetBytes(int64(len(buf)))
}

const many = 200_000

func BenchmarkVerify(b *testing.B) {
	j := newJournal(b, many)
	for b.Loop() {
		r, err := j.Verify(b.Context(), Check{})
		if err != nil || !r.OK {
			b.Fatalf("got report %+v, %v", r, err)
		}
	}
	b.ReportMetric(float64(b.N)*many/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkVerifyExport(b *testing.B) {
	text := export(b, newJournal(b, many))
	b.ResetTimer()
	for b.Loop() {
		r, err := VerifyExport(bytes.NewReader(text), Check{})
		if err != nil || !r.OK {
			b.Fatalf("got report %+v, %v", r, err)
		}
	}
	b.ReportMetric(float64(b.N)*many/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkProve(b *testing.B) {
	j := newJournal(b, many)
	checkpoint(b, j)
	rnd := rand.New(rand.NewPCG(1, 2))
	b.ResetTimer()
	for b.Loop() {
		if _, err := j.Prove(b.Context(), 0, rnd.Int64N(many)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkShow(b *testing.B) {
	j := newJournal(b, many)
	for name, f := range map[string]Filter{
		"newest": {}, "rare": {Code: "never"}, "call": {Call: "call-000001", Limit: 1}, "since": {Since: started.Add((many - 50) * time.Second), Tool: "delete"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := j.Show(b.Context(), f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBackfill measures the first search for a rare value in a store of an older version.
func BenchmarkBackfill(b *testing.B) {
	j := newJournal(b, many)
	for b.Loop() {
		b.StopTimer()
		forgetIndex(b, j)
		b.StartTimer()
		if _, err := j.Show(b.Context(), Filter{Code: "never"}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*many/b.Elapsed().Seconds(), "records/s")
}
