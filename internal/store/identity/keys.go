// Package identity authenticates callers and manages ambit's own keys.
//
// # Callers
//
// A Principal is authenticated in one of three ways: it is the user of this process, it
// holds an API key, or it has a token of the configured OpenID provider. The claims of an
// agent about itself are never used.
//
//   - An API key is stored as a hash and looked up in the store on every check: a revoked
//     key is refused everywhere at once.
//   - A token is verified with the provider's keys. It grants only what the settings grant
//     to its subject or groups; a subject without a grant may use nothing.
//   - A caller without a valid key gets the same error for every wrong key.
//
// The owner of a home is the user who owns the file of the root key. Only owners may act on
// behalf of another principal or write policies.
//
// # The keys of ambit
//
// All keys that ambit signs, seals and hashes with are derived from one root secret, one
// key per purpose. So there is one file to protect and back up, and data for one purpose is
// invalid for any other. A lost root is not replaced, and a store is bound to the root that
// it was created with ([Begin]).
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

// Keys are the keys of one home, or of several machines that share a root.
//
// A root can be rotated. Stored data of an older root is still read, with [Keys.OpenKept]
// and [Keys.SameMAC]. Data that is not stored, such as a session, is not: an attacker with
// the older root could forge it.
type Keys struct {
	sign ed25519.PrivateKey
	seal cipher.AEAD
	macs *sync.Pool // of hash.Hash
	old  []*Keys    // of older roots, the newest first
}

const rootSize = 32

// ErrSealed means that sealed data cannot be opened: it was changed, or sealed with
// another root or for another purpose.
var ErrSealed = errors.New("it was not sealed by this ambit, or was changed since")

// OpenKeys reads the root secret from its file in a home and creates it on first use. Two
// processes that create it at the same time get the same one. The file has one line for
// each root, newest first. The root is always created before the store, so if there is a
// store and no root, the root was lost, and OpenKeys fails with ErrNoRoot.
func OpenKeys(file string) (*Keys, error) {
	store := home.At(filepath.Dir(filepath.Dir(file))).State()
	_, storeErr := os.Stat(store) // before reading the root: another process may be creating both
	roots, err := readRoots(file)
	if errors.Is(err, fs.ErrNotExist) {
		if !errors.Is(storeErr, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s does not exist, and the store %s was created with it", ErrNoRoot, file, store)
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
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		root, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
		if err != nil || len(root) != rootSize {
			return nil, fmt.Errorf("%s does not contain %d bytes in base64", file, rootSize)
		}
		roots = append(roots, root)
	}
	return roots, nil
}

// makeRoot writes a new root to a temporary file and links it to its place, so that the
// first process wins and no process reads an incomplete root.
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

// PublicOf returns, in base64, the public key that identifies a principal to the programs
// that work for it. It is derived from the root, so it is the same on every machine with
// that root, and differs for principals whose names look alike. It signs nothing.
//
// It is derived from the oldest root, so that a rotation does not change it.
func (k *Keys) PublicOf(principal string) string {
	if n := len(k.old); n > 0 {
		k = k.old[n-1]
	}
	seed := k.MAC("principal", []byte(principal))
	public := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
	return base64.StdEncoding.EncodeToString(public)
}

// Seal encrypts data for a purpose. Open needs the same purpose to decrypt it.
func (k *Keys) Seal(purpose string, data []byte) []byte {
	return k.seal.Seal(nil, nil, data, []byte(purpose))
}

// Open decrypts the result of Seal, or fails with ErrSealed.
func (k *Keys) Open(purpose string, sealed []byte) ([]byte, error) {
	data, err := k.seal.Open(nil, nil, sealed, []byte(purpose))
	if err != nil {
		return nil, ErrSealed
	}
	return data, nil
}

// MAC returns a keyed hash of data for a purpose.
func (k *Keys) MAC(purpose string, data []byte) [sha256.Size]byte {
	h := k.macs.Get().(hash.Hash)
	defer k.macs.Put(h)
	h.Reset()
	// The length separates purpose and data.
	head := strconv.AppendInt(make([]byte, 0, 128), int64(len(purpose)), 10)
	h.Write(append(append(head, ':'), purpose...))
	h.Write(data)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}
