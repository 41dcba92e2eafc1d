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
		t.Errorf("the journal does not verify, or not all its records are signed: %+v", r)
	}
}

// Records, proofs and kept checkpoints from before a handover stay valid. The verifier can have the old or the
// new key.
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
				t.Errorf("verifying the export with the %s key: got the report %+v (error %v), want no problem",
					name, r, err)
			}
			for _, p := range []*Proof{inclusion, consistency} {
				text, err := json.Marshal(p)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := VerifyProof(text, key); err != nil {
					t.Errorf("verifying the proof of %s with the %s key failed: %v", p.Proves, name, err)
				}
			}
		}
		stranger := open(db)
		stranger.key.public = ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)
		if r, err := VerifyExport(bytes.NewReader(export.Bytes()), Check{Key: stranger.Key()}); err != nil || r.OK {
			t.Errorf("verifying the export with an unknown key: got the report %+v (error %v), want a problem", r, err)
		}
	})
}

// A process that still has the old key can no longer sign.
func TestReplacedKeyCannotSign(t *testing.T) {
	statetest.Each(t, func(t *testing.T, openStore func() state.DB) {
		old := open(openStore())
		fill(t, old, 3)
		fresh := handOver(t, old, secondKey)
		if _, err := old.Checkpoint(t.Context()); !errors.Is(err, ErrHandedOver) {
			t.Errorf("making a checkpoint with the old key: got error %v, want ErrHandedOver", err)
		}
		old.now = func() time.Time { return started.Add(time.Hour) } // a checkpoint is required now
		err := old.db.Write(t.Context(), func(tx state.Tx) error { _, err := old.Append(tx, sample(4)); return err })
		if !errors.Is(err, ErrHandedOver) {
			t.Errorf("appending with the old key: got error %v, want ErrHandedOver", err)
		}
		if _, err := old.HandOver(t.Context(), thirdKey, "", nil); !errors.Is(err, ErrHandedOver) {
			t.Errorf("handing the old key over again: got error %v, want ErrHandedOver", err)
		}
		whole(t, fresh)
	})
}

// HandedOver reports the handover only after InForce has detected it.
func TestHandedOverAfterInForce(t *testing.T) {
	statetest.Each(t, func(t *testing.T, openStore func() state.DB) {
		old := open(openStore())
		fill(t, old, 3)
		inForce := func(j *Journal) error { return j.db.Read(t.Context(), j.InForce) }
		if err := errors.Join(inForce(old), old.HandedOver()); err != nil {
			t.Errorf("before the handover: %v", err)
		}
		fresh := handOver(t, open(openStore()), secondKey)
		if err := errors.Join(inForce(fresh), fresh.HandedOver(), old.HandedOver()); err != nil {
			t.Errorf("after the handover and before InForce, HandedOver returned %v, want nil", err)
		}
		if err := inForce(old); !errors.Is(err, ErrHandedOver) {
			t.Errorf("InForce: got error %v, want ErrHandedOver", err)
		}
		if err := old.HandedOver(); !errors.Is(err, ErrHandedOver) {
			t.Errorf("HandedOver after InForce: got error %v, want ErrHandedOver", err)
		}
	})
}

// A process whose key was replaced closes its journal without an error and loses no record. A process with the
// new key signs the remaining records.
func TestHandedOverProcessEndsWell(t *testing.T) {
	statetest.Each(t, func(t *testing.T, openStore func() state.DB) {
		dir := t.TempDir()
		old, other := open(openStore()), open(openStore())
		for _, j := range []*Journal{old, other} {
			j.SetWALDir(dir)
		}
		fill(t, old, 3)
		fresh := handOver(t, other, secondKey)
		fill(t, old, 2)
		old.StartWAL()
		old.now = func() time.Time { return started.Add(time.Hour) } // a checkpoint is required now
		if err := old.Note(sample(5)); err != nil {
			t.Fatal(err)
		}
		if err := old.Close(t.Context()); err != nil {
			t.Errorf("closing the journal with the old key failed: %v", err)
		}
		checkpoint(t, fresh)
		whole(t, fresh)
		found, err := fresh.Show(t.Context(), Filter{Call: sample(5).Call})
		if err != nil || len(found) != 1 {
			t.Errorf("searching for the noted record: got %v (error %v), want one record", found, err)
		}
	})
}

