package credential

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/ambit-run/ambit/internal/store/home"
)

// Vault stores secrets by the name under which an agent runs, and ref.
type Vault interface {
	Get(agent, ref string) (Secret, bool, error)
	Set(agent, ref string, s Secret) error
	List() ([]Entry, error)
	// Remove reports whether the secret existed.
	Remove(agent, ref string) (bool, error)
}

// Entry is a stored secret without its value.
type Entry struct {
	Agent string `json:"agent"`
	// ID is the id in the manifest that the secret was set for; empty for any agent
	// with the name.
	ID    string    `json:"id,omitempty"`
	Ref   string    `json:"ref"`
	Type  Type      `json:"type"`
	Hosts []string  `json:"hosts,omitempty"`
	Set   time.Time `json:"set"`
}

// ErrDamaged means that a vault cannot be decrypted with its key.
var ErrDamaged = errors.New("the vault cannot be decrypted: it was modified, or encrypted with another key")

// File is the vault of a home: an encrypted file that processes share.
type File struct {
	path, lockPath string
	key            keyFile
	now            func() time.Time

	mu     sync.Mutex  // not held while a person may be asked for the key
	seen   fs.FileInfo // of the file that cached was read from
	cached contents
	ident  *age.X25519Identity
}

var _ Vault = (*File)(nil)

// Open returns the vault of a home. Files are created by the first Set.
func Open(h home.Home) *File { return open(h.Dir(), sessionKeyring()) }

func open(dir string, k keyring) *File {
	path := filepath.Join(dir, "secrets")
	return &File{
		path: path, lockPath: path + ".lock", now: time.Now,
		key: keyFile{path: filepath.Join(dir, "keys", "vault"), prefer: k, stored: newBoundedKeyring(osKeyring{})},
	}
}

// contents is the decrypted file.
type contents struct {
	Version int      `json:"version"`
	Secrets []record `json:"secrets"`
}

type record struct {
	Entry
	Value string `json:"value"`
}

// Version 1 stored secrets under the id alone.
const version = 2

func (c *contents) find(agent, ref string) (int, bool) {
	return slices.BinarySearchFunc(c.Secrets, Entry{Agent: agent, Ref: ref}, func(r record, e Entry) int {
		return cmp.Or(cmp.Compare(r.Agent, e.Agent), cmp.Compare(r.Ref, e.Ref))
	})
}

// Get returns a secret, and whether it exists.
func (f *File) Get(agent, ref string) (Secret, bool, error) {
	c, err := f.read()
	if err != nil {
		return Secret{}, false, err
	}
	at, ok := c.find(agent, ref)
	if !ok {
		return Secret{}, false, nil
	}
	r := c.Secrets[at]
	s, err := New(r.Type, r.Value, r.Hosts)
	return s.Of(r.ID), err == nil, err
}

// List returns all entries, sorted by agent and ref.
func (f *File) List() ([]Entry, error) {
	c, err := f.read()
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(c.Secrets))
	for i, r := range c.Secrets {
		entries[i] = r.Entry
	}
	return entries, nil
}

// Set stores a secret and replaces an earlier one.
func (f *File) Set(agent, ref string, s Secret) error {
	if s.IsZero() {
		return errors.New("there is no value to store")
	}
	_, err := f.change(func(c *contents) bool {
		set := f.now().UTC().Truncate(time.Second)
		r := record{Entry{agent, s.content().id, ref, s.Type(), s.Hosts(), set}, s.Reveal()}
		at, ok := c.find(agent, ref)
		if ok {
			c.Secrets[at] = r
		} else {
			c.Secrets = slices.Insert(c.Secrets, at, r)
		}
		return true
	})
	return err
}

// Remove deletes a secret.
func (f *File) Remove(agent, ref string) (bool, error) {
	return f.change(func(c *contents) bool {
		at, ok := c.find(agent, ref)
		if ok {
			c.Secrets = slices.Delete(c.Secrets, at, at+1)
		}
		return ok
	})
}

