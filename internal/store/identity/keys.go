// Package identity knows who calls, and holds the keys that ambit itself uses.
//
// # Who calls
//
// A Principal is known in one of three ways: it is the person whose process this
// is, it holds an API key, or it has a token of the configured OpenID provider.
// What an agent says of itself counts for nothing.
//
//   - An API key is kept as a hash, and is looked up in the store on every check:
//     one that is revoked anywhere is refused everywhere from then on.
//   - A token is checked against the provider's keys, and is worth only what the
//     settings say of its subject or groups. Whoever is in no list may use nothing.
//   - To whoever holds no key of ours, every wrong key is wrong in the same way.
//
// The owner of a home is the user to whom the file of the root key belongs. Acting
// for somebody else, and writing rules, is for owners only.
//
// # The keys of ambit
//
// Everything that ambit signs, seals or recognises again is derived from one root
// secret, a key for each use, so that there is one file to protect and to back
// up, and a text of one use is nothing to another. A root that is lost is not made
// anew, and a store is held to the root that it was begun with ([Begin]).
package identity

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/internal/store/home"
)

// Keys are those of one home, or of one fleet that shares its root. All are
// derived from one root secret, each for one use.
//
// A root can be rotated. What was kept under an older one is still read, with
// [Keys.OpenKept] and [Keys.SameMAC]; what only passes by, such as a session, is
// not, since whoever has the older root could make it up.
type Keys struct {
	sign ed25519.PrivateKey
	seal cipher.AEAD
	macs *sync.Pool // of hash.Hash
	old  []*Keys    // of older roots, the newest first
}

const rootSize = 32

// ErrSealed says that something sealed cannot be opened: it was changed, or
// sealed under another root or for another purpose.
var ErrSealed = errors.New("it was not sealed by this ambit, or was changed since")

// OpenKeys reads the root secret from its file in a home, and makes it on first
// use. Two processes that make it at once end up with the same one. The file has a
// line for each root, the newest first. Where the home has a store already the
// root was lost, and OpenKeys fails with ErrNoRoot: it is made before the store is.
func OpenKeys(file string) (*Keys, error) {
	store := home.At(filepath.Dir(filepath.Dir(file))).State()
	_, storeErr := os.Stat(store) // before the root is looked for: others may be making both
	roots, err := readRoots(file)
	if errors.Is(err, fs.ErrNotExist) {
		if !errors.Is(storeErr, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: there is no %s, and the store %s was begun with one", ErrNoRoot, file, store)
		}
		if err = makeRoot(file); err == nil {
			roots, err = readRoots(file)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the root key: %w", err)
	}
	return keysOf(roots)
}

func keysOf(roots [][]byte) (*Keys, error) {
	k, err := deriveKeys(roots[0])
	if err != nil {
		return nil, err
	}
	for _, root := range roots[1:] {
		old, err := deriveKeys(root)
		if err != nil {
			return nil, err
		}
		k.old = append(k.old, old)
	}
	return k, nil
}

func readRoots(file string) ([][]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var roots [][]byte
	for line := range strings.Lines(strings.TrimSpace(string(text))) {
		root, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
		if err != nil || len(root) != rootSize {
			return nil, fmt.Errorf("%s does not hold %d bytes in base64", file, rootSize)
		}
		roots = append(roots, root)
	}
	if len(roots) == 0 {
		return nil, fmt.Errorf("%s does not hold %d bytes in base64", file, rootSize)
	}
	return roots, nil
}

// makeRoot writes a new root beside its place and links it there, so that the
// first one wins and nobody reads half of one.
func makeRoot(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".root-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	root := make([]byte, rootSize)
	rand.Read(root) // never fails
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(root) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Link(f.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return home.SyncFolder(filepath.Dir(file))
}

func deriveKeys(root []byte) (*Keys, error) {
	derive := func(use string, n int) []byte {
		key, err := hkdf.Key(sha256.New, root, nil, "ambit/"+use, n)
		if err != nil {
			panic(err) // only for impossible lengths
		}
		return key
	}
	mac := derive("mac", 32)
	block, err := aes.NewCipher(derive("seal", 32))
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Keys{
		sign: ed25519.NewKeyFromSeed(derive("sign", ed25519.SeedSize)),
		seal: seal,
		macs: &sync.Pool{New: func() any { return hmac.New(sha256.New, mac) }},
	}, nil
}

// Signer signs checkpoints and grants.
func (k *Keys) Signer() ed25519.PrivateKey { return k.sign }

// PublicOf is the public key that a principal is known by to the programs that
// work for it, in base64. It is derived from the root, so that it is the same
// wherever that root is, and tells principals apart whose names look alike.
// Nothing is signed with it: those who have a key here are known by name.
//
// It is that of the oldest root, so that a rotation does not make people strangers.
func (k *Keys) PublicOf(principal string) string {
	if n := len(k.old); n > 0 {
		k = k.old[n-1]
	}
	seed := k.MAC("principal", []byte(principal))
	public := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
	return base64.StdEncoding.EncodeToString(public)
}

// Seal encrypts data for a purpose; only Open with the same purpose reads it.
func (k *Keys) Seal(purpose string, data []byte) []byte {
	return k.seal.Seal(nil, nil, data, []byte(purpose))
}

// Open reads what Seal wrote, or fails with ErrSealed.
func (k *Keys) Open(purpose string, sealed []byte) ([]byte, error) {
	data, err := k.seal.Open(nil, nil, sealed, []byte(purpose))
	if err != nil {
		return nil, ErrSealed
	}
	return data, nil
}

// MAC is a keyed hash of data for a purpose.
func (k *Keys) MAC(purpose string, data []byte) [sha256.Size]byte {
	h := k.macs.Get().(hash.Hash)
	defer k.macs.Put(h)
	h.Reset()
	// The length keeps purpose and data apart.
	head := strconv.AppendInt(make([]byte, 0, 128), int64(len(purpose)), 10)
	h.Write(append(append(head, ':'), purpose...))
	h.Write(data)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}
