package journal

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

func leafAt(t testing.TB, j *Journal, log, seq int64) (r row) {
	t.Helper()
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		return readRows(tx, log, seq, seq+1, func(one row) error { r = one; return nil })
	})
	if err != nil || r.hash == nil {
		t.Fatalf("cannot read record %d: %v", seq, err)
	}
	return r
}

func flipped(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 1
	return b
}

// rewrite replaces records and recomputes every hash. An attacker with write access to the store can do
// this without a key.
func rewrite(t testing.TB, j *Journal, size int64, change map[int64][]byte) {
	t.Helper()
	err := j.db.Write(t.Context(), func(tx state.Tx) error {
		var leaves []row
		err := readRows(tx, 0, 0, size, func(r row) error { leaves = append(leaves, r); return nil })
		if err != nil {
			return err
		}
		for _, table := range []string{"tiles", "leaves", "heads", "journal_values", "journal_calls", "journal_indexed"} {
			if _, err := tx.Exec(`DELETE FROM ` + table); err != nil { // the store has only log 0
				return err
			}
		}
		var e edge
		for _, l := range leaves {
			if record, ok := change[l.seq]; ok {
				l.record = record
			}
			hash := tlog.RecordHash(l.record)
			if _, err := tx.Exec(`INSERT INTO leaves (place, hash, record) VALUES ($1, $2, $3)`, l.seq, hash[:], l.record); err != nil {
				return err
			}
			for _, root := range e.add(hash) {
				if err := addTile(tx, 0, root); err != nil {
					return err
				}
			}
		}
		_, err = tx.Exec(`INSERT INTO heads (log, size, edge) VALUES ($1, $2, $3)`, int64(0), e.size, e.append(nil))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestVerifyFindsTampering(t *testing.T) {
	const size = 600 // the records fill two complete tiles and a part of a third
	cases := []struct {
		name    string
		tamper  func(t *testing.T, j *Journal)
		seq     int64
		problem string
	}{
		{"a byte of a record", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE leaves SET record = $1 WHERE place = 300`, flipped(leafAt(t, j, 0, 300).record, 90))
		}, 300, "was changed"},
		{"a byte of the first record", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE leaves SET record = $1 WHERE place = 0`, flipped(leafAt(t, j, 0, 0).record, 90))
		}, 0, "was changed"},
		{"a byte of a hash in a tile", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE leaves SET hash = $1 WHERE place = 300`, flipped(leafAt(t, j, 0, 300).hash, 3))
		}, 300, "tile"},
		{"a byte of a hash not yet in a tile", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE leaves SET hash = $1 WHERE place = 590`, flipped(leafAt(t, j, 0, 590).hash, 3))
		}, 590, "does not match its hash"},
		{"a record with its hash, in a tile", func(t *testing.T, j *Journal) {
			record := flipped(leafAt(t, j, 0, 255).record, 90)
			hash := tlog.RecordHash(record)
			exec(t, j, `UPDATE leaves SET record = $1, hash = $2 WHERE place = 255`, record, hash[:])
		}, 255, "tile"},
		{"a record with its hash, not yet in a tile", func(t *testing.T, j *Journal) {
			record := flipped(leafAt(t, j, 0, 590).record, 90)
			hash := tlog.RecordHash(record)
			exec(t, j, `UPDATE leaves SET record = $1, hash = $2 WHERE place = 590`, record, hash[:])
		}, 1, "do not match a stored checkpoint"},
		{"a record removed", func(t *testing.T, j *Journal) {
			exec(t, j, `DELETE FROM leaves WHERE place = 411`)
		}, 411, "missing"},
		{"the first record removed", func(t *testing.T, j *Journal) {
			exec(t, j, `DELETE FROM leaves WHERE place = 0`)
		}, 0, "missing"},
		{"a page of records removed", func(t *testing.T, j *Journal) {
			exec(t, j, `DELETE FROM leaves WHERE place >= 20 AND place < 590`)
		}, 20, "missing"},
		{"two records swapped, in tiles", func(t *testing.T, j *Journal) { swap(t, j, 17, 300) }, 17, "tile"},
		{"two records swapped, not yet in a tile", func(t *testing.T, j *Journal) { swap(t, j, 540, 541) }, 540, "a different position"},
		{"the tail removed", func(t *testing.T, j *Journal) {
			exec(t, j, `DELETE FROM leaves WHERE place >= 595`)
		}, 595, "missing"},
		{"the tail removed and all hashes recomputed", func(t *testing.T, j *Journal) { rewrite(t, j, 550, nil) }, 550, "ends after 550 records, but a stored checkpoint covers 600"},
		{"a record added after the end", func(t *testing.T, j *Journal) {
			record := []byte(`{"log":0,"seq":600,"time":"2026-03-01T12:00:00Z"}`)
			hash := tlog.RecordHash(record)
			exec(t, j, `INSERT INTO leaves (place, hash, record) VALUES (600, $1, $2)`, hash[:], record)
		}, 600, "after the end of the log"},
		{"a record changed and all hashes recomputed", func(t *testing.T, j *Journal) {
			rewrite(t, j, size, map[int64][]byte{300: bytes.Replace(leafAt(t, j, 0, 300).record, []byte("ada"), []byte("eve"), 1)})
		}, 1, "records 1 to 599"},
		{"a tile changed", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE tiles SET hashes = $1 WHERE level = 0 AND n = 1`, make([]byte, tileWidth*tlog.HashSize))
		}, 256, "tile"},
		{"a tile cut short", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE tiles SET hashes = $1 WHERE level = 0 AND n = 1`, make([]byte, 5))
		}, 256, "tile"},
		{"a tile removed", func(t *testing.T, j *Journal) { exec(t, j, `DELETE FROM tiles WHERE level = 0 AND n = 1`) }, 256, "missing"},
		{"an upper tile changed", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE tiles SET hashes = $1 WHERE level = 1`, make([]byte, 2*tlog.HashSize))
		}, 0, "records 0 to 255"},
		{"the head changed", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE heads SET edge = $1`, make([]byte, 4*tlog.HashSize))
		}, 600, "head"},
		{"the head cut short", func(t *testing.T, j *Journal) { exec(t, j, `UPDATE heads SET edge = $1`, []byte{}) }, 600, "head"},
		{"the head made smaller", func(t *testing.T, j *Journal) { exec(t, j, `UPDATE heads SET size = 599`) }, 599, "after the end of the log"},
		{"the head removed", func(t *testing.T, j *Journal) { exec(t, j, `DELETE FROM heads`) }, 0, "no head"},
		{"a checkpoint changed", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE checkpoints SET note = $1 WHERE size = 600`, []byte("test/log/0\n600\n"+tlog.Hash{}.String()+"\n\n— test/log/0 AAAAAAAA\n"))
		}, 599, "was changed, or is signed with another key"},
		{"a checkpoint of another key", func(t *testing.T, j *Journal) {
			forged := open(nil)
			forged.signer = bytes.Clone(testKey)
			forged.signer[0] ^= 1
			text, err := forged.sign(0, 600, tlog.Hash{})
			if err != nil {
				t.Fatal(err)
			}
			exec(t, j, `UPDATE checkpoints SET note = $1 WHERE size = 600`, text)
		}, 599, "another key"},
		{"a checkpoint moved to another size", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE checkpoints SET size = 599 WHERE size = 600`)
		}, 598, "was changed"},
		{"all checkpoints removed", func(t *testing.T, j *Journal) { exec(t, j, `DELETE FROM checkpoints`) }, 0, "no checkpoint"},
		{"a log that is not in the roster", func(t *testing.T, j *Journal) {
			exec(t, j, `INSERT INTO leaves (place, hash, record) VALUES ($1, $2, $3)`, place(7, 0), make([]byte, 32), []byte("{}"))
		}, 0, "log 7 has no head"},
	}
	statetest.Each(t, func(t *testing.T, openStore func() state.DB) {
		j := open(asLog{openStore(), 0})
		fill(t, j, size)
		// After this time, the next checkpoint does not replace the first.
		j.now = func() time.Time { return started.Add(checkpointInterval) }
		checkpoint(t, j)
		restore := saved(t, j)
		for _, tt := range cases {
			t.Run(tt.name, func(t *testing.T) {
				restore(t)
				if r := verify(t, j); !r.OK || r.Records != size || r.Signed != size {
					t.Fatalf("before tampering: got the report %+v, want an intact journal", r)
				}
				tt.tamper(t, j)
				r := verify(t, j)
				if r.OK || r.FirstBad == nil || r.FirstBad.Seq != tt.seq || !strings.Contains(r.Problem, tt.problem) {
					t.Errorf("got report %+v at %+v, want record %d: %s", r, r.FirstBad, tt.seq, tt.problem)
				}
			})
		}
	})
}

