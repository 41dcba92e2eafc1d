// Package identity authenticates callers and manages ambit's own keys.
//
// # Callers
//
// A [Principal] is an authenticated caller: the user of this process, the holder of an API key, or the holder of a
// token from the configured OpenID provider. An agent's statements about its own identity are never used.
//
//   - The store contains only hashes of API keys. Every check reads the store, so all processes reject a revoked key
//     immediately.
//   - A token is verified with the provider's keys. The settings list the agents that each subject and each
//     group can use. A subject that the settings do not mention has no access.
//   - An unknown key and a malformed key cause the same error. Only expired and revoked keys have errors of their
//     own.
//
// The owner of a home is the user who owns the root key file. Only the owner can act on behalf of another principal
// or write policies.
//
// # The keys of ambit
//
// ambit derives its keys for signatures, encryption and keyed hashes from one root key. Only one file must be
// protected and backed up. Data that was encrypted or hashed for one purpose is invalid for any other purpose. A
// store is bound to the root key with which it was created (see [Begin]). A lost root key is never replaced with a
// new root key.
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
	"encoding/json"
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

// Keys contains the keys that are derived from one root key. Several machines can share a root key.
//
// A root key can be rotated. After a rotation, [Keys.OpenKept] and [Keys.SameMAC] still accept stored data that was
// protected with an older root key. Data from callers, such as a session, must be protected with the current root key.
// Otherwise, an attacker with an older root key could forge the data.
type Keys struct {
	sign ed25519.PrivateKey
	seal cipher.AEAD
	macs *sync.Pool // a pool of values of type hash.Hash
	old  []*Keys    // the keys that are derived from older root keys, newest first
}

const rootSize = 32

// ErrSealed means that data cannot be decrypted. The data was changed, or was encrypted with another root key or for
// another purpose.
var ErrSealed = errors.New("the data was not encrypted with this root key, or was changed later")

// OpenKeys reads the root key file of a home. The file has one line for each root key, newest first. If the file is
// missing, OpenKeys creates the file with a new root key. If several processes create the file at the same time, they
// all get the same root key. A root key is always created before the store. If only the store exists, the root key was
// lost, and OpenKeys fails with ErrNoRoot.
func OpenKeys(file string) (*Keys, error) {
	store := home.At(filepath.Dir(filepath.Dir(file))).State()
	_, storeErr := os.Stat(store) // this must come before readRoots, because another process may be creating both files
	roots, err := readRoots(file)
	if errors.Is(err, fs.ErrNotExist) {
		if !errors.Is(storeErr, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: the file %s does not exist, and the store %s cannot be used without this file",
				ErrNoRoot, file, store)
		}
		if err = makeRoot(file); err == nil {
			roots, err = readRoots(file)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the root key: %w", err)
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
			return nil, fmt.Errorf("%s is damaged: each line must contain %d bytes in base64", file, rootSize)
		}
		roots = append(roots, root)
	}
	return roots, nil
}

// makeRoot creates a root key file unless the file exists. It writes a temporary file and then links this file to the
// final name, so that no process can read an incomplete root key. If several processes create a root key at the same
// time, the first link wins.
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
			panic(err) // hkdf fails only for key lengths that ambit does not use
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

// Signer returns the key that signs checkpoints and grants.
func (k *Keys) Signer() ed25519.PrivateKey { return k.sign }

// PublicOf returns a public key in base64 that identifies a principal to programs. Nothing is signed with the key. The
// key is derived from the oldest root key and the principal's name. Every machine with that root key computes the same
// key, and a rotation does not change the key.
func (k *Keys) PublicOf(principal string) string {
	if n := len(k.old); n > 0 {
		k = k.old[n-1]
	}
	seed := k.MAC("principal", []byte(principal))
	public := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
	return base64.StdEncoding.EncodeToString(public)
}

// Seal encrypts data for a purpose. Open must be called with the same purpose.
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

// SealText encodes a value as JSON, encrypts the JSON, and returns a string that is safe in URLs and headers.
func (k *Keys) SealText(purpose string, value any) (string, error) {
	plain, err := json.Marshal(value)
	return base64.RawURLEncoding.EncodeToString(k.Seal(purpose, plain)), err
}

// OpenText decrypts a string that SealText returned and decodes the value into target. It fails with ErrSealed if the
// string cannot be decrypted.
func (k *Keys) OpenText(purpose, text string, target any) error {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return ErrSealed
	}
	plain, err := k.Open(purpose, sealed)
	if err != nil || json.Unmarshal(plain, target) != nil {
		return ErrSealed
	}
	return nil
}

// MAC returns a keyed hash of data for a purpose.
func (k *Keys) MAC(purpose string, data []byte) [sha256.Size]byte {
	h := k.macs.Get().(hash.Hash)
	defer k.macs.Put(h)
	h.Reset()
	// The length prefix marks where the purpose ends and the data begins.
	head := strconv.AppendInt(make([]byte, 0, 128), int64(len(purpose)), 10)
	h.Write(append(append(head, ':'), purpose...))
	h.Write(data)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}
