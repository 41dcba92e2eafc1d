package authority

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// testKeys is a root key.
type testKeys string

func (k testKeys) MAC(purpose string, data []byte) (mac [sha256.Size]byte) {
	h := hmac.New(sha256.New, []byte(k))
	fmt.Fprintf(h, "%d:%s", len(purpose), purpose)
	h.Write(data)
	h.Sum(mac[:0])
	return mac
}

func row(id string) Row { return Row{Kind: APIKey, ID: id, Content: []byte("content of " + id)} }

func put(t *testing.T, r *Register, rows ...Row) {
	t.Helper()
	if err := r.DB.Write(t.Context(), func(tx state.Tx) error { return r.Put(tx, rows...) }); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, r *Register, id string) {
	t.Helper()
	err := r.DB.Write(t.Context(), func(tx state.Tx) error {
		found, err := r.Remove(tx, APIKey, id)
		if !found {
			t.Errorf("the register does not contain %s", id)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// held returns which of the rows a, b and c the register contains.
func held(t *testing.T, r *Register) (ids []string, err error) {
	t.Helper()
	err = r.Read(t.Context(), func(_ state.Tx, v *View) error {
		ids = nil
		for _, id := range []string{"a", "b", "c"} {
			if v.Has(row(id)) {
				ids = append(ids, id)
			}
		}
		return nil
	})
	return ids, err
}

// wantHeld checks that r and a register of another process contain exactly the given rows.
func wantHeld(t *testing.T, r *Register, want ...string) {
	t.Helper()
	for _, of := range []*Register{r, New(Track(r.DB.DB, nil), r.keys)} {
		if ids, err := held(t, of); err != nil || !slices.Equal(ids, want) {
			t.Errorf("the register contains %v, %v; want %v", ids, err, want)
		}
	}
}

// table is the content of a table, which a test can restore.
type table struct {
	name string
	rows [][4]any
}

// snapshot reads the tables of a register, as an attacker with the password of the database could.
func snapshot(t *testing.T, db state.DB) (entries, head table) {
	t.Helper()
	err := db.Read(t.Context(), func(tx state.Tx) error {
		entries, head = table{name: "authority (kind, id, sum, until)"}, table{name: "authority_head (one, name, version, mac)"}
		err := tx.Query(`SELECT kind, id, sum, until FROM authority`, nil, func(r state.Row) error {
			var kind, id string
			var sum []byte
			var until int64
			err := r.Scan(&kind, &id, &sum, &until)
			entries.rows = append(entries.rows, [4]any{kind, id, sum, until})
			return err
		})
		if err != nil {
			return err
		}
		return tx.Query(`SELECT one, name, version, mac FROM authority_head`, nil, func(r state.Row) error {
			var one, version int64
			var name string
			var mac []byte
			err := r.Scan(&one, &name, &version, &mac)
			head.rows = append(head.rows, [4]any{one, name, version, mac})
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries, head
}

// restore replaces the content of tables.
func restore(t *testing.T, db state.DB, tables ...table) {
	t.Helper()
	err := db.Write(t.Context(), func(tx state.Tx) error {
		for _, tb := range tables {
			var name string
			fmt.Sscan(tb.name, &name)
			if _, err := tx.Exec(`DELETE FROM ` + name); err != nil {
				return err
			}
			for _, r := range tb.rows {
				if _, err := tx.Exec(`INSERT INTO `+tb.name+` VALUES ($1, $2, $3, $4)`, r[:]...); err != nil {
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

func TestPutAndRemove(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		r := New(Track(connect(), nil), testKeys("root"))
		wantHeld(t, r)
		put(t, r, row("a"), row("b"))
		put(t, r, row("c"))
		wantHeld(t, r, "a", "b", "c")
		remove(t, r, "b")
		wantHeld(t, r, "a", "c")
		put(t, r, Row{Kind: APIKey, ID: "a", Content: []byte("other")})
		wantHeld(t, r, "c")
	})
}

// A transaction that fails changes neither the register nor what a process remembers.
func TestFailedChange(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		r := New(Track(connect(), nil), testKeys("root"))
		put(t, r, row("a"))
		failed := errors.New("failed")
		err := r.DB.Write(t.Context(), func(tx state.Tx) error {
			if err := r.Put(tx, row("b")); err != nil {
				return err
			}
			if v, err := r.View(tx); err != nil || !v.Has(row("b")) {
				t.Errorf("the transaction does not see its own change: %v", err)
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Fatal(err)
		}
		wantHeld(t, r, "a")
	})
}

// An attacker who can write to the database but has no root key can neither give nor restore authority.
func TestOthersCannotChange(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		db := connect()
		exec := func(query string, args ...any) func(t *testing.T, r *Register) {
			return func(t *testing.T, _ *Register) {
				t.Helper()
				if err := db.Write(t.Context(), func(tx state.Tx) error { _, err := tx.Exec(query, args...); return err }); err != nil {
					t.Fatal(err)
				}
			}
		}
		sum := sha256.Sum256(row("c").Content)
		for _, c := range []struct {
			name   string
			change func(*testing.T, *Register)
			want   error // first in a process that saw the newest register, then in a new process
		}{
			{"insert", exec(`INSERT INTO authority (kind, id, sum, until) VALUES ('api key', 'c', $1, 0)`, sum[:]), ErrChanged},
			{"rename", exec(`UPDATE authority SET id = 'c' WHERE id = 'a'`), ErrChanged},
			{"extend", exec(`UPDATE authority SET until = 1`), ErrChanged},
			{"delete", exec(`DELETE FROM authority WHERE id = 'a'`), ErrChanged},
			{"version", exec(`UPDATE authority_head SET version = 1000`), ErrChanged},
			{"other root key", func(t *testing.T, r *Register) {
				forged := New(Track(db, nil), testKeys("other"))
				if err := forged.DB.Write(t.Context(), func(tx state.Tx) error {
					_, err := forged.Adopt(tx, []Row{row("c")})
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}, ErrChanged},
			{"restore the entry", func(t *testing.T, r *Register) {
				entries, _ := snapshot(t, db)
				remove(t, r, "a")
				restore(t, db, entries)
			}, ErrChanged},
		} {
			t.Run(c.name, func(t *testing.T) {
				exec(`DELETE FROM authority`)(t, nil)
				exec(`DELETE FROM authority_head`)(t, nil)
				r := New(Track(db, nil), testKeys("root"))
				put(t, r, row("a"), row("b"))
				c.change(t, r)
				if ids, err := held(t, New(Track(db, nil), testKeys("root"))); !errors.Is(err, c.want) {
					t.Errorf("another process sees %v, %v; want %v", ids, err, c.want)
				}
			})
		}
	})
}

// A process that has seen a register refuses an older one, even if all its tables were restored. A home that has seen a
// register also refuses an older one.
func TestOlderRegister(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		db, memory := connect(), MemoryOf(home.At(t.TempDir()), "postgres://me:secret@db:5432/ambit?sslmode=disable")
		r := New(Track(db, memory), testKeys("root"))
		put(t, r, row("a"), row("b"))
		entries, head := snapshot(t, db)
		remove(t, r, "a")
		wantHeld(t, r, "b")
		// A transaction that reads no register does not change the newest register that the process remembers.
		if err := r.DB.Read(t.Context(), func(state.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
		restore(t, db, entries, head)
		for name, of := range map[string]*Register{"process": r, "home": New(Track(db, memory), testKeys("root"))} {
			if ids, err := held(t, of); !errors.Is(err, ErrOlder) {
				t.Errorf("the %s sees %v, %v in the restored register; want %v", name, ids, err, ErrOlder)
			}
		}
		restore(t, db, table{name: entries.name}, table{name: head.name})
		if ids, err := held(t, New(Track(db, memory), testKeys("root"))); !errors.Is(err, ErrOlder) {
			t.Errorf("without a register, the home sees %v, %v; want %v", ids, err, ErrOlder)
		}
		// The owner accepts the restored state, and all machines accept it again.
		restore(t, db, entries, head)
		other := New(Track(db, memory), testKeys("root"))
		err := other.DB.Write(t.Context(), func(tx state.Tx) error {
			kept, err := other.Adopt(tx, []Row{row("a"), row("b"), row("c")})
			if len(kept) != 2 {
				t.Errorf("%d rows were adopted; want the 2 that the register contained", len(kept))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		wantHeld(t, r, "a", "b")
	})
}

// Begin creates a register with the rows that the store contains. It does so only once.
func TestBegin(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		r := New(Track(connect(), nil), testKeys("root"))
		for _, id := range []string{"a", "b"} {
			err := r.Begin(t.Context(), func(state.Tx) ([]Row, error) { return []Row{row(id)}, nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		wantHeld(t, r, "a")
	})
}

func TestForget(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		r, now := New(Track(connect(), nil), testKeys("root")), time.Now()
		over, lasting := row("a"), row("b")
		over.Until, lasting.Until = now.Add(-time.Minute), now.Add(time.Minute)
		put(t, r, over, lasting, row("c"))
		for _, want := range []int{1, 0} {
			if n, err := r.Forget(t.Context(), now); err != nil || n != want {
				t.Errorf("Forget removed %d entries, %v; want %d", n, err, want)
			}
		}
		wantHeld(t, r, "b", "c")
	})
}

// Missing finds the rows that were deleted from their tables.
func TestMissing(t *testing.T) {
	r, now := New(Track(statetest.Open(t), nil), testKeys("root")), time.Now()
	over := row("b")
	over.Until = now.Add(-time.Minute)
	put(t, r, row("a"), over, row("c"))
	err := r.Read(t.Context(), func(_ state.Tx, v *View) error {
		if got := v.Missing([]Row{row("c")}, now); len(got) != 1 || got[0].ID != "a" {
			t.Errorf("the missing rows are %v, want a", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An id can be used only once, even if the entry that records its use is deleted.
func TestSpend(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		r, until := New(Track(connect(), nil), testKeys("root")), time.Now().Add(time.Hour)
		spend := func(id string) (first bool) {
			t.Helper()
			first, err := r.Spend(t.Context(), id, until)
			if err != nil {
				t.Fatal(err)
			}
			if spent, err := r.Spent(t.Context(), id); err != nil || !spent {
				t.Errorf("after its use, Spent(%q) returned %v, %v; want true", id, spent, err)
			}
			return first
		}
		if spent, err := r.Spent(t.Context(), "x"); err != nil || spent {
			t.Errorf("before its use, Spent returned %v, %v; want false", spent, err)
		}
		if !spend("x") || spend("x") || !spend("y") {
			t.Error("Spend accepted the same id twice, or rejected a new id")
		}
		if err := r.DB.DB.Write(t.Context(), func(tx state.Tx) error { _, err := tx.Exec(`DELETE FROM authority`); return err }); err != nil {
			t.Fatal(err)
		}
		if first, err := New(Track(r.DB.DB, nil), r.keys).Spend(t.Context(), "x", until); first || !errors.Is(err, ErrChanged) {
			t.Errorf("after the entries were deleted, Spend returned %v, %v; want %v", first, err, ErrChanged)
		}
	})
}

// A used id stays used when a changed register is adopted.
func TestAdoptKeepsUsedIDs(t *testing.T) {
	r := New(Track(statetest.Open(t), nil), testKeys("root"))
	if _, err := r.Spend(t.Context(), "x", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	err := r.DB.Write(t.Context(), func(tx state.Tx) error {
		if _, err := tx.Exec(`UPDATE authority_head SET version = 1000`); err != nil {
			return err
		}
		_, err := r.Adopt(tx, []Row{row("a")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if spent, err := r.Spent(t.Context(), "x"); err != nil || !spent {
		t.Errorf("Spent returned %v, %v", spent, err)
	}
	wantHeld(t, r, "a")
}

// A process remembers its own change without reading it, and learns from the home what other processes have seen. It
// does not accept another register with the same version.
func TestOlderThanItsOwnChange(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		db, h := connect(), home.At(t.TempDir())
		open := func() *Register { return New(Track(db, MemoryOf(h, "postgres://db/ambit")), testKeys("root")) }
		daemon, command := open(), open()
		put(t, daemon, row("a"), row("b"))
		entries, head := snapshot(t, db)
		remove(t, command, "a")
		restore(t, db, entries, head)
		for name, of := range map[string]*Register{"command": command, "daemon": daemon} {
			if ids, err := held(t, of); !errors.Is(err, ErrOlder) {
				t.Errorf("the %s sees %v, %v; want %v", name, ids, err, ErrOlder)
			}
		}
		put(t, New(Track(db, nil), testKeys("root")), row("c")) // on a machine that has not yet seen the revocation
		for name, of := range map[string]*Register{"command": command, "daemon": daemon} {
			if ids, err := held(t, of); !errors.Is(err, ErrOlder) {
				t.Errorf("after another change, the %s sees %v, %v; want %v", name, ids, err, ErrOlder)
			}
		}
	})
}

// If a change is committed while a snapshot is open, the register of the snapshot is still accepted.
func TestChangeDuringASnapshot(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		r := New(Track(connect(), nil), testKeys("root"))
		put(t, r, row("a"), row("b"))
		err := r.DB.Read(t.Context(), func(tx state.Tx) error {
			if _, err := r.View(tx); err != nil { // the snapshot begins
				return err
			}
			remove(t, r, "a")
			_, err := r.View(tx)
			return err
		})
		if err != nil {
			t.Errorf("the register of an open snapshot is refused: %v", err)
		}
		wantHeld(t, r, "b")
	})
}
