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

// OpenKept decrypts stored data that was sealed with this root or an older one, or fails
// with ErrSealed.
func (k *Keys) OpenKept(purpose string, sealed []byte) ([]byte, error) {
	data, err := k.Open(purpose, sealed)
	for i := 0; err != nil && i < len(k.old); i++ {
		data, err = k.old[i].Open(purpose, sealed)
	}
	return data, err
}

// SameMAC reports whether a stored keyed hash is the hash of data, with this root or an
// older one.
func (k *Keys) SameMAC(purpose string, data, mac []byte) bool {
	for own := range k.MACs(purpose, data) {
		if subtle.ConstantTimeCompare(own[:], mac) == 1 {
			return true
		}
	}
	return false
}

// MACs returns the keyed hashes of data with this root and with each older one.
func (k *Keys) MACs(purpose string, data []byte) iter.Seq[[sha256.Size]byte] {
	return func(yield func([sha256.Size]byte) bool) {
		for i := -1; i < len(k.old); i++ {
			of := k
			if i >= 0 {
				of = k.old[i]
			}
			if !yield(of.MAC(purpose, data)) {
				return
			}
		}
	}
}

// Signers returns the public keys of this root and of each older one, newest first.
func (k *Keys) Signers() []ed25519.PublicKey {
	list := []ed25519.PublicKey{k.sign.Public().(ed25519.PublicKey)}
	for _, old := range k.old {
		list = append(list, old.sign.Public().(ed25519.PublicKey))
	}
	return list
}

// Roots returns the keys of this root and of each older one, as they were before the next
// rotation.
func (k *Keys) Roots() []*Keys {
	all := []*Keys{k}
	for i, old := range k.old {
		was := *old
		was.old = k.old[i+1:]
		all = append(all, &was)
	}
	return all
}

// Rotating reports whether a rotation was interrupted.
func Rotating(file string) bool {
	roots, err := readRoots(file)
	fresh, nextErr := readRoots(next(file))
	return err == nil && nextErr == nil && !bytes.Equal(fresh[0], roots[0])
}

// next returns the file of the next root during a rotation.
func next(file string) string { return file + ".next" }

// NextKeys prepares a rotation: it creates the next root, or reads the next root of an
// interrupted rotation, and returns its keys. They are not in use until [AdoptNext].
func NextKeys(file string) (*Keys, error) {
	roots, err := readRoots(file)
	if err != nil {
		return nil, fmt.Errorf("the root key: %w", err)
	}
	fresh, err := readRoots(next(file))
	if err == nil && bytes.Equal(fresh[0], roots[0]) {
		// The file is left over from a completed rotation.
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

// Replaceable fails if the file of a root cannot be replaced, for example because it is
// mounted. A rotation calls it before it hands the store over.
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

// AdoptNext puts the next root into use. The file keeps the older roots after it.
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
		return os.Remove(next(file)) // another process has adopted it
	}
	var text []byte
	for _, root := range append(fresh[:1], roots...) {
		text = append(base64.StdEncoding.AppendEncode(text, root), '\n')
	}
	if err := home.Replace(next(file), 0o600, text); err != nil {
		return fmt.Errorf("the next root key: %w", err)
	}
	// The rename also removes the next file, so that it cannot be mistaken for the start of
	// a new rotation.
	if err := os.Rename(next(file), file); err != nil {
		return fmt.Errorf("the root key: %w", err)
	}
	return home.SyncFolder(filepath.Dir(file))
}
