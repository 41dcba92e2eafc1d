package journal

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

var (
	secondKey = ed25519.NewKeyFromSeed([]byte("the seed of another for the test"))
	thirdKey  = ed25519.NewKeyFromSeed([]byte("the seed of a thief for the test"))
)

func handOver(t *testing.T, j *Journal, next ed25519.PrivateKey) *Journal {
	t.Helper()
	fresh, err := j.HandOver(t.Context(), next, "ada@local", nil)
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

func whole(t *testing.T, j *Journal, notes ...[]byte) {
	t.Helper()
	if r := verify(t, j, notes...); !r.OK || r.Signed != r.Records {
		t.Errorf("the journal is not whole: %+v", r)
	}
}

// Records, proofs and kept checkpoints from before a hand-over hold after it, for
// those who know the new key and for those who know the old one.
func TestHandOver(t *testing.T) {
	statetest.Each(t, func(t *testing.T, openStore func() state.DB) {
		db := openStore()
		first := open(db)
		fill(t, first, 300)
		kept := checkpoint(t, first)
		second := handOver(t, first, secondKey)
		fill(t, second, 20)
		third := handOver(t, second, thirdKey)
		fill(t, third, 20)
		newest := checkpoint(t, third)
		whole(t, third, kept, newest)

		var export bytes.Buffer
		if err := third.Export(t.Context(), &export); err != nil {
			t.Fatal(err)
		}
		inclusion, err := third.Prove(t.Context(), db.Log(), 7)
		if err != nil {
			t.Fatal(err)
		}
		consistency, err := third.ProveSince(t.Context(), kept)
		if err != nil {
			t.Fatal(err)
		}
		for name, key := range map[string]Key{"first": first.Key(), "second": second.Key(), "third": third.Key()} {
			r, err := VerifyExport(bytes.NewReader(export.Bytes()), Check{Key: key, Checkpoints: [][]byte{kept, newest}})
			if err != nil || !r.OK {
				t.Errorf("the export does not hold for the %s key: %+v, %v", name, r, err)
			}
			for _, p := range []*Proof{inclusion, consistency} {
				text, err := json.Marshal(p)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := VerifyProof(text, key); err != nil {
					t.Errorf("the %s does not hold for the %s key: %v", p.Proves, name, err)
				}
			}
		}
		stranger := open(db)
		stranger.key.public = ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)
		if r, err := VerifyExport(bytes.NewReader(export.Bytes()), Check{Key: stranger.Key()}); err != nil || r.OK {
			t.Errorf("the export holds for a stranger's key: %+v, %v", r, err)
		}
	})
}

// A process that still has the old key signs nothing any more.
func TestHandedOverKeySignsNothing(t *testing.T) {
	statetest.Each(t, func(t *testing.T, openStore func() state.DB) {
		old := open(openStore())
		fill(t, old, 3)
		fresh := handOver(t, old, secondKey)
		if _, err := old.Checkpoint(t.Context()); !errors.Is(err, ErrHandedOver) {
			t.Errorf("the old key signs a checkpoint: %v", err)
		}
		old.now = func() time.Time { return started.Add(time.Hour) } // one is due
		err := old.db.Write(t.Context(), func(tx state.Tx) error { _, err := old.Append(tx, sample(4)); return err })
		if !errors.Is(err, ErrHandedOver) {
			t.Errorf("a record is appended with the old key: %v", err)
		}
		if _, err := old.HandOver(t.Context(), thirdKey, "", nil); !errors.Is(err, ErrHandedOver) {
			t.Errorf("the old key is handed over again: %v", err)
		}
		whole(t, fresh)
	})
}