// Repeating a handover that was already committed changes nothing.
func TestHandOverAgain(t *testing.T) {
	j := newJournal(t, 10)
	handOver(t, j, secondKey)
	fresh := handOver(t, j, secondKey)
	var n int64
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT COUNT(*) FROM handovers`, nil, func(r state.Row) error { return r.Scan(&n) })
	})
	if err != nil || n != 1 {
		t.Errorf("the store has %d handovers (error %v), want 1", n, err)
	}
	whole(t, fresh)
}

func TestEmptyJournalIsHandedOver(t *testing.T) {
	fresh := handOver(t, newJournal(t, 0), secondKey)
	fill(t, fresh, 5)
	checkpoint(t, fresh)
	whole(t, fresh)
}

// Verify detects changes by an attacker who has write access to the store and a stolen old key.
func TestForgedHandOver(t *testing.T) {
	for _, tt := range []struct {
		name  string
		forge func(t *testing.T, thief, fresh *Journal)
		want  string
	}{
		{"a checkpoint by the old key", func(t *testing.T, thief, fresh *Journal) {
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
		{"a handover at another size", func(t *testing.T, _, fresh *Journal) {
			exec(t, fresh, `UPDATE handovers SET size = size + 100`)
		}, "handovers between keys were changed"},
		{"a removed handover", func(t *testing.T, _, fresh *Journal) { exec(t, fresh, `DELETE FROM handovers`) }, "that is missing from the store"},
		{"a second successor of the old key", func(t *testing.T, thief, fresh *Journal) {
			h := Handover{Log: 1, Old: thief.key.String(), New: New(thief.db, thirdKey, "test").key.String()}
			h.ByOld, h.ByNew = ed25519.Sign(thief.signer, h.text()), ed25519.Sign(thirdKey, h.text())
			exec(t, fresh, `INSERT INTO handovers (log, size, root, older, newer, by_old, by_new) VALUES (1, 0, $1, $2, $3, $4, $5)`, h.Root[:], h.Old, h.New, h.ByOld, h.ByNew)
		}, "one key was replaced by two different keys"},
		{"a handover that the journal does not record", func(t *testing.T, thief, fresh *Journal) {
			h := Handover{Log: 1, Old: thief.key.String(), New: fresh.key.String()}
			h.ByOld, h.ByNew = ed25519.Sign(thief.signer, h.text()), ed25519.Sign(fresh.signer, h.text())
			exec(t, fresh, `INSERT INTO handovers (log, size, root, older, newer, by_old, by_new) VALUES (1, 0, $1, $2, $3, $4, $5)`, h.Root[:], h.Old, h.New, h.ByOld, h.ByNew)
		}, "does not record"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old := newJournal(t, 20)
			fresh := handOver(t, old, secondKey)
			fill(t, fresh, 20)
			checkpoint(t, fresh)
			whole(t, fresh)
			tt.forge(t, old, fresh)
			if r := verify(t, fresh); r.OK || !strings.Contains(r.Problem, tt.want) {
				t.Errorf("got report %+v", r)
			}
		})
	}
}

// A handover needs the signatures of both keys.
func TestHandoverNeedsBothSignatures(t *testing.T) {
	j := newJournal(t, 1)
	fresh := New(j.db, secondKey, "test")
	good := Handover{Log: 0, Size: 1, Old: j.key.String(), New: fresh.key.String()}
	good.ByOld, good.ByNew = ed25519.Sign(testKey, good.text()), ed25519.Sign(secondKey, good.text())
	if _, _, err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Handover){
		"a handover signed by the new key alone": func(h *Handover) { h.ByOld = ed25519.Sign(secondKey, h.text()) },
		"a handover signed by the old key alone": func(h *Handover) { h.ByNew = ed25519.Sign(testKey, h.text()) },
		"a handover at another size":             func(h *Handover) { h.Size = 2 },
		"a handover of another log":              func(h *Handover) { h.Log = 2 },
		"a handover with another root hash":      func(h *Handover) { h.Root[0]++ },
		"to itself":                              func(h *Handover) { h.New = h.Old },
		"without a key":                          func(h *Handover) { h.Old = "" },
	} {
		h := good
		change(&h)
		if _, _, err := h.check(); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// A thief of the old key can sign a handover to his own key. A verifier with the new key rejects this handover.
func TestKeyringFollowsNoPredecessor(t *testing.T) {
	j := newJournal(t, 1)
	fresh, thief := New(j.db, secondKey, "test"), New(j.db, thirdKey, "test")
	sign := func(log int64, old, next *Journal) Handover {
		h := Handover{Log: log, Size: 1, Old: old.key.String(), New: next.key.String()}
		h.ByOld, h.ByNew = ed25519.Sign(old.signer, h.text()), ed25519.Sign(next.signer, h.text())
		return h
	}
	if k, err := newKeyring(fresh.key, []Handover{sign(0, j, fresh), sign(1, j, thief)}); err == nil {
		t.Errorf("the keyring accepted two successors of one key: %v", k.keys)
	}
	if k, err := newKeyring(fresh.key, []Handover{sign(0, j, thief)}); err != nil || len(k.keys) != 1 {
		t.Errorf("handovers of other keys: got the keyring %v (error %v), want only the trusted key", k, err)
	}
	if _, err := newKeyring(fresh.key, []Handover{sign(0, j, fresh), sign(0, fresh, j)}); err == nil {
		t.Error("the keyring accepted a cycle")
	}
}

// A process does not take a forged handover for a rotation of its key.
func TestForgedHandOverIsRefused(t *testing.T) {
	for name, forge := range map[string]string{
		"back to the old key": `INSERT INTO handovers (log, size, root, older, newer, by_old, by_new)
SELECT log, size + 1, root, newer, older, by_new, by_old FROM handovers WHERE log = 0`,
		"no handover to its key": `UPDATE handovers SET newer = older`,
	} {
		t.Run(name, func(t *testing.T) {
			fresh := handOver(t, newJournal(t, 3), secondKey)
			exec(t, fresh, forge)
			if err := fresh.db.Read(t.Context(), fresh.InForce); !errors.Is(err, ErrForged) || errors.Is(err, ErrHandedOver) {
				t.Errorf("InForce returned %v, want %v", err, ErrForged)
			}
			if _, err := fresh.HandOver(t.Context(), thirdKey, "", nil); !errors.Is(err, ErrForged) {
				t.Errorf("HandOver returned %v, want %v", err, ErrForged)
			}
		})
	}
}
