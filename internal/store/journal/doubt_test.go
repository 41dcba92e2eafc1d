package journal

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/sqlite"
)

// signedHandover is one between two keys, of a size of log 0.
func signedHandover(log int64, old, next *Journal) Handover {
	h := Handover{Log: log, Size: 1, Old: old.key.String(), New: next.key.String()}
	h.ByOld, h.ByNew = ed25519.Sign(old.signer, h.text()), ed25519.Sign(next.signer, h.text())
	return h
}

func handoversIn(t *testing.T, j *Journal) (n int64) {
	t.Helper()
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT COUNT(*) FROM handovers`, nil, func(r state.Row) error { return r.Scan(&n) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// If any statement of a hand-over fails, including those of also, the old key stays in
// force and nothing records another one.
func TestHandOverMayFail(t *testing.T) {
	for log, engine := range []string{"one log", "a log of its own"} {
		t.Run(engine, func(t *testing.T) {
			db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			as := asLog{db, int64(log)}
			fill(t, open(as), 20)
			checkpoint(t, open(as))
			was := verify(t, open(as)).Records
			f := &faulty{DB: as}
			also := func(tx state.Tx, _ *Journal) error {
				_, err := tx.Exec(`UPDATE heads SET size = size`)
				return err
			}
			n := 1
			for ; ; n++ {
				f.after(n)
				_, err := open(f).HandOver(t.Context(), secondKey, "ada@local", also)
				if f.due() {
					if err != nil {
						t.Fatalf("without a failure: %v", err)
					}
					break
				}
				if !errors.Is(err, errFault) {
					t.Fatalf("statement %d failed, and the error is %v", n, err)
				}
				f.after(0)
				old := open(as)
				if r := verify(t, old); !r.OK || r.Records != was {
					t.Fatalf("after statement %d failed: %+v; there were %d", n, r, was)
				}
				checkpoint(t, old)
				if told := handoversIn(t, old); told != 0 {
					t.Fatalf("after statement %d failed there are %d hand-overs", n, told)
				}
			}
			if n < 10 {
				t.Errorf("only %d statements were made to fail", n-1)
			}
			f.after(0)
			fresh := New(as, secondKey, "test")
			whole(t, fresh)
			if told := handoversIn(t, fresh); told != int64(log)+1 {
				t.Errorf("afterwards there are %d hand-overs", told)
			}
			if _, err := open(as).Checkpoint(t.Context()); !errors.Is(err, ErrHandedOver) {
				t.Errorf("afterwards the old key signs: %v", err)
			}
		})
	}
}

// A head that was damaged is not signed, by neither key: a signature would make
// the damage count.
func TestDamagedHeadIsNotSigned(t *testing.T) {
	for name, sign := range map[string]func(context.Context, *Journal) error{
		"checkpoint": func(ctx context.Context, j *Journal) error { _, err := j.Checkpoint(ctx); return err },
		"hand-over":  func(ctx context.Context, j *Journal) error { _, err := j.HandOver(ctx, secondKey, "", nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			j := open(asLog{db, 1})
			fill(t, j, 20)
			exec(t, j, `UPDATE heads SET edge = $1 WHERE log = 1`, []byte("no edge"))
			signed := func() (all []string) {
				marks, err := j.newestMarks(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range marks {
					all = append(all, string(m.Note))
				}
				return all
			}
			was := signed()
			if err := sign(t.Context(), j); err == nil {
				t.Error("it is signed")
			}
			if is := signed(); fmt.Sprint(is) != fmt.Sprint(was) || handoversIn(t, j) != 0 {
				t.Errorf("there are the signatures %q, before %q", is, was)
			}
		})
	}
}

// A keyring has one way from key to key, and takes no checkpoint of others.
func TestKeyringHasOneWay(t *testing.T) {
	j := newJournal(t, 3)
	fresh, other := New(j.db, secondKey, "test"), New(j.db, thirdKey, "test")
	if k, err := newKeyring(fresh.key, []Handover{signedHandover(0, j, fresh), signedHandover(1, other, fresh)}); err == nil || !strings.Contains(err.Error(), "took over from two") {
		t.Errorf("the keyring takes two before one: %v, %v", k, err)
	}
	k, err := newKeyring(fresh.key, []Handover{signedHandover(0, j, fresh)})
	if err != nil {
		t.Fatal(err)
	}
	text, err := other.sign(0, 1, (&edge{}).root())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.open(text); err == nil || !strings.Contains(err.Error(), "not signed by one of this journal's keys") {
		t.Errorf("a stranger's checkpoint: %v", err)
	}
	long := append(checkpoint(t, j), bytes.Repeat([]byte("— witness signature\n"), maxNote/20)...)
	if _, err := j.key.Open(long); !errors.Is(err, errNote) {
		t.Errorf("a checkpoint of %d bytes: %v", len(long), err)
	}
}

// An export or proof forged with an old key is rejected, and so is a checkpoint of another
// journal.
func TestForgedElsewhere(t *testing.T) {
	old := newJournal(t, 5)
	fresh := handOver(t, old, secondKey)
	thief := New(old.db, thirdKey, "test")
	proof, err := fresh.Prove(t.Context(), old.db.Log(), 2)
	if err != nil {
		t.Fatal(err)
	}
	proof.Handovers = append(proof.Handovers, signedHandover(1, old, thief))
	text, err := json.Marshal(proof)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyProof(text, fresh.Key()); err == nil || !strings.Contains(err.Error(), "one key was handed over to two") {
		t.Errorf("the proof holds: %v", err)
	}

	foreign, err := thief.sign(0, 0, (&edge{}).root())
	if err != nil {
		t.Fatal(err)
	}
	var export bytes.Buffer
	if err := fresh.Export(t.Context(), &export); err != nil {
		t.Fatal(err)
	}
	if r, err := VerifyExport(&export, Check{Key: fresh.Key(), Checkpoints: [][]byte{foreign}}); err == nil || !strings.Contains(err.Error(), "the given checkpoint cannot be used") {
		t.Errorf("with a checkpoint of another journal: %+v, %v", r, err)
	}

	h := signedHandover(1, old, thief)
	err = fresh.db.Write(t.Context(), func(tx state.Tx) error {
		return fresh.enroll(tx, &Record{Kind: kindHandover, Time: started, Roster: &Roster{Log: 1, Size: 1, Root: &h.Root}, Handover: &h})
	})
	if err != nil {
		t.Fatal(err)
	}
	export.Reset()
	if err := fresh.Export(t.Context(), &export); err != nil {
		t.Fatal(err)
	}
	if r, err := VerifyExport(&export, Check{Key: fresh.Key()}); err != nil || r.OK || !strings.Contains(r.Problem, "one key was handed over to two") {
		t.Errorf("the export holds: %+v, %v", r, err)
	}
}

// A proof is not made of a tree that has lost a part.
func TestNoProofWithoutItsTiles(t *testing.T) {
	j := newJournal(t, 300)
	older := checkpoint(t, j)
	fill(t, j, 300)
	checkpoint(t, j)
	if _, err := j.ProveSince(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	exec(t, j, `UPDATE tiles SET hashes = $1 WHERE level = 0`, []byte{})
	if p, err := j.ProveSince(t.Context(), older); err == nil {
		t.Errorf("it is proven with %+v", p)
	}
	if p, err := j.Prove(t.Context(), j.db.Log(), 7); err == nil {
		t.Errorf("it is proven with %+v", p)
	}
}

// An export that cannot be written or read to its end is no good one.
func TestExportBreaksOff(t *testing.T) {
	j := newJournal(t, 5000) // more than a page
	if err := j.Export(t.Context(), &full{room: 1000}); !errors.Is(err, errFault) {
		t.Errorf("it is written to a full disk: %v", err)
	}
	var export bytes.Buffer
	if err := j.Export(t.Context(), &export); err != nil {
		t.Fatal(err)
	}
	first, _, _ := bytes.Cut(export.Bytes(), []byte("\n"))
	broken := io.MultiReader(bytes.NewReader(first), strings.NewReader("\n"), iotest.ErrReader(errFault))
	if r, err := VerifyExport(broken, Check{}); !errors.Is(err, errFault) || r.OK {
		t.Errorf("it is read from a broken disk: %+v, %v", r, err)
	}
	var said []int64
	r, err := VerifyExport(&export, Check{Progress: func(done, _ int64) { said = append(said, done) }})
	if err != nil || !r.OK || len(said) == 0 || said[0] != page {
		t.Errorf("progress of %d records: %v, %v", r.Records, said, err)
	}
}

// full is a disk with little space.
type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errFault
	}
	return len(b), nil
}

// The memory that a hostile export can use is bounded: logs of one record each, and gaps
// between records.
func TestHostileExportIsBounded(t *testing.T) {
	leaf := func(log, seq int64) []byte {
		record := appendRecord(nil, &Record{Log: log, Seq: seq})
		hash := sha256.Sum256(append([]byte{0}, record...))
		return appendLine(nil, log, row{seq: seq, hash: hash[:], record: record})
	}
	var logs, gaps bytes.Buffer
	for i := range int64(rosterLimit/16 + 2) {
		logs.Write(leaf(i+1, 0))
		gaps.Write(appendLine(nil, 1, row{seq: 2 * i, hash: make([]byte, sha256.Size)}))
		gaps.Write(leaf(1, 2*i+1))
	}
	for want, export := range map[string]*bytes.Buffer{"too many logs to be checked": &logs, "and too many others have no content": &gaps} {
		if r, err := VerifyExport(export, Check{Erased: true}); err != nil || r.OK || !strings.Contains(r.Problem, want) {
			t.Errorf("verify says %+v, %v; not %s", r, err, want)
		}
	}
}