// A process hears that its key was handed over when it asks, and knows it from then
// on.
func TestHandedOverIsKnown(t *testing.T) {
	statetest.Each(t, func(t *testing.T, openStore func() state.DB) {
		old := open(openStore())
		fill(t, old, 3)
		ask := func(j *Journal) error { return j.db.Read(t.Context(), j.InForce) }
		if err := errors.Join(ask(old), old.HandedOver()); err != nil {
			t.Errorf("before: %v", err)
		}
		fresh := handOver(t, open(openStore()), secondKey)
		if err := errors.Join(ask(fresh), fresh.HandedOver(), old.HandedOver()); err != nil {
			t.Errorf("before it was asked: %v", err)
		}
		if err := ask(old); !errors.Is(err, ErrHandedOver) {
			t.Errorf("asked: %v", err)
		}
		if err := old.HandedOver(); !errors.Is(err, ErrHandedOver) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A process whose key was handed over closes without error and loses no record; a process
// with the new key signs its records.
func TestHandedOverProcessEndsWell(t *testing.T) {
	statetest.Each(t, func(t *testing.T, openStore func() state.DB) {
		dir := t.TempDir()
		old, other := open(openStore()), open(openStore())
		for _, j := range []*Journal{old, other} {
			j.Daybooks(dir)
		}
		fill(t, old, 3)
		fresh := handOver(t, other, secondKey)
		fill(t, old, 2)
		old.KeepDaybook()
		old.now = func() time.Time { return started.Add(time.Hour) } // one is due
		if err := old.Note(sample(5)); err != nil {
			t.Fatal(err)
		}
		if err := old.Close(t.Context()); err != nil {
			t.Errorf("it ends with %v", err)
		}
		checkpoint(t, fresh)
		whole(t, fresh)
		found, err := fresh.Show(t.Context(), Filter{Call: sample(5).Call})
		if err != nil || len(found) != 1 {
			t.Errorf("what was noted is %v, %v", found, err)
		}
	})
}

// A hand-over that was broken off after its transaction is taken up again.
func TestHandOverAgain(t *testing.T) {
	j := newJournal(t, 10)
	handOver(t, j, secondKey)
	fresh := handOver(t, j, secondKey)
	var n int64
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT COUNT(*) FROM handovers`, nil, func(r state.Row) error { return r.Scan(&n) })
	})
	if err != nil || n != 1 {
		t.Errorf("there are %d hand-overs, %v", n, err)
	}
	whole(t, fresh)
}

func TestEmptyJournalIsHandedOver(t *testing.T) {
	fresh := handOver(t, newJournal(t, 0), secondKey)
	fill(t, fresh, 5)
	checkpoint(t, fresh)
	whole(t, fresh)
}

// Attacks with write access to the store and a stolen old key.
func TestForgedHandOver(t *testing.T) {
	for _, tt := range []struct {
		name  string
		forge func(t *testing.T, thief, fresh *Journal)
		want  string
	}{
		{"the old key signs on", func(t *testing.T, thief, fresh *Journal) {
			var a appender
			err := thief.db.Write(t.Context(), func(tx state.Tx) error {
				if _, err := a.head(tx, 0); err != nil {
					return err
				}
				text, err := thief.sign(0, a.edge.size, a.edge.root())
				if err == nil {
					_, err = tx.Exec(`UPDATE checkpoints SET note = $1 WHERE log = 0 AND size = $2`, text, a.edge.size)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}, "signed with another key"},
		{"the hand-over is moved", func(t *testing.T, _, fresh *Journal) {
			exec(t, fresh, `UPDATE handovers SET size = size + 100`)
		}, "hand-overs from key to key were changed"},
		{"the hand-over is removed", func(t *testing.T, _, fresh *Journal) { exec(t, fresh, `DELETE FROM handovers`) }, "the store has lost the hand-over"},
		{"the old key is handed to a thief too", func(t *testing.T, thief, fresh *Journal) {
			h := Handover{Log: 1, Old: thief.key.String(), New: New(thief.db, thirdKey, "test").key.String()}
			h.ByOld, h.ByNew = ed25519.Sign(thief.signer, h.text()), ed25519.Sign(thirdKey, h.text())
			exec(t, fresh, `INSERT INTO handovers (log, size, root, older, newer, by_old, by_new) VALUES (1, 0, $1, $2, $3, $4, $5)`, h.Root[:], h.Old, h.New, h.ByOld, h.ByNew)
		}, "one key was handed over to two"},
		{"a hand-over that the journal does not record", func(t *testing.T, thief, fresh *Journal) {
			h := Handover{Log: 1, Old: thief.key.String(), New: fresh.key.String()}
			h.ByOld, h.ByNew = ed25519.Sign(thief.signer, h.text()), ed25519.Sign(fresh.signer, h.text())
			exec(t, fresh, `INSERT INTO handovers (log, size, root, older, newer, by_old, by_new) VALUES (1, 0, $1, $2, $3, $4, $5)`, h.Root[:], h.Old, h.New, h.ByOld, h.ByNew)
		}, "does not record it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old := newJournal(t, 20)
			fresh := handOver(t, old, secondKey)
			fill(t, fresh, 20)
			checkpoint(t, fresh)
			whole(t, fresh)
			tt.forge(t, old, fresh)
			if r := verify(t, fresh); r.OK || !strings.Contains(r.Problem, tt.want) {
				t.Errorf("verify says %+v", r)
			}
		})
	}
}

// A hand-over needs the signatures of both keys.
func TestHandoverNeedsBothSignatures(t *testing.T) {
	j := newJournal(t, 1)
	fresh := New(j.db, secondKey, "test")
	good := Handover{Log: 0, Size: 1, Old: j.key.String(), New: fresh.key.String()}
	good.ByOld, good.ByNew = ed25519.Sign(testKey, good.text()), ed25519.Sign(secondKey, good.text())
	if _, _, err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Handover){
		"by the new key alone": func(h *Handover) { h.ByOld = ed25519.Sign(secondKey, h.text()) },
		"by the old key alone": func(h *Handover) { h.ByNew = ed25519.Sign(testKey, h.text()) },
		"of another size":      func(h *Handover) { h.Size = 2 },
		"of another log":       func(h *Handover) { h.Log = 2 },
		"of another root":      func(h *Handover) { h.Root[0]++ },
		"to itself":            func(h *Handover) { h.New = h.Old },
		"without a key":        func(h *Handover) { h.Old = "" },
	} {
		h := good
		change(&h)
		if _, _, err := h.check(); err == nil {
			t.Errorf("a hand-over %s counts", name)
		}
	}
}

// An export in which the thief of an old key appoints himself is rejected by a verifier
// with the new key.
func TestKeyringFollowsNoPredecessor(t *testing.T) {
	j := newJournal(t, 1)
	fresh, thief := New(j.db, secondKey, "test"), New(j.db, thirdKey, "test")
	sign := func(log int64, old, next *Journal) Handover {
		h := Handover{Log: log, Size: 1, Old: old.key.String(), New: next.key.String()}
		h.ByOld, h.ByNew = ed25519.Sign(old.signer, h.text()), ed25519.Sign(next.signer, h.text())
		return h
	}
	if k, err := newKeyring(fresh.key, []Handover{sign(0, j, fresh), sign(1, j, thief)}); err == nil {
		t.Errorf("the keyring takes two that follow one: %v", k.keys)
	}
	if k, err := newKeyring(fresh.key, []Handover{sign(0, j, thief)}); err != nil || len(k.keys) != 1 {
		t.Errorf("the keyring takes strangers: %v, %v", k, err)
	}
	if _, err := newKeyring(fresh.key, []Handover{sign(0, j, fresh), sign(0, fresh, j)}); err == nil {
		t.Error("the keyring goes in a circle")
	}
}
