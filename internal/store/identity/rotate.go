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

// OpenKept decrypts stored data that was encrypted with the current root key or an older root key. It fails with
// ErrSealed if no root key can decrypt the data.
func (k *Keys) OpenKept(purpose string, sealed []byte) ([]byte, error) {
	data, err := k.Open(purpose, sealed)
	for i := 0; err != nil && i < len(k.old); i++ {
		data, err = k.old[i].Open(purpose, sealed)
	}
	return data, err
}

// SameMAC reports whether mac is the keyed hash of data under the current root key or an older root key.
func (k *Keys) SameMAC(purpose string, data, mac []byte) bool {
	for own := range k.MACs(purpose, data) {
		if subtle.ConstantTimeCompare(own[:], mac) == 1 {
			return true
		}
	}
	return false
}

// MACs returns the keyed hashes of data under the current root key and each older root key.
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

// Signers returns the public signing keys of all root keys, newest first.
func (k *Keys) Signers() []ed25519.PublicKey {
	list := []ed25519.PublicKey{k.sign.Public().(ed25519.PublicKey)}
	for _, old := range k.old {
		list = append(list, old.sign.Public().(ed25519.PublicKey))
	}
	return list
}

// Roots returns one Keys value for each root key, newest first. Each value contains the keys that are derived from its
// root key and from all older root keys. It contains no keys that are derived from newer root keys.
func (k *Keys) Roots() []*Keys {
	all := []*Keys{k}
	for i, old := range k.old {
		was := *old
		was.old = k.old[i+1:]
		all = append(all, &was)
	}
	return all
}

// Rotating reports whether a rotation was interrupted. An interrupted rotation leaves the next root key in a separate
// file.
func Rotating(file string) bool {
	roots, err := readRoots(file)
	fresh, nextErr := readRoots(next(file))
	return err == nil && nextErr == nil && !bytes.Equal(fresh[0], roots[0])
}

// next returns the path of the file that contains the next root key during a rotation.
func next(file string) string { return file + ".next" }

// NextKeys prepares a rotation and returns the keys of the next root key. It creates the next root key, or reads the
// one that an interrupted rotation left behind. OpenKeys returns these keys only after [AdoptNext] was called.
func NextKeys(file string) (*Keys, error) {
	roots, err := readRoots(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the root key: %w", err)
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
		return nil, fmt.Errorf("cannot prepare the next root key: %w", err)
	}
	return keysOf(append(fresh[:1], roots...))
}

// Replaceable returns an error if the root key file cannot be replaced, for example because it is a mount point. A
// rotation calls Replaceable before it changes the store.
func Replaceable(file string) error {
	text, err := os.ReadFile(file)
	if err == nil {
		err = home.Replace(file, 0o600, text)
	}
	if err != nil {
		return fmt.Errorf("cannot replace the root key: %w", err)
	}
	return nil
}

// AdoptNext completes a rotation. It writes the next root key to the first line of the root key file, before the
// older root keys.
func AdoptNext(file string) error {
	roots, err := readRoots(file)
	if err != nil {
		return fmt.Errorf("cannot read the root key: %w", err)
	}
	fresh, err := readRoots(next(file))
	if err != nil {
		return fmt.Errorf("cannot read the next root key: %w", err)
	}
	if bytes.Equal(fresh[0], roots[0]) {
		return os.Remove(next(file)) // another process has already adopted this root key
	}
	var text []byte
	for _, root := range append(fresh[:1], roots...) {
		text = append(base64.StdEncoding.AppendEncode(text, root), '\n')
	}
	if err := home.Replace(next(file), 0o600, text); err != nil {
		return fmt.Errorf("cannot write the next root key: %w", err)
	}
	// Rename the new file. If it were copied, the original would stay and look like an interrupted rotation.
	if err := os.Rename(next(file), file); err != nil {
		return fmt.Errorf("cannot replace the root key: %w", err)
	}
	return home.SyncFolder(filepath.Dir(file))
}
