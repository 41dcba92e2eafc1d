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

// Handover is the word of two keys that one of them takes over from the other,
// and of what a log held at that time. What the older key signs about a longer
// log does not count.
type Handover struct {
	Log  int64     `json:"log"`
	Size int64     `json:"size"`
	Root tlog.Hash `json:"root"`
	Old  string    `json:"old"`
	New  string    `json:"new"`
	// ByOld and ByNew are signatures over all of the above. Whoever was told the
	// old key believes the new one, and the other way around.
	ByOld []byte `json:"by_old"`
	ByNew []byte `json:"by_new"`
}

func (h *Handover) text() []byte {
	return fmt.Appendf(nil, "ambit journal hand-over v1\n%s\n%s\n%d\n%d\n%s\n", h.Old, h.New, h.Log, h.Size, h.Root)
}

// check tells both keys, if both have signed.
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

// keyring is one key that is trusted, with those that it took over from and those that
// took over from it.
type keyring struct {
	keys []Key
	// until says of a key that was handed over how far it may speak of a log.
	until map[string]map[int64]int64
}

// newKeyring follows hand-overs from a trusted key, backwards and forwards. What
// follows a key that the trusted one took over from is not believed: whoever
// stole such a key could sign it.
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
				return nil, errors.New("the hand-overs go in a circle")
			}
			k.keys = append(k.keys, to)
			at = to
		}
	}
	return k, nil
}

// knows reports whether a hand-over belongs to the keys.
func (k *keyring) knows(h *Handover) bool {
	return slices.ContainsFunc(k.keys, func(key Key) bool { return key.String() == h.Old })
}

// inForce reports whether a key is one of these, and was not handed over before a
// log had grown to a size.
func (k *keyring) inForce(key Key, log, size int64) bool {
	until, retired := k.until[key.String()]
	last, ok := until[log]
	return slices.ContainsFunc(k.keys, key.Equal) && (!retired || ok && size <= last)
}

// open reads a checkpoint that one of the keys signed while it was in force.
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
	err = tx.Query(`SELECT log, size, root, older, newer, by_old, by_new FROM handovers ORDER BY log, size`, nil, func(r state.Row) error {
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

// ErrHandedOver says that another key has taken over from that of this process.
var ErrHandedOver = errors.New("the root key was rotated since this process began: restart it")

// InForce fails with ErrHandedOver if the key of this process is no longer the
// journal's. Whoever is about to begin something asks in the transaction that says
// so: what became of it could not be signed.
func (j *Journal) InForce(tx state.Tx) error {
	err := j.inForce(tx)
	if errors.Is(err, ErrHandedOver) {
		j.retired.Store(true)
	}
	return err
}

// HandedOver is ErrHandedOver if InForce has ever said so. It asks no store.
func (j *Journal) HandedOver() error {
	if j.retired.Load() {
		return ErrHandedOver
	}
	return nil
}

func (j *Journal) inForce(tx state.Tx) error {
	last := ""
	err := tx.Query(`SELECT newer FROM handovers WHERE log = 0 ORDER BY size DESC LIMIT 1`, nil, func(r state.Row) error { return r.Scan(&last) })
	if err == nil && last != "" && last != j.key.String() {
		err = ErrHandedOver
	}
	return err
}

// HandOver lets another key take over from this journal's, and returns the
// journal under it. What every log holds is signed by both keys, and log 0 gets
// a record of that for each. Also does more in the same transaction. A second
// time, with the same key, nothing happens.
func (j *Journal) HandOver(ctx context.Context, next ed25519.PrivateKey, by string, also func(state.Tx, *Journal) error) (*Journal, error) {
	// Where it was handed over already, what is left is posted under the newer key.
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
			_, err := tx.Exec(`INSERT INTO handovers (log, size, root, older, newer, by_old, by_new) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
				h.Log, h.Size, h.Root[:], h.Old, h.New, h.ByOld, h.ByNew)
			if err != nil {
				return err
			}
		}
		for i := range list {
			h := &list[i]
			if err := fresh.enroll(tx, &Record{Kind: kindHandover, Time: j.now(), Principal: by, Roster: &Roster{Log: h.Log, Size: h.Size, Root: &h.Root}, Handover: h}); err != nil {
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
	err := tx.Query(`SELECT log FROM handovers WHERE log = 0 AND newer = $1`, []any{j.key.String()}, func(r state.Row) error {
		var log int64
		found = true
		return r.Scan(&log)
	})
	return err == nil && found
}

// handovers are those of every log, as far as it has come.
func (j *Journal) handovers(tx state.Tx, fresh *Journal) (list []Handover, err error) {
	var room room
	if err := room.open(tx, 0); err != nil { // there is always a log 0
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

// handedOver checks that the journal tells of the hand-overs that the store has, all of
// this journal's keys, and of no others.
func (r *roster) handedOver(k *keyring, list []Handover) error {
	has := func(list []Handover, h *Handover) bool {
		return slices.ContainsFunc(list, func(o Handover) bool { return bytes.Equal(o.text(), h.text()) })
	}
	for i := range list {
		if h := &list[i]; !k.knows(h) || !has(r.handovers, h) {
			return faultAt(h.Log, h.Size, "log %d was handed over to another key, and the journal does not tell of it", h.Log)
		}
	}
	for i := range r.handovers {
		if h := &r.handovers[i]; !has(list, h) {
			return faultAt(h.Log, h.Size, "the journal tells that log %d was handed over to another key, and the store has lost that", h.Log)
		}
	}
	return nil
}
