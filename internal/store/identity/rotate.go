package identity

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/ambit-run/ambit/internal/store/home"
)

// OpenKept reads what Seal wrote and the store kept, under this root or an older
// one. It fails with ErrSealed.
func (k *Keys) OpenKept(purpose string, sealed []byte) ([]byte, error) {
	data, err := k.Open(purpose, sealed)
	for i := 0; err != nil && i < len(k.old); i++ {
		data, err = k.old[i].Open(purpose, sealed)
	}
	return data, err
}

// SameMAC reports whether a keyed hash that the store kept is that of data, under
// this root or an older one.
func (k *Keys) SameMAC(purpose string, data, mac []byte) bool {
	for own := range k.MACs(purpose, data) {
		if subtle.ConstantTimeCompare(own[:], mac) == 1 {
			return true
		}
	}
	return false
}

// MACs are the keyed hash of data under this root, and then under the older ones.
func (k *Keys) MACs(purpose string, data []byte) iter.Seq[[sha256.Size]byte] {
	return func(yield func([sha256.Size]byte) bool) {
		if !yield(k.MAC(purpose, data)) {
			return
		}
		for _, old := range k.old {
			if !yield(old.MAC(purpose, data)) {
				return
			}
		}
	}
}

// Signers are the keys that sign, and that signed before: the newest first.
func (k *Keys) Signers() []ed25519.PublicKey {
	list := []ed25519.PublicKey{k.sign.Public().(ed25519.PublicKey)}
	for _, old := range k.old {
		list = append(list, old.sign.Public().(ed25519.PublicKey))
	}
	return list
}

// Roots are the keys under this root, and then those under each older one, as they
// were before it.
func (k *Keys) Roots() []*Keys {
	all := []*Keys{k}
	for i, old := range k.old {
		was := *old
		was.old = k.old[i+1:]
		all = append(all, &was)
	}
	return all
}

// Rotating reports whether a rotation has begun that did not end.
func Rotating(file string) bool {
	roots, err := readRoots(file)
	fresh, nextErr := readRoots(next(file))
	return err == nil && nextErr == nil && !bytes.Equal(fresh[0], roots[0])
}

// next is where the next root waits for the store to know of it.
func next(file string) string { return file + ".next" }

// NextKeys prepares a rotation: it makes the next root, or finds the one of a
// rotation that was broken off, and returns the keys under it. Nothing uses them
// until [AdoptNext].
func NextKeys(file string) (*Keys, error) {
	roots, err := readRoots(file)
	if err != nil {
		return nil, fmt.Errorf("the root key: %w", err)
	}
	fresh, err := readRoots(next(file))
	if err == nil && bytes.Equal(fresh[0], roots[0]) {
		// The rotation that left it has ended; this one is another.
		err = cmp.Or(os.Remove(next(file)), fs.ErrNotExist)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeRoot(next(file)); err == nil {
			fresh, err = readRoots(next(file))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the next root key: %w", err)
	}
	return keysOf(append(fresh[:1], roots...))
}

// Replaceable finds out whether a root can be replaced, before a store is handed over
// to another: a file that is mounted cannot.
func Replaceable(file string) error {
	text, err := os.ReadFile(file)
	if err == nil {
		err = home.Replace(file, 0o600, text)
	}
	if err != nil {
		return fmt.Errorf("the root key: %w", err)
	}
	return nil
}

// AdoptNext makes the next root the one in use. The older ones stay behind it.
func AdoptNext(file string) error {
	roots, err := readRoots(file)
	if err != nil {
		return fmt.Errorf("the root key: %w", err)
	}
	fresh, err := readRoots(next(file))
	if err != nil {
		return fmt.Errorf("the next root key: %w", err)
	}
	if bytes.Equal(fresh[0], roots[0]) {
		return os.Remove(next(file)) // somebody else has adopted it
	}
	var text []byte
	for _, root := range append(fresh[:1], roots...) {
		text = append(base64.StdEncoding.AppendEncode(text, root), '\n')
	}
	if err := home.Replace(next(file), 0o600, text); err != nil {
		return fmt.Errorf("the next root key: %w", err)
	}
	// It comes to its place and leaves the other in one step, so that none is left
	// which looks like that of a new rotation.
	if err := os.Rename(next(file), file); err != nil {
		return fmt.Errorf("the root key: %w", err)
	}
	return home.SyncFolder(filepath.Dir(file))
}
