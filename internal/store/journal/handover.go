package journal

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Handover is a statement, signed by two keys, that one takes over from the other, and of
// the content of a log at that time. A signature of the older key on a longer log is
// invalid.
type Handover struct {
	Log  int64     `json:"log"`
	Size int64     `json:"size"`
	Root tlog.Hash `json:"root"`
	Old  string    `json:"old"`
	New  string    `json:"new"`
	// ByOld and ByNew are signatures over all of the above. A verifier that trusts one of
	// the keys can therefore trust the other.
	ByOld []byte `json:"by_old"`
	ByNew []byte `json:"by_new"`
}

func (h *Handover) text() []byte {
	return fmt.Appendf(nil, "ambit journal hand-over v1\n%s\n%s\n%d\n%d\n%s\n", h.Old, h.New, h.Log, h.Size, h.Root)
}

func (h *Handover) vow() vow {
	return vow{size: h.Size, root: h.Root, by: "the hand-over to another key", signed: true}
}

func (c *Checkpoint) vow(by string) vow { return vow{size: c.Size, root: c.Root, by: by, signed: true} }

// check returns both keys if both signatures are valid.
func (h *Handover) check() (old, fresh Key, err error) {
	old, err1 := ParseKey(h.Old)
	fresh, err2 := ParseKey(h.New)
	switch {
	case err1 != nil || err2 != nil || old.name != fresh.name || old.Equal(fresh) || h.Size < 0 || h.Log < 0:
		err = errors.New("the hand-over is not between two keys of a journal")
	case !ed25519.Verify(old.public, h.text(), h.ByOld):
		err = errors.New("the hand-over is not signed by the older key")
	case !ed25519.Verify(fresh.public, h.text(), h.ByNew):
		err = errors.New("the hand-over is not signed by the newer key")
	}
	return old, fresh, err
}

// keyring contains a trusted key, the keys that it took over from and the keys that took
// over from it.
type keyring struct {
	keys []Key
	// until contains, for each retired key and log, the size up to which its signatures
	// are valid.
	until map[string]map[int64]int64
}

// newKeyring follows hand-overs from a trusted key, backwards and forwards. It does not
// follow other successors of earlier keys: a thief of such a key could have signed them.
func newKeyring(trusted Key, list []Handover) (*keyring, error) {
	k := &keyring{keys: []Key{trusted}, until: map[string]map[int64]int64{}}
	next, before := map[string]Key{}, map[string]Key{}
	for i := range list {
		h := &list[i]
		old, fresh, err := h.check()
		if err != nil {
			return nil, err
		}
		if other, ok := next[h.Old]; ok && !other.Equal(fresh) {
			return nil, errors.New("one key was handed over to two")
		}
		if other, ok := before[h.New]; ok && !other.Equal(old) {
			return nil, errors.New("one key took over from two")
		}
		next[h.Old], before[h.New] = fresh, old
		if k.until[h.Old] == nil {
			k.until[h.Old] = map[int64]int64{}
		}
		k.until[h.Old][h.Log] = h.Size
	}
	for _, way := range []map[string]Key{before, next} {
		for at, steps := trusted, 0; steps <= len(list); steps++ {
			to, ok := way[at.String()]
			if !ok {
				break
			}
			if slices.ContainsFunc(k.keys, to.Equal) {
				return nil, errors.New("the hand-overs form a cycle")
			}
			k.keys = append(k.keys, to)
			at = to
		}
	}
	return k, nil
}

// knows reports whether one of the keys made a hand-over.
func (k *keyring) knows(h *Handover) bool {
	return slices.ContainsFunc(k.keys, func(key Key) bool { return key.String() == h.Old })
}

// inForce reports whether a key is in the keyring and was not yet handed over when a log
// had the given size.
func (k *keyring) inForce(key Key, log, size int64) bool {
	until, retired := k.until[key.String()]
	last, ok := until[log]
	return slices.ContainsFunc(k.keys, key.Equal) && (!retired || ok && size <= last)
}

// open parses a checkpoint that one of the keys signed while it was in force.
func (k *keyring) open(text []byte) (c Checkpoint, err error) {
	for _, key := range k.keys {
		c, e := key.Open(text)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		if !k.inForce(key, c.Log, c.Size) {
			return c, errors.New("the checkpoint is signed with a key that was handed over before")
		}
		return c, nil
	}
	if len(k.keys) > 1 {
		err = errors.New("the checkpoint is not signed by one of this journal's keys")
	}
	return c, err
}

func readHandovers(tx state.Tx) (list []Handover, err error) {
	const query = `SELECT log, size, root, older, newer, by_old, by_new FROM handovers ORDER BY log, size`
	err = tx.Query(query, nil, func(r state.Row) error {
		var h Handover
		var root []byte
		if err := r.Scan(&h.Log, &h.Size, &root, &h.Old, &h.New, &h.ByOld, &h.ByNew); err != nil {
			return err
		}
		if len(root) == tlog.HashSize {
			h.Root = tlog.Hash(root)
		}
		list = append(list, h)
		return nil
	})
	return list, err
}

