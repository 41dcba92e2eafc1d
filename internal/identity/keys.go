// Package identity knows who calls, and holds the keys that ambit itself uses.
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
)

// Keys are those of one home, or of one fleet that shares its root. All are
// derived from one root secret, each for one use.
type Keys struct {
	sign ed25519.PrivateKey
	seal cipher.AEAD
	macs *sync.Pool // of hash.Hash
}

const rootSize = 32

// ErrSealed says that something sealed cannot be opened: it was changed, or
// sealed under another root or for another purpose.
var ErrSealed = errors.New("it was not sealed by this ambit, or was changed since")

// OpenKeys reads the root secret from a file, and makes it on first use. Two
// processes that make it at once end up with the same one.
func OpenKeys(file string) (*Keys, error) {
	root, err := readRoot(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeRoot(file); err == nil {
			root, err = readRoot(file)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the root key: %w", err)
	}
	return deriveKeys(root)
}

func readRoot(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	root, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(root) != rootSize {
		return nil, fmt.Errorf("%s does not hold %d bytes in base64", file, rootSize)
	}
	return root, nil
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
	if err = os.Link(f.Name(), file); errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
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
func (k *Keys) PublicOf(principal string) string {
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