func swap(t *testing.T, j *Journal, a, b int64) {
	t.Helper()
	x, y := leafAt(t, j, 0, a), leafAt(t, j, 0, b)
	exec(t, j, `UPDATE leaves SET record = $1, hash = $2 WHERE place = $3`, y.record, y.hash, a)
	exec(t, j, `UPDATE leaves SET record = $1, hash = $2 WHERE place = $3`, x.record, x.hash, b)
}

// A checkpoint in another place reveals changes that Verify cannot detect from the store alone.
func TestVerifyAgainstAGivenCheckpoint(t *testing.T) {
	t.Run("an older copy of the store", func(t *testing.T) {
		j, copy := newJournal(t, 500), newJournal(t, 400)
		kept := checkpoint(t, j)
		if r := verify(t, copy); !r.OK {
			t.Fatalf("without the checkpoint, the copy must verify: %+v", r)
		}
		r := verify(t, copy, kept)
		if r.OK || r.FirstBad.Seq != 400 || !strings.Contains(r.Problem, "the given checkpoint covers 500") {
			t.Errorf("got report %+v", r)
		}
	})
	t.Run("history rewritten and signed with the key", func(t *testing.T) {
		j := newJournal(t, 300)
		kept := checkpoint(t, j)
		rewrite(t, j, 300, map[int64][]byte{20: bytes.Replace(leafAt(t, j, 0, 20).record, []byte("ada"), []byte("eve"), 1)})
		exec(t, j, `DELETE FROM checkpoints`)
		fill(t, j, 200)
		checkpoint(t, j)
		if r := verify(t, j); !r.OK {
			t.Fatalf("a rewrite with the key must verify: %+v", r)
		}
		if r := verify(t, j, kept); r.OK || !strings.Contains(r.Problem, "do not match the given checkpoint") {
			t.Errorf("got report %+v", r)
		}
	})
	t.Run("an empty store", func(t *testing.T) {
		kept := checkpoint(t, newJournal(t, 5))
		if r := verify(t, open(statetest.Open(t)), kept); r.OK || !strings.Contains(r.Problem, "covers 5") {
			t.Errorf("got report %+v", r)
		}
	})
	t.Run("a consistent journal", func(t *testing.T) {
		j := newJournal(t, 300)
		kept := checkpoint(t, j)
		fill(t, j, 300)
		if r := verify(t, j, kept); !r.OK {
			t.Errorf("got report %+v", r)
		}
	})
	t.Run("not a checkpoint of this journal", func(t *testing.T) {
		j := newJournal(t, 3)
		other := New(j.db, testKey, "other")
		empty := tlog.Hash(sha256.Sum256(nil))
		text, err := other.sign(0, 3, empty)
		if err != nil {
			t.Fatal(err)
		}
		v, err := j.key.verifier(0)
		if err != nil {
			t.Fatal(err)
		}
		mixed, err := note.Sign(&note.Note{Text: fmt.Sprintf("other/log/0\n0\n%s\n", empty)}, noteSigner{v, testKey})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{text, mixed, []byte("hello"), nil} {
			if _, err := j.Verify(t.Context(), Check{Checkpoints: [][]byte{text}}); err == nil {
				t.Errorf("Verify accepted the checkpoint %q", text)
			}
		}
	})
}