// keyring reads the keys of the journal from the store.
func (j *Journal) keyring(tx state.Tx) (*keyring, []Handover, error) {
	list, err := readHandovers(tx)
	if err != nil {
		return nil, nil, err
	}
	k, err := newKeyring(j.key, list)
	return k, list, err
}

// ErrHandedOver means that another key has replaced the key of this process.
var ErrHandedOver = errors.New("the root key was rotated since this process started: restart it")

// InForce fails with ErrHandedOver if the key of this process is no longer the journal's.
// A caller that is about to start a side effect calls it in the transaction that records
// the start, because the outcome could not be signed.
func (j *Journal) InForce(tx state.Tx) error {
	err := j.inForce(tx)
	if errors.Is(err, ErrHandedOver) {
		j.retired.Store(true)
	}
	return err
}

// HandedOver returns ErrHandedOver if InForce has ever returned it. It does not access
// the store.
func (j *Journal) HandedOver() error {
	if j.retired.Load() {
		return ErrHandedOver
	}
	return nil
}

func (j *Journal) inForce(tx state.Tx) error {
	last := ""
	const query = `SELECT newer FROM handovers WHERE log = 0 ORDER BY size DESC LIMIT 1`
	err := tx.Query(query, nil, func(r state.Row) error { return r.Scan(&last) })
	if err == nil && last != "" && last != j.key.String() {
		err = ErrHandedOver
	}
	return err
}

// HandOver replaces this journal's key and returns the journal with the new one. Both
// keys sign the content of every log, and log 0 gets a record of each signature. HandOver
// calls also in the same transaction. A repeated call with the same key does nothing.
func (j *Journal) HandOver(
	ctx context.Context, next ed25519.PrivateKey, by string, also func(state.Tx, *Journal) error,
) (*Journal, error) {
	// If the journal was handed over already, the new key posts the remaining records.
	if err := unlessHandedOver(j.Post(ctx)); err != nil {
		return nil, err
	}
	fresh := New(j.db, next, j.key.name)
	fresh.now = j.now
	fresh.posting.dir = j.posting.dir
	err := j.db.Write(ctx, func(tx state.Tx) error {
		switch err := fresh.inForce(tx); {
		case err != nil && !errors.Is(err, ErrHandedOver):
			return err
		case err == nil && fresh.tookOver(tx):
			return nil
		}
		if err := j.inForce(tx); err != nil {
			return err
		}
		list, err := j.handovers(tx, fresh)
		if err != nil {
			return err
		}
		for i := range list {
			h := &list[i]
			_, err := tx.Exec(`INSERT INTO handovers (log, size, root, older, newer, by_old, by_new)
				VALUES ($1, $2, $3, $4, $5, $6, $7)`, h.Log, h.Size, h.Root[:], h.Old, h.New, h.ByOld, h.ByNew)
			if err != nil {
				return err
			}
		}
		for i := range list {
			h := &list[i]
			err := fresh.enroll(tx, &Record{
				Kind: kindHandover, Time: j.now(), Principal: by, Handover: h,
				Roster: &Roster{Log: h.Log, Size: h.Size, Root: &h.Root},
			})
			if err != nil {
				return err
			}
		}
		if also != nil {
			if err := also(tx, fresh); err != nil {
				return err
			}
		}
		_, err = fresh.markRoster(tx, j.now())
		return err
	})
	return fresh, err
}

// tookOver reports whether this journal's key took over from another.
func (j *Journal) tookOver(tx state.Tx) bool {
	found := false
	const query = `SELECT log FROM handovers WHERE log = 0 AND newer = $1`
	err := tx.Query(query, []any{j.key.String()}, func(state.Row) error {
		found = true
		return nil
	})
	return err == nil && found
}

// handovers signs a hand-over of every log at its current size.
func (j *Journal) handovers(tx state.Tx, fresh *Journal) (list []Handover, err error) {
	var a appender
	if err := a.open(tx, 0); err != nil { // log 0 must exist
		return nil, err
	}
	heads, err := readHeads(tx)
	if err != nil {
		return nil, err
	}
	for _, head := range heads {
		var e edge
		if err := e.read(head.size, head.edge); err != nil {
			return nil, err
		}
		h := Handover{Log: head.log, Size: e.size, Root: e.root(), Old: j.key.String(), New: fresh.key.String()}
		h.ByOld, h.ByNew = ed25519.Sign(j.signer, h.text()), ed25519.Sign(fresh.signer, h.text())
		list = append(list, h)
	}
	return list, nil
}

// handedOver checks that log 0 records exactly the hand-overs in the store, and that all
// of them are between this journal's keys.
func (r *roster) handedOver(k *keyring, list []Handover) error {
	has := func(list []Handover, h *Handover) bool {
		return slices.ContainsFunc(list, func(o Handover) bool { return bytes.Equal(o.text(), h.text()) })
	}
	for i := range list {
		if h := &list[i]; !k.knows(h) || !has(r.handovers, h) {
			return faultAt(h.Log, h.Size, "log %d was handed over to another key, and the journal does not record it", h.Log)
		}
	}
	for i := range r.handovers {
		if h := &r.handovers[i]; !has(list, h) {
			return faultAt(h.Log, h.Size,
				"the journal records that log %d was handed over to another key, and the store has lost the hand-over", h.Log)
		}
	}
	return nil
}
