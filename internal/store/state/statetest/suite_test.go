package statetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state"
)

// These tests check that both engines behave in the same way.

var errBoom = errors.New("boom")

func table(t *testing.T, db state.DB) {
	t.Helper()
	do(t, db, `CREATE TABLE things (id BIGINT PRIMARY KEY, n BIGINT, s TEXT, b BYTEA)`)
}

func do(t *testing.T, db state.DB, query string, args ...any) int64 {
	t.Helper()
	var rows int64
	if err := db.Write(t.Context(), func(tx state.Tx) (err error) {
		rows, err = tx.Exec(query, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return rows
}

func number(t *testing.T, db state.DB, query string, args ...any) (n int64) {
	t.Helper()
	if err := db.Read(t.Context(), func(tx state.Tx) error { return scan(tx, &n, query, args...) }); err != nil {
		t.Fatal(err)
	}
	return n
}

func scan(tx state.Tx, n *int64, query string, args ...any) error {
	return tx.Query(query, args, func(r state.Row) error { return r.Scan(n) })
}

func insert(tx state.Tx, id int64) error {
	_, err := tx.Exec(`INSERT INTO things (id, n) VALUES ($1, $2)`, id, int64(0))
	return err
}

func TestErrorUndoesAll(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		table(t, db)
		err := db.Write(t.Context(), func(tx state.Tx) error {
			if err := insert(tx, 1); err != nil {
				return err
			}
			if err := insert(tx, 2); err != nil {
				return err
			}
			return errBoom
		})
		if !errors.Is(err, errBoom) {
			t.Errorf("Write returned %v", err)
		}
		if n := number(t, db, `SELECT count(*) FROM things`); n != 0 {
			t.Errorf("the failed transaction left %d rows", n)
		}
	})
}

func TestErrorUndoesOnlyItsMember(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		table(t, db)
		const writers = 200
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				errs[i] = db.Write(t.Context(), func(tx state.Tx) error {
					if err := insert(tx, int64(i)); err != nil {
						return err
					}
					switch i % 4 {
					case 1:
						return errBoom
					case 2: // a statement fails, before the other members of the batch run
						_, err := tx.Exec(`INSERT INTO things (id) VALUES ($1)`, int64(i))
						return err
					case 3: // a statement fails, and the function ignores the error
						_, _ = tx.Exec(`INSERT INTO nowhere (id) VALUES ($1)`, int64(i))
					}
					return nil
				})
			})
		}
		wg.Wait()
		for i, err := range errs {
			there := number(t, db, `SELECT count(*) FROM things WHERE id = $1`, int64(i)) == 1
			if want := i%4 == 0; (err == nil) != want || there != want {
				t.Errorf("writer %d got the error %v, and its row exists: %v; want success %v", i, err, there, want)
			}
		}
	})
}

func TestReadIsOneSnapshot(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db, other := open(), open()
		table(t, db)
		if err := db.Read(t.Context(), func(tx state.Tx) error {
			var before, after int64
			if err := scan(tx, &before, `SELECT count(*) FROM things`); err != nil {
				return err
			}
			do(t, other, `INSERT INTO things (id) VALUES ($1)`, int64(1))
			do(t, db, `INSERT INTO things (id) VALUES ($1)`, int64(2))
			if err := scan(tx, &after, `SELECT count(*) FROM things`); err != nil {
				return err
			}
			if before != 0 || after != 0 {
				t.Errorf("the snapshot had %d rows and later %d rows, want 0 both times", before, after)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n := number(t, db, `SELECT count(*) FROM things`); n != 2 {
			t.Errorf("got %d rows after both writes, want 2", n)
		}
	})
}

func TestReadCannotWrite(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		table(t, db)
		if err := db.Read(t.Context(), func(tx state.Tx) error { return insert(tx, 1) }); err == nil {
			t.Error("a read transaction could write")
		}
		if n := number(t, db, `SELECT count(*) FROM things`); n != 0 {
			t.Errorf("got %d rows, want 0", n)
		}
	})
}