// Verify detects a value of the wrong type. SQLite stores values of any type in any column.
func TestVerifyFindsAnotherType(t *testing.T) {
	for _, change := range []string{
		`UPDATE leaves SET record = replace(record, 'ada@local', 'eve@local') WHERE place = 7`,
		`UPDATE leaves SET record = CAST(record AS TEXT) WHERE place = 7`,
		`UPDATE leaves SET record = 7 WHERE place = 7`,
		`UPDATE leaves SET hash = CAST(hash AS TEXT) WHERE place = 7`,
	} {
		j := newJournal(t, 20)
		exec(t, j, change)
		if r := verify(t, j); r.OK || r.FirstBad.Seq != 7 {
			t.Errorf("%s: got report %+v", change, r)
		}
	}
}

func TestVerifyDemandsEveryStride(t *testing.T) {
	j := newJournal(t, 2*stride+10)
	checkpoint(t, j)
	if r := verify(t, j); !r.OK || r.Records != 2*stride+10 {
		t.Fatalf("got report %+v", r)
	}
	exec(t, j, `DELETE FROM checkpoints WHERE size = $1`, int64(stride))
	if r := verify(t, j); r.OK || r.FirstBad.Seq != stride-1 {
		t.Errorf("got report %+v", r)
	}
}

func TestErasedRecordsVerify(t *testing.T) {
	j := newJournal(t, 600)
	exec(t, j, `UPDATE leaves SET record = NULL WHERE place >= 100 AND place < 150`)
	r, err := j.Verify(t.Context(), Check{Erased: true})
	if err != nil || !r.OK || r.Records != 600 || r.Erased != 50 {
		t.Errorf("got report %+v, %v", r, err)
	}
	if r := verify(t, j); r.OK || r.FirstBad == nil || r.FirstBad.Seq != 100 {
		t.Errorf("removed content without an erasure was accepted: %+v", r)
	}
}

