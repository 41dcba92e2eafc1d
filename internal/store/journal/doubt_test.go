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

// signedHandover returns a handover between two keys, for a log that has one record.
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

// Any SQL statement of a handover can fail, including statements of the callback. The old key then stays
// valid, and the store contains no handover.
func TestHandOverMayFail(t *testing.T) {
	for log, engine := range []string{"one log", "own log"} {
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
			update := func(tx state.Tx, _ *Journal) error {
				_, err := tx.Exec(`UPDATE heads SET size = size`)
				return err
			}
			n := 1
			for ; ; n++ {
				f.after(n)
				_, err := open(f).HandOver(t.Context(), secondKey, "ada@local", update)
				if f.pending() {
					if err != nil {
						t.Fatalf("HandOver failed although no statement failed: %v", err)
					}
					break
				}
				if !errors.Is(err, errFault) {
					t.Fatalf("statement %d failed, but HandOver returned %v, want the error of the statement", n, err)
				}
				f.after(0)
				old := open(as)
				if r := verify(t, old); !r.OK || r.Records != was {
					t.Fatalf("after statement %d failed: got report %+v, want %d records", n, r, was)
				}
				checkpoint(t, old)
				if got := handoversIn(t, old); got != 0 {
					t.Fatalf("after statement %d failed, the store has %d handovers, want none", n, got)
				}
			}
			if n < 10 {
				t.Errorf("the test made only %d statements fail", n-1)
			}
			f.after(0)
			fresh := New(as, secondKey, "test")
			whole(t, fresh)
			if got := handoversIn(t, fresh); got != int64(log)+1 {
				t.Errorf("the store has %d handovers, want one for each log", got)
			}
			if _, err := open(as).Checkpoint(t.Context()); !errors.Is(err, ErrHandedOver) {
				t.Errorf("signing with the old key: got error %v, want ErrHandedOver", err)
			}
		})
	}
}

// No key signs a damaged head, because a signature would make the head valid.
func TestDamagedHeadIsNotSigned(t *testing.T) {
	for name, sign := range map[string]func(context.Context, *Journal) error{
		"checkpoint": func(ctx context.Context, j *Journal) error { _, err := j.Checkpoint(ctx); return err },
		"handover":   func(ctx context.Context, j *Journal) error { _, err := j.HandOver(ctx, secondKey, "", nil); return err },
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
				t.Error("the damaged head was signed")
			}
			if is := signed(); fmt.Sprint(is) != fmt.Sprint(was) || handoversIn(t, j) != 0 {
				t.Errorf("the signatures changed: got %q, want %q", is, was)
			}
		})
	}
}

// A keyring accepts only one predecessor and one successor of each key. It accepts only checkpoints that
// its keys signed.
func TestKeyringHasOneWay(t *testing.T) {
	j := newJournal(t, 3)
	fresh, other := New(j.db, secondKey, "test"), New(j.db, thirdKey, "test")
	if k, err := newKeyring(fresh.key, []Handover{signedHandover(0, j, fresh), signedHandover(1, other, fresh)}); err == nil || !strings.Contains(err.Error(), "replaced two different keys") {
		t.Errorf("two predecessors of one key: got the keyring %v and the error %v, want an error about two replaced keys",
			k, err)
	}
	k, err := newKeyring(fresh.key, []Handover{signedHandover(0, j, fresh)})
	if err != nil {
		t.Fatal(err)
	}
	text, err := other.sign(0, 1, (&edge{}).root())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.open(text); err == nil || !strings.Contains(err.Error(), "not signed by any of this journal's keys") {
		t.Errorf("opening a checkpoint of an unknown key: got error %v, want an error about the signature", err)
	}
	long := append(checkpoint(t, j), bytes.Repeat([]byte("— witness signature\n"), maxNote/20)...)
	if _, err := j.key.Open(long); !errors.Is(err, errNote) {
		t.Errorf("a checkpoint of %d bytes: got error %v, want errNote", len(long), err)
	}
}

// Exports and proofs that were forged with an old key are rejected. A checkpoint of another journal is rejected
// too.
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
	if _, err := VerifyProof(text, fresh.Key()); err == nil || !strings.Contains(err.Error(), "one key was replaced by two different keys") {
		t.Errorf("verifying the forged proof: got error %v, want an error about two successors of a key", err)
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
		t.Errorf("verifying with a checkpoint of another journal: got the report %+v and the error %v, want an error about the checkpoint",
			r, err)
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
	if r, err := VerifyExport(&export, Check{Key: fresh.Key()}); err != nil || r.OK || !strings.Contains(r.Problem, "one key was replaced by two different keys") {
		t.Errorf("verifying the forged export: got the report %+v (error %v), want a problem with two successors of a key",
			r, err)
	}
}

// Prove and ProveSince fail if tiles of the tree are missing.
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
		t.Errorf("got proof %+v, want an error", p)
	}
	if p, err := j.Prove(t.Context(), j.db.Log(), 7); err == nil {
		t.Errorf("got proof %+v, want an error", p)
	}
}

// Export fails if it cannot write the whole export. VerifyExport fails if it cannot read the whole export.
func TestExportBreaksOff(t *testing.T) {
	j := newJournal(t, 5000) // the records fill more than one page
	if err := j.Export(t.Context(), &full{space: 1000}); !errors.Is(err, errFault) {
		t.Errorf("exporting to a full disk: got error %v, want the error of the disk", err)
	}
	var export bytes.Buffer
	if err := j.Export(t.Context(), &export); err != nil {
		t.Fatal(err)
	}
	first, _, _ := bytes.Cut(export.Bytes(), []byte("\n"))
	broken := io.MultiReader(bytes.NewReader(first), strings.NewReader("\n"), iotest.ErrReader(errFault))
	if r, err := VerifyExport(broken, Check{}); !errors.Is(err, errFault) || r.OK {
		t.Errorf("reading from a broken disk: got the report %+v and the error %v, want the error of the disk", r, err)
	}
	var calls []int64
	r, err := VerifyExport(&export, Check{Progress: func(done, _ int64) { calls = append(calls, done) }})
	if err != nil || !r.OK || len(calls) == 0 || calls[0] != page {
		t.Errorf("verifying %d records: got the progress calls %v (error %v), want a first call after one page",
			r.Records, calls, err)
	}
}

// full is a writer that fails after a number of bytes, like a full disk.
type full struct{ space int }

func (f *full) Write(b []byte) (int, error) {
	if f.space -= len(b); f.space < 0 {
		return 0, errFault
	}
	return len(b), nil
}

// VerifyExport limits the memory for a hostile export. It refuses an export with too many logs or too many
// erased ranges.
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
	for want, export := range map[string]*bytes.Buffer{"too many logs to check": &logs, "too many ranges of records have no content": &gaps} {
		if r, err := VerifyExport(export, Check{Erased: true}); err != nil || r.OK || !strings.Contains(r.Problem, want) {
			t.Errorf("got report %+v, %v; want the problem %q", r, err, want)
		}
	}
}