// The rows that a transaction reads do not change before its commit, so no update is lost.
func TestReadThenWriteAcrossOpenings(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		const openings, callers, times = 4, 4, 10
		var dbs []state.DB
		for range openings {
			dbs = append(dbs, open())
		}
		table(t, dbs[0])
		do(t, dbs[0], `INSERT INTO things (id, n) VALUES (1, 0)`)
		var wg sync.WaitGroup
		for i := range openings * callers {
			wg.Go(func() {
				for range times {
					if err := dbs[i%openings].Write(t.Context(), func(tx state.Tx) error {
						var n int64
						if err := scan(tx, &n, `SELECT n FROM things WHERE id = 1`); err != nil {
							return err
						}
						_, err := tx.Exec(`UPDATE things SET n = $1 WHERE id = 1`, n+1)
						return err
					}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if n := number(t, dbs[1], `SELECT n FROM things`); n != openings*callers*times {
			t.Errorf("got %d increments, want %d", n, openings*callers*times)
		}
	})
}

func TestCapIsMetExactly(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		const openings, callers, times, limit = 4, 4, 20, 200
		var dbs []state.DB
		for range openings {
			dbs = append(dbs, open())
		}
		table(t, dbs[0])
		do(t, dbs[0], `INSERT INTO things (id, n) VALUES (1, 0)`)
		var mu sync.Mutex
		granted := int64(0)
		var wg sync.WaitGroup
		for i := range openings * callers {
			wg.Go(func() {
				for range times {
					var rows int64
					if err := dbs[i%openings].Write(t.Context(), func(tx state.Tx) (err error) {
						rows, err = tx.Exec(`UPDATE things SET n = n + $1 WHERE id = 1 AND n + $1 <= $2`, int64(1), int64(limit))
						return err
					}); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					granted += rows
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if n := number(t, dbs[0], `SELECT n FROM things`); granted != limit || n != limit {
			t.Errorf("granted %d, stored %d, want the limit %d", granted, n, limit)
		}
	})
}

func TestManyOpenANewStoreAtOnce(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		var wg sync.WaitGroup
		owners := make([]string, 8)
		for i := range owners {
			wg.Go(func() { owners[i] = open().Owner() })
		}
		wg.Wait()
		db := open()
		seen := map[string]bool{}
		for _, owner := range owners {
			if alive, err := db.Alive(t.Context(), owner); err != nil || !alive || seen[owner] {
				t.Errorf("owner %q: alive %v (error %v), name used before: %v; want a new name that is alive",
					owner, alive, err, seen[owner])
			}
			seen[owner] = true
		}
		if n := number(t, db, `SELECT count(*) FROM schema_version`); n != 1 {
			t.Errorf("the table schema_version has %d rows, want 1", n)
		}
	})
}

func TestNewerStoreIsRefused(t *testing.T) {
	Places(t, func(t *testing.T, place string) {
		do(t, At(t, place), `UPDATE schema_version SET version = version + 1`)
		db, err := OpenPlace(t.Context(), place)
		if !errors.Is(err, state.ErrNewer) {
			t.Errorf("Open returned %v", err)
		}
		if err == nil {
			db.Close()
		}
	})
}

func TestPanicAndExitMeetTheirCaller(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		table(t, db)
		insertAnd := func(then func()) func(state.Tx) error {
			return func(tx state.Tx) error {
				if err := insert(tx, 1); err != nil {
					t.Error(err)
				}
				then()
				return nil
			}
		}
		panicked := func(in func(context.Context, func(state.Tx) error) error, f func(state.Tx) error) (p any) {
			defer func() { p = recover() }()
			_ = in(t.Context(), f)
			return nil
		}
		if p := panicked(db.Write, insertAnd(func() { panic(errBoom) })); p != errBoom {
			t.Errorf("Write panicked with %v", p)
		}
		exited := make(chan bool)
		go func() {
			defer close(exited)
			_ = db.Write(t.Context(), insertAnd(runtime.Goexit))
			t.Error("Write returned after Goexit")
		}()
		<-exited
		for range 10 { // there are fewer connections than runs of this loop
			panicked(db.Read, func(tx state.Tx) error { panic(errBoom) })
		}
		if n := number(t, db, `SELECT count(*) FROM things`); n != 0 {
			t.Errorf("got %d rows, want 0", n)
		}
		do(t, db, `INSERT INTO things (id) VALUES (1)`)
	})
}

func TestTypes(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		table(t, db)
		type thing struct {
			n int64
			s string
			b []byte
		}
		things := []thing{
			{math.MaxInt64, "Grüße, \U0001f600 'quoted' $1", []byte{0, 1, 0xff}},
			{math.MinInt64, "", []byte{}},
		}
		for i, x := range things {
			// The statement uses each parameter twice.
			do(t, db, `INSERT INTO things (n, s, b, id) VALUES ($1, $2, $3, $4), ($1, $2, $3, $4 + 10)`, x.n, x.s, x.b, int64(i))
			for _, id := range []int64{int64(i), int64(i) + 10} {
				var got thing
				if err := db.Read(t.Context(), func(tx state.Tx) error {
					return tx.Query(`SELECT n, s, b FROM things WHERE id = $1`, []any{id}, func(r state.Row) error {
						return r.Scan(&got.n, &got.s, &got.b)
					})
				}); err != nil {
					t.Fatal(err)
				}
				if got.n != x.n || got.s != x.s || !bytes.Equal(got.b, x.b) || got.b == nil {
					t.Errorf("stored %v, read %v", x, got)
				}
			}
		}
		do(t, db, `INSERT INTO things (id, n, s, b) VALUES ($1, $2, $3, $4)`, int64(100), nil, nil, []byte(nil))
		got := thing{1, "x", []byte("x")}
		if err := db.Read(t.Context(), func(tx state.Tx) error {
			return tx.Query(`SELECT n, s, b FROM things WHERE n IS NULL AND s IS NULL AND b IS NULL`, nil, func(r state.Row) error {
				return r.Scan(&got.n, &got.s, &got.b)
			})
		}); err != nil {
			t.Fatal(err)
		}
		if got.n != 0 || got.s != "" || got.b != nil {
			t.Errorf("NULL was read as %v, want the zero value", got)
		}
		if rows := do(t, db, `UPDATE things SET s = $1 WHERE id < $2`, "y", int64(100)); rows != 4 {
			t.Errorf("the statement affected %d rows, want 4", rows)
		}
		if rows := do(t, db, `DELETE FROM things WHERE id = $1`, int64(1000)); rows != 0 {
			t.Errorf("the statement affected %d rows, want 0", rows)
		}
	})
}