// read returns the contents of the file. Writers replace the file as a whole, so
// reading needs no lock.
func (f *File) read() (contents, error) {
	info, err := os.Stat(f.path)
	if err == nil {
		f.mu.Lock()
		c, same := f.cached, f.seen != nil && os.SameFile(f.seen, info) &&
			f.seen.ModTime().Equal(info.ModTime()) && f.seen.Size() == info.Size()
		f.mu.Unlock()
		if same {
			return c, nil
		}
	}
	return f.load(info, err)
}

// load reads and caches the file. info and err come from the os.Stat before.
func (f *File) load(info fs.FileInfo, err error) (contents, error) {
	if errors.Is(err, fs.ErrNotExist) {
		f.cache(nil, contents{})
		return contents{Version: version}, nil
	}
	if err != nil {
		return contents{}, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		// The file is encrypted, but other users need not read it either.
		if err := os.Chmod(f.path, 0o600); err != nil {
			return contents{}, fmt.Errorf("other users can read the vault: %w", err)
		}
	}
	c, err := f.decrypt()
	if err != nil {
		return contents{}, err
	}
	f.cache(info, c)
	return c, nil
}

func (f *File) cache(info fs.FileInfo, c contents) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen, f.cached = info, c
}

func (f *File) decrypt() (contents, error) {
	ident, err := f.identity(false)
	if err != nil {
		return contents{}, err
	}
	sealed, err := os.ReadFile(f.path)
	if err != nil {
		return contents{}, err
	}
	var plain []byte
	r, err := age.Decrypt(bytes.NewReader(sealed), ident)
	if err == nil {
		plain, err = io.ReadAll(r)
	}
	var c contents
	if err != nil || json.Unmarshal(plain, &c) != nil {
		f.setIdentity(nil) // the key may have been replaced
		return contents{}, fmt.Errorf("%w (%s)", ErrDamaged, f.path)
	}
	if c.Version > version {
		return contents{}, fmt.Errorf("the vault %s was written by a newer ambit", f.path)
	}
	if c.Version == 1 {
		for i := range c.Secrets {
			c.Secrets[i].ID = c.Secrets[i].Agent
		}
	}
	return c, nil
}

// identity returns the key of the vault. With create, it makes a missing key.
func (f *File) identity(create bool) (*age.X25519Identity, error) {
	f.mu.Lock()
	ident := f.ident
	f.mu.Unlock()
	if ident != nil {
		return ident, nil
	}
	ident, err := f.key.read()
	if errors.Is(err, fs.ErrNotExist) {
		if !create {
			return nil, fmt.Errorf("the vault's key is missing: %s", f.key.path)
		}
		ident, err = f.key.create()
	}
	if err == nil {
		f.setIdentity(ident)
	}
	return ident, err
}

// setIdentity caches the key; nil drops it.
func (f *File) setIdentity(ident *age.X25519Identity) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ident = ident
}

// change reads, changes and replaces the file under a lock that excludes other
// processes.
func (f *File) change(apply func(*contents) bool) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return false, err
	}
	lock, err := os.OpenFile(f.lockPath, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer lock.Close() // releases the lock
	if err := home.Lock(lock); err != nil {
		return false, fmt.Errorf("the vault cannot be locked: %w", err)
	}
	// Not from the cache: another process may just have replaced the file.
	c, err := f.load(os.Stat(f.path))
	if err != nil {
		return false, err
	}
	c = contents{Version: version, Secrets: slices.Clone(c.Secrets)}
	if !apply(&c) {
		return false, nil
	}
	return true, f.write(c)
}

func (f *File) write(c contents) error {
	_, err := os.Stat(f.path)
	first := errors.Is(err, fs.ErrNotExist)
	if first {
		f.setIdentity(nil) // the key may have been deleted with the file
	}
	ident, err := f.identity(first)
	if err != nil {
		return err
	}
	plain, err := json.Marshal(c)
	if err != nil {
		return errors.New("the vault's contents cannot be encoded")
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, ident.Recipient())
	if err != nil {
		return err
	}
	if _, err = w.Write(plain); err == nil {
		err = w.Close()
	}
	if err != nil {
		return err
	}
	err = home.Replace(f.path, 0o600, sealed.Bytes())
	f.cache(nil, contents{})
	return err
}
