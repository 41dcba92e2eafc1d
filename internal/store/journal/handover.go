package journal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Handover is a statement that a new key replaces an old key. The statement contains the size and root of a log at that
// time, and both keys sign it. For that log, a signature of the old key is valid only up to this size.
type Handover struct {
	Log  int64     `json:"log"`
	Size int64     `json:"size"`
	Root tlog.Hash `json:"root"`
	Old  string    `json:"old"`
	New  string    `json:"new"`
	// ByOld and ByNew are the signatures of the two keys over all fields above. A verifier that trusts one of the keys
	// can therefore trust the other key.
	ByOld []byte `json:"by_old"`
	ByNew []byte `json:"by_new"`
}

func (h *Handover) text() []byte {
	return fmt.Appendf(nil, "ambit journal hand-over v1\n%s\n%s\n%d\n%d\n%s\n", h.Old, h.New, h.Log, h.Size, h.Root)
}

func (h *Handover) claim() claim {
	return claim{size: h.Size, root: h.Root, by: "the handover to another key", signed: true}
}

func (c *Checkpoint) claim(by string) claim {
	return claim{size: c.Size, root: c.Root, by: by, signed: true}
}

// check returns both keys. It returns an error if one of the signatures is invalid.
func (h *Handover) check() (old, fresh Key, err error) {
	old, err1 := ParseKey(h.Old)
	fresh, err2 := ParseKey(h.New)
	switch {
	case err1 != nil || err2 != nil || old.name != fresh.name || old.Equal(fresh) || h.Size < 0 || h.Log < 0:
		err = errors.New("the handover does not contain two different keys of the same journal")
	case !ed25519.Verify(old.public, h.text(), h.ByOld):
		err = errors.New("the handover is not signed by the old key")
	case !ed25519.Verify(fresh.public, h.text(), h.ByNew):
		err = errors.New("the handover is not signed by the new key")
	}
	return old, fresh, err
}

// keyring contains a trusted key, the older keys that it replaced, and the newer keys that replaced it.
type keyring struct {
	keys   []Key
	newest Key // the trusted key, or the last key that replaced it
	// maxSize limits the signatures of replaced keys. For each replaced key and each log, it contains the largest size
	// for which a signature is valid.
	maxSize map[string]map[int64]int64
}

// newKeyring starts at a trusted key and follows the handovers to older and newer keys. It fails if a key has two
// successors, because an attacker who stole an old key could have signed the second handover.
func newKeyring(trusted Key, list []Handover) (*keyring, error) {
	k := &keyring{keys: []Key{trusted}, maxSize: map[string]map[int64]int64{}}
	next, before := map[string]Key{}, map[string]Key{}
	for i := range list {
		h := &list[i]
		old, fresh, err := h.check()
		if err != nil {
			return nil, err
		}
		if other, ok := next[h.Old]; ok && !other.Equal(fresh) {
			return nil, errors.New("one key was replaced by two different keys")
		}
		if other, ok := before[h.New]; ok && !other.Equal(old) {
			return nil, errors.New("the same key replaced two different keys")
		}
		next[h.Old], before[h.New] = fresh, old
		if k.maxSize[h.Old] == nil {
			k.maxSize[h.Old] = map[int64]int64{}
		}
		k.maxSize[h.Old][h.Log] = h.Size
	}
	for _, way := range []map[string]Key{before, next} { // the second map leads to the newest key
		k.newest = trusted
		for steps := 0; steps <= len(list); steps++ {
			to, ok := way[k.newest.String()]
			if !ok {
				break
			}
			if slices.ContainsFunc(k.keys, to.Equal) {
				return nil, errors.New("the handovers form a cycle")
			}
			k.keys, k.newest = append(k.keys, to), to
		}
	}
	return k, nil
}

// hasOldKey reports whether the old key of a handover is in the keyring.
func (k *keyring) hasOldKey(h *Handover) bool {
	return slices.ContainsFunc(k.keys, func(key Key) bool { return key.String() == h.Old })
}

// inForce reports whether a key's signature is valid for a log of this size. A signature of a key that is not in the
// keyring is never valid.
func (k *keyring) inForce(key Key, log, size int64) bool {
	maxSize, retired := k.maxSize[key.String()]
	last, ok := maxSize[log]
	return slices.ContainsFunc(k.keys, key.Equal) && (!retired || ok && size <= last)
}