func TestWrongUse(t *testing.T) {
	one := `SELECT id, n, s, b FROM things WHERE id = 1`
	cases := map[string]func(tx state.Tx) error{
		"an int": func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE things SET n = $1`, 1)
			return err
		},
		"text with NUL": func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE things SET s = $1`, "a\x00b")
			return err
		},
		"text that is not UTF-8": func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE things SET s = $1`, "\xff")
			return err
		},
		"a statement inside Query": func(tx state.Tx) error {
			return tx.Query(one, nil, func(state.Row) error {
				_, err := tx.Exec(`UPDATE things SET n = 2`)
				return err
			})
		},
		"too few variables": func(tx state.Tx) error {
			return tx.Query(one, nil, func(r state.Row) error { return r.Scan(new(int64)) })
		},
		"text as number": func(tx state.Tx) error {
			return tx.Query(one, nil, func(r state.Row) error {
				return r.Scan(new(int64), new(int64), new(int64), new([]byte))
			})
		},
		"bytes as text": func(tx state.Tx) error {
			return tx.Query(one, nil, func(r state.Row) error {
				return r.Scan(new(int64), new(int64), new(string), new(string))
			})
		},
		"text as bytes": func(tx state.Tx) error {
			return tx.Query(one, nil, func(r state.Row) error {
				return r.Scan(new(int64), new(int64), new([]byte), new([]byte))
			})
		},
	}
	Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		table(t, db)
		do(t, db, `INSERT INTO things (id, n, s, b) VALUES ($1, $1, $2, $3)`, int64(1), "text", []byte("bytes"))
		for name, f := range cases {
			if err := db.Write(t.Context(), f); !errors.Is(err, state.ErrTx) {
				t.Errorf("%s: Write returned %v", name, err)
			}
		}
		for name, args := range map[string][]any{"too few": {}, "too many": {int64(1), int64(2)}} {
			if err := db.Write(t.Context(), func(tx state.Tx) error {
				_, err := tx.Exec(`UPDATE things SET n = $1`, args...)
				return err
			}); err == nil {
				t.Errorf("a statement with %s arguments succeeded", name)
			}
		}
		var kept state.Tx
		if err := db.Write(t.Context(), func(tx state.Tx) error { kept = tx; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := insert(kept, 2); !errors.Is(err, state.ErrTx) {
			t.Errorf("after the end of the transaction, a statement returned %v, want ErrTx", err)
		}
		if n := number(t, db, `SELECT n FROM things`); n != 1 {
			t.Errorf("n is %d, want 1: a refused statement changed it", n)
		}
	})
}

func TestErrorOfEachEndsTheQuery(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		table(t, db)
		seen := 0
		// An error from the function passed to Query does not end the transaction.
		err := db.Write(t.Context(), func(tx state.Tx) error {
			seen = 0
			for id := range int64(3) {
				if err := insert(tx, id); err != nil {
					return err
				}
			}
			err := tx.Query(`SELECT id FROM things`, nil, func(state.Row) error { seen++; return errBoom })
			if !errors.Is(err, errBoom) {
				return fmt.Errorf("Query returned %w", err)
			}
			return insert(tx, 3)
		})
		if err != nil || seen != 1 {
			t.Errorf("Write returned %v after %d rows, want no error after 1 row", err, seen)
		}
		if n := number(t, db, `SELECT count(*) FROM things`); n != 4 {
			t.Errorf("got %d rows, want 4", n)
		}
	})
}
