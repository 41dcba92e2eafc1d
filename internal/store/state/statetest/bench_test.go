package statetest

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state"
)

// appendLeaf makes the same changes to the store as an append to the journal.
func appendLeaf(db state.DB, record []byte) error {
	hash := make([]byte, 32)
	return db.Write(context.Background(), func(tx state.Tx) error {
		var size int64
		var edge []byte
		err := tx.Query(`SELECT size, edge FROM heads WHERE log = $1`, []any{db.Log()}, func(r state.Row) error {
			return r.Scan(&size, &edge)
		})
		if err != nil {
			return err
		}
		if _, err := tx.Exec(`INSERT INTO leaves (place, hash, record) VALUES ($1, $2, $3)`, db.Log()<<40+size, hash, record); err != nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO heads (log, size, edge) VALUES ($1, $2, $3)
			ON CONFLICT (log) DO UPDATE SET size = excluded.size, edge = excluded.edge`, db.Log(), size+1, hash)
		return err
	})
}

func benchAppend(b *testing.B, dbs []state.DB, callers int) {
	record := make([]byte, 420)
	var wg sync.WaitGroup
	b.ResetTimer()
	total := len(dbs) * callers
	for i := range total {
		n := b.N / total
		if i < b.N%total {
			n++
		}
		wg.Go(func() {
			for range n {
				if err := appendLeaf(dbs[i%len(dbs)], record); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
}

func places(b *testing.B, bench func(b *testing.B, place string)) {
	b.Run("sqlite", func(b *testing.B) { bench(b, filepath.Join(b.TempDir(), "state.db")) })
	b.Run("postgres", func(b *testing.B) { bench(b, database(b)) })
}

func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name            string
		owners, callers int
	}{{"1caller", 1, 1}, {"32callers", 1, 32}, {"4owners", 4, 1}, {"4owners8callers", 4, 8}} {
		b.Run(c.name, func(b *testing.B) {
			places(b, func(b *testing.B, place string) {
				var dbs []state.DB
				for range c.owners {
					dbs = append(dbs, At(b, place))
				}
				benchAppend(b, dbs, c.callers)
			})
		})
	}
}

func BenchmarkOpenExisting(b *testing.B) {
	places(b, func(b *testing.B, place string) {
		At(b, place)
		for b.Loop() {
			db, err := OpenPlace(b.Context(), place)
			if err != nil {
				b.Fatal(err)
			}
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