// open parses a checkpoint. A key in the keyring must have signed the checkpoint before that key was replaced.
func (k *keyring) open(text []byte) (c Checkpoint, err error) {
	for _, key := range k.keys {
		c, e := key.Open(text)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		if !k.inForce(key, c.Log, c.Size) {
			return c, errors.New("the checkpoint is signed with a key that had already been replaced")
		}
		return c, nil
	}
	if len(k.keys) > 1 {
		err = errors.New("the checkpoint is not signed by any of this journal's keys")
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

// keyring reads the handovers in the store and returns them together with the journal's keyring.
func (j *Journal) keyring(tx state.Tx) (*keyring, []Handover, error) {
	list, err := readHandovers(tx)
	if err != nil {
		return nil, nil, err
	}
	k, err := newKeyring(j.key, list)
	return k, list, err
}

// ErrHandedOver means that another key has replaced the key of this process.
var ErrHandedOver = errors.New("the root key has been rotated since this process started, so restart the process")

// InForce returns ErrHandedOver if another key has replaced the key of this process. Call InForce in the transaction
// that records the start of a side effect, because a process with a replaced key could not sign the outcome.
func (j *Journal) InForce(tx state.Tx) error {
	err := j.inForce(tx)
	if errors.Is(err, ErrHandedOver) {
		j.retired.Store(true)
	}
	return err
}

// HandedOver returns ErrHandedOver if an earlier call of InForce returned it. It does not access the store.
func (j *Journal) HandedOver() error {
	if j.retired.Load() {
		return ErrHandedOver
	}
	return nil
}

func (j *Journal) inForce(tx state.Tx) error {
	last, err := lastKey(tx)
	if err != nil || last == "" || last == j.key.String() {
		return err
	}
	ring, _, err := j.keyring(tx)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrForged, err)
	case ring.newest.Equal(j.key):
		return fmt.Errorf("%w: the handover to the key of this process is missing", ErrForged)
	}
	return ErrHandedOver
}

// ErrForged means that something other than ambit changed the handovers in the store.
var ErrForged = errors.New("something other than ambit changed the record of root key rotations in the store; " +
	"find out who can write to the store, and restore a backup")

// lastKey returns the newest key that replaced another key, or "". It does not check the signatures.
func lastKey(tx state.Tx) (key string, err error) {
	const query = `SELECT newer FROM handovers WHERE log = 0 ORDER BY size DESC LIMIT 1`
	err = tx.Query(query, nil, func(r state.Row) error { return r.Scan(&key) })
	return key, err
}

// KeyInForce returns the key that a store uses now: the newest key in the chain of handovers. The parameter first is
// the key at the start of the chain, or empty if that key is not known. KeyInForce fails with ErrForged if a handover
// is not signed by both its old and its new key. Otherwise, an attacker who can write to the store and has an old root
// key could make the store use that key again.
func KeyInForce(tx state.Tx, first string) (string, error) {
	last, err := lastKey(tx)
	if err != nil || last == "" {
		return first, err
	}
	list, err := readHandovers(tx)
	if err != nil {
		return "", err
	}
	key, err := ParseKey(cmp.Or(first, last))
	if err == nil {
		var ring *keyring
		if ring, err = newKeyring(key, list); err == nil {
			return ring.newest.String(), nil
		}
	}
	return "", fmt.Errorf("%w: %w", ErrForged, err)
}

// HandOver replaces the journal's key and returns the journal with the new key. Both keys sign the size and root of
// every log. The handovers and the principal are recorded in log 0. If update is not nil, it is called in the same
// transaction. If the new key is already the journal's key, HandOver does nothing.
func (j *Journal) HandOver(
	ctx context.Context, next ed25519.PrivateKey, principal string, update func(state.Tx, *Journal) error,
) (*Journal, error) {
	// If another key has already replaced this key, processes with the new key post the remaining records.
	if err := unlessHandedOver(j.Post(ctx)); err != nil {
		return nil, err
	}
	fresh := New(j.db, next, j.key.name)
	fresh.now = j.now
	fresh.posting.dir = j.posting.dir
	err := j.db.Write(ctx, func(tx state.Tx) error {
		switch now, err := KeyInForce(tx, ""); {
		case err != nil:
			return err
		case now == fresh.key.String():
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
				Kind: kindHandover, Time: j.now(), Principal: principal, Handover: h,
				Roster: &Roster{Log: h.Log, Size: h.Size, Root: &h.Root},
			})
			if err != nil {
				return err
			}
		}
		if update != nil {
			if err := update(tx, fresh); err != nil {
				return err
			}
		}
		_, err = fresh.markRoster(tx, j.now())
		return err
	})
	return fresh, err
}

// handovers returns one handover for each log. A handover contains the current size and root of its log. The old key
// and the new key both sign every handover.
func (j *Journal) handovers(tx state.Tx, fresh *Journal) (list []Handover, err error) {
	var a appender
	if err := a.open(tx, 0); err != nil { // open creates log 0 if necessary
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

// checkHandovers checks that the store and log 0 contain the same handovers. It also checks that the keyring contains
// the old key of every handover. The last parameter contains the handovers from the store.
func (r *roster) checkHandovers(k *keyring, list []Handover) error {
	has := func(list []Handover, h *Handover) bool {
		return slices.ContainsFunc(list, func(o Handover) bool { return bytes.Equal(o.text(), h.text()) })
	}
	for i := range list {
		if h := &list[i]; !k.hasOldKey(h) || !has(r.handovers, h) {
			return faultAt(h.Log, h.Size, "the store contains a handover for log %d that the journal does not record",
				h.Log)
		}
	}
	for i := range r.handovers {
		if h := &r.handovers[i]; !has(list, h) {
			return faultAt(h.Log, h.Size,
				"the journal contains a handover for log %d that is missing from the store", h.Log)
		}
	}
	return nil
}