// Verify detects added and removed logs, because log 0 lists all logs.
func TestRoster(t *testing.T) {
	cases := []struct {
		name    string
		tamper  func(t *testing.T, j *Journal)
		at      Position
		problem string
	}{
		{"a whole log vanishes", func(t *testing.T, j *Journal) {
			exec(t, j, `DELETE FROM leaves WHERE place >= $1 AND place < $2`, place(2, 0), place(3, 0))
			for _, table := range []string{"heads", "tiles", "checkpoints"} {
				exec(t, j, `DELETE FROM `+table+` WHERE log = 2`)
			}
		}, Position{2, 0}, "log 2 is missing"},
		{"log 0 vanishes", func(t *testing.T, j *Journal) {
			exec(t, j, `DELETE FROM leaves WHERE place < $1`, place(1, 0))
			for _, table := range []string{"heads", "checkpoints"} {
				exec(t, j, `DELETE FROM `+table+` WHERE log = 0`)
			}
		}, Position{1, 0}, "log 1 is not listed in the roster"},
		{"a log appears", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE leaves SET place = place + $1 WHERE place >= $2 AND place < $3`, place(7, 0), place(2, 0), place(3, 0))
			for _, table := range []string{"heads", "tiles", "checkpoints"} {
				exec(t, j, `UPDATE `+table+` SET log = 9 WHERE log = 2`)
			}
		}, Position{9, 0}, "was changed, or is signed"},
		{"a log is cut back to its first checkpoint", func(t *testing.T, j *Journal) {
			exec(t, j, `DELETE FROM checkpoints WHERE log = 2 AND size > 1`)
			exec(t, j, `DELETE FROM tiles WHERE log = 2`)
			exec(t, j, `DELETE FROM leaves WHERE place > $1 AND place < $2`, place(2, 0), place(3, 0))
			exec(t, j, `UPDATE heads SET size = 1, edge = $1 WHERE log = 2`, leafAt(t, j, 2, 0).hash)
		}, Position{2, 1}, "the roster in log 0 covers 300"},
		{"a record of another log", func(t *testing.T, j *Journal) {
			exec(t, j, `UPDATE leaves SET record = $1 WHERE place = $2`, leafAt(t, j, 1, 50).record, place(2, 50))
		}, Position{2, 50}, "was changed"},
	}
	statetest.Each(t, func(t *testing.T, openStore func() state.DB) {
		db := openStore()
		for log := range int64(3) {
			fill(t, open(asLog{db, log + 1}), 300)
		}
		j := open(asLog{db, 4})
		j.now = func() time.Time { return started.Add(checkpointInterval) }
		checkpoint(t, j)
		restore := saved(t, j)
		for _, tt := range cases {
			t.Run(tt.name, func(t *testing.T) {
				restore(t)
				if r := verify(t, j); !r.OK || r.Records != 900+9 || r.Logs != 4 {
					t.Fatalf("before tampering: got the report %+v, want an intact journal", r)
				}
				tt.tamper(t, j)
				if r := verify(t, j); r.OK || *r.FirstBad != tt.at || !strings.Contains(r.Problem, tt.problem) {
					t.Errorf("got the report %+v at %+v, want record %+v: %s", r, r.FirstBad, tt.at, tt.problem)
				}
			})
		}
	})
}

func TestVerifyReportsProgress(t *testing.T) {
	j := newJournal(t, page+10)
	var calls []string
	_, err := j.Verify(t.Context(), Check{Progress: func(done, of int64) { calls = append(calls, fmt.Sprint(done, "/", of)) }})
	if err != nil || strings.Join(calls, " ") != "4096/4106 4106/4106" {
		t.Errorf("got progress %v, %v", calls, err)
	}
}
