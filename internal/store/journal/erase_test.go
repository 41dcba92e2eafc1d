package journal

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

func TestEraseIsRecordedAndProven(t *testing.T) {
	statetest.Each(t, func(t *testing.T, opened func() state.DB) {
		j := open(opened())
		fill(t, j, 600)
		n, err := j.Erase(t.Context(), started.Add(250*time.Second), "ada@local")
		if err != nil || n != 250 {
			t.Fatalf("Erase erased %d records (error %v), want 250", n, err)
		}
		r, err := j.Verify(t.Context(), Check{})
		if err != nil || !r.OK || r.Erased != 250 {
			t.Fatalf("after the first erasure: got the report %+v (error %v), want 250 erased records and no problem",
				r, err)
		}
		// A later erasure continues where the first one ended. Repeating it erases nothing.
		for _, want := range []int64{50, 0} {
			if n, err = j.Erase(t.Context(), started.Add(300*time.Second), "ada@local"); err != nil || n != want {
				t.Errorf("Erase erased %d records (error %v), want %d", n, err, want)
			}
		}
		if p, err := j.Prove(t.Context(), j.db.Log(), 400); err != nil || p.Erased {
			t.Errorf("proving a record that was not erased failed: %v", err)
		}
		var out bytes.Buffer
		if err := j.Export(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if r := verifyExport(t, out.Bytes(), Check{}); !r.OK || r.Erased != 300 {
			t.Errorf("verifying the export: got the report %+v, want an intact export with 300 erased records", r)
		}
		// Removed content without an erasure in the journal is a fault.
		err = j.db.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE leaves SET record = NULL WHERE place = $1`, place(j.db.Log(), 450))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err = j.Verify(t.Context(), Check{})
		if err != nil || r.OK || r.FirstBad == nil || r.FirstBad.Seq != 450 {
			t.Errorf("after content was removed: got the report %+v (error %v), want a problem at record 450", r, err)
		}
		if r, err := j.Verify(t.Context(), Check{Erased: true}); err != nil || !r.OK {
			t.Errorf("with Check.Erased set: got the report %+v (error %v), want no problem", r, err)
		}
	})
}

// The record of an erasure is not erased, even if the records around it are.
func TestErasuresAreNotErased(t *testing.T) {
	j := newJournal(t, 10)
	for i := range 3 {
		if _, err := j.Erase(t.Context(), started.Add(time.Duration(i+1)*3*time.Second), "ada@local"); err != nil {
			t.Fatal(err)
		}
		fill(t, j, 2)
	}
	if _, err := j.Erase(t.Context(), started.Add(time.Hour), "ada@local"); err != nil {
		t.Fatal(err)
	}
	r, err := j.Verify(t.Context(), Check{})
	if err != nil || !r.OK || r.Records != 10+6+4 || r.Erased != 16 {
		t.Errorf("got the report %+v (error %v), want 20 records, 16 of them erased", r, err)
	}
}

// forge appends a record of an erasure, as an attacker with access to the store can.
func forge(t *testing.T, j *Journal, size int64, sign func(*Journal, *Roster, *edge) *Erasure) {
	t.Helper()
	err := j.db.Write(t.Context(), func(tx state.Tx) error {
		var a appender
		if err := a.open(tx, 0); err != nil {
			return err
		}
		r := &Record{Kind: kindErased, Time: started, Principal: "ada@local", Roster: &Roster{Size: size}}
		r.Erasure = sign(j, r.Roster, &a.edge)
		return a.append(tx, 0, [][]byte{appendBody(nil, r)})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An attacker has write access to the store, but no key or only an old key. The attacker cannot make removed
// content look like an erasure.
func TestForgedErasures(t *testing.T) {
	const gone = 20
	for name, tt := range map[string]struct {
		sign func(j *Journal, of *Roster, before *edge) *Erasure
		want string
	}{
		"unsigned": {func(*Journal, *Roster, *edge) *Erasure { return nil }, "the erasure is not signed"},
		"no key":   {func(*Journal, *Roster, *edge) *Erasure { return &Erasure{Key: "mine"} }, "not a journal key"},
		"no signature": {func(j *Journal, _ *Roster, _ *edge) *Erasure {
			return &Erasure{Key: j.key.String(), By: make([]byte, ed25519.SignatureSize)}
		}, "the signature on the erasure is invalid, or is for another position"},
		"for fewer records": {func(j *Journal, of *Roster, before *edge) *Erasure {
			return j.signErasure(&Roster{Size: of.Size - 1}, before)
		}, "the signature on the erasure is invalid, or is for another position"},
		"for another log": {func(j *Journal, of *Roster, before *edge) *Erasure {
			return j.signErasure(&Roster{Log: 1, Size: of.Size}, before)
		}, "the signature on the erasure is invalid, or is for another position"},
		"for another journal": {func(j *Journal, of *Roster, before *edge) *Erasure {
			other := edge{size: before.size, roots: slices.Clone(before.roots)}
			other.roots[0][0] ^= 1
			return j.signErasure(of, &other)
		}, "the signature on the erasure is invalid, or is for another position"},
		"an unknown key": {func(j *Journal, of *Roster, before *edge) *Erasure {
			return New(j.db, thirdKey, "test").signErasure(of, before)
		}, "is signed with the wrong key"},
		"an older key": {func(j *Journal, of *Roster, before *edge) *Erasure {
			return open(j.db).signErasure(of, before)
		}, "is signed with the wrong key"},
	} {
		t.Run(name, func(t *testing.T) {
			j := handOver(t, newJournal(t, 50), secondKey)
			kept := checkpoint(t, j)
			at := size(t, j)
			exec(t, j, `UPDATE leaves SET record = NULL WHERE place < $1`, place(0, gone))
			forge(t, j, gone, tt.sign)
			var out bytes.Buffer
			if err := j.Export(t.Context(), &out); err != nil {
				t.Fatal(err)
			}
			for where, r := range map[string]Report{
				"the store":  verify(t, j, kept),
				"the export": verifyExport(t, out.Bytes(), Check{Key: j.Key(), Checkpoints: [][]byte{kept}}),
			} {
				if r.OK || r.FirstBad == nil || r.FirstBad.Seq != at || !strings.Contains(r.Problem, tt.want) {
					t.Errorf("%s: got report %+v", where, r)
				}
			}
		})
	}
}

// A verifier with the old or the new key accepts erasures from before and after a handover. A process that
// still has the old key cannot erase records.
func TestErasuresAreHandedOver(t *testing.T) {
	statetest.Each(t, func(t *testing.T, openStore func() state.DB) {
		first := open(openStore())
		fill(t, first, 50)
		erase := func(j *Journal, until int) {
			t.Helper()
			if n, err := j.Erase(t.Context(), started.Add(time.Duration(until)*time.Second), "ada@local"); err != nil || n != 10 {
				t.Errorf("Erase erased %d records (error %v), want 10", n, err)
			}
		}
		erase(first, 10)
		second := handOver(t, first, secondKey)
		if n, err := first.Erase(t.Context(), started.Add(20*time.Second), "ada@local"); !errors.Is(err, ErrHandedOver) || n != 0 {
			t.Errorf("Erase with the old key erased %d records, error %v; want ErrHandedOver", n, err)
		}
		erase(second, 20)
		if r := verify(t, second); !r.OK || r.Erased != 20 {
			t.Errorf("got report %+v", r)
		}
		var out bytes.Buffer
		if err := second.Export(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		for _, key := range []Key{first.Key(), second.Key()} {
			if r := verifyExport(t, out.Bytes(), Check{Key: key}); !r.OK || r.Erased != 20 {
				t.Errorf("verifying the export: got the report %+v, want an intact export with 20 erased records", r)
			}
		}
	})
}

// Erase stops at a record that was changed to look old, because Verify must still report the change.
func TestChangedRecordIsNotErased(t *testing.T) {
	j := newJournal(t, 50)
	old := appendRecord(nil, &Record{Seq: 30, Time: started, Call: "call-000030", Agent: "shop"})
	exec(t, j, `UPDATE leaves SET record = $1 WHERE place = $2`, old, place(0, 30))
	if n, err := j.Erase(t.Context(), started.Add(40*time.Second), "ada@local"); err != nil || n != 30 {
		t.Errorf("Erase erased %d records (error %v), want 30", n, err)
	}
	if r := verify(t, j); r.OK || r.FirstBad == nil || r.FirstBad.Seq != 30 {
		t.Errorf("got report %+v", r)
	}
}

// A repeated erasure does not read erased records again. This matters because a daemon erases every hour.
func TestErasureContinues(t *testing.T) {
	j := newJournal(t, 2*page+10)
	limit := started.Add((2*page + 5) * time.Second)
	for _, want := range []int64{2*page + 5, 0} {
		if n, err := j.Erase(t.Context(), limit, "ada@local"); err != nil || n != want {
			t.Fatalf("erased %d records (error %v), want %d", n, err, want)
		}
	}
	if at := j.scanned.before[j.db.Log()]; at != 2*page {
		t.Errorf("the next erasure begins at record %d, want %d", at, 2*page)
	}
	// An erasure ends before a changed record, unless it does not read that record.
	err := j.db.Write(t.Context(), func(tx state.Tx) error {
		_, err := tx.Exec(`UPDATE leaves SET record = $1 WHERE place = $2`, []byte("changed"), place(j.db.Log(), 5))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := j.Erase(t.Context(), limit.Add(2*time.Second), "ada@local"); err != nil || n != 2 {
		t.Errorf("erased %d records (error %v), want 2", n, err)
	}
}
