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

// Vault stores secrets. A secret is identified by the name under which its agent runs and by the ref in the agent's
// manifest.
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
	// ID is the manifest id of the agent for which the secret was set. If ID is empty, every agent with the same name
	// gets the secret.
	ID    string   `json:"id,omitempty"`
	Ref   string   `json:"ref"`
	Type  Type     `json:"type"`
	Hosts []string `json:"hosts,omitempty"`
	// Scopes are the scopes for which the key of a service account was set. If ID is empty, Scopes has no effect.
	Scopes []string  `json:"scopes,omitempty"`
	Set    time.Time `json:"set"`
}

// ErrDamaged means that the vault cannot be decrypted with its key.
var ErrDamaged = errors.New("the vault cannot be decrypted, because it was modified or encrypted with another key")

// File is the vault in ambit's home folder. Several processes can use the encrypted file at the same time.
type File struct {
	path, lockPath string
	key            keyFile
	now            func() time.Time

	mu     sync.Mutex  // mu is not held during keyring requests, which can wait for a person
	seen   fs.FileInfo // state of the file when the contents were cached
	cached contents
	ident  *age.X25519Identity // the cached key, or nil
}

var _ Vault = (*File)(nil)

// Open returns the vault in a home folder. The first call of [File.Set] creates the vault's files.
func Open(h home.Home) *File { return open(h.Dir(), sessionKeyring()) }

func open(dir string, k keyring) *File {
	path := filepath.Join(dir, "secrets")
	return &File{
		path: path, lockPath: path + ".lock", now: time.Now,
		key: keyFile{path: filepath.Join(dir, "keys", "vault"), prefer: k, stored: newBoundedKeyring(osKeyring{})},
	}
}

// contents is the decrypted content of the vault file. The secrets are sorted by agent and ref.
type contents struct {
	Version int      `json:"version"`
	Secrets []record `json:"secrets"`
}

type record struct {
	Entry
	Value string `json:"value"`
}

// version is the version of the file format. In version 1, secrets were stored under the manifest id.
const version = 2

func (c *contents) find(agent, ref string) (int, bool) {
	return slices.BinarySearchFunc(c.Secrets, Entry{Agent: agent, Ref: ref}, func(r record, e Entry) int {
		return cmp.Or(cmp.Compare(r.Agent, e.Agent), cmp.Compare(r.Ref, e.Ref))
	})
}

// Get returns a secret. The second result reports whether the secret exists.
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
	if r.ID != "" {
		s = s.Of(r.ID).ForScopes(r.Scopes)
	}
	return s, err == nil, err
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

// Set stores a secret. An earlier secret with the same agent and ref is replaced.
func (f *File) Set(agent, ref string, s Secret) error {
	if s.IsZero() {
		return errors.New("the secret has no value")
	}
	_, err := f.change(func(c *contents) bool {
		set := f.now().UTC().Truncate(time.Second)
		r := record{Entry{agent, s.content().id, ref, s.Type(), s.Hosts(), s.content().scopes, set}, s.Reveal()}
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

// Remove deletes a secret. The result reports whether the secret existed.
func (f *File) Remove(agent, ref string) (bool, error) {
	return f.change(func(c *contents) bool {
		at, ok := c.find(agent, ref)
		if ok {
			c.Secrets = slices.Delete(c.Secrets, at, at+1)
		}
		return ok
	})
}

// read returns the contents of the vault. It returns the cached contents if the file has not changed. Reading needs no
// file lock, because writers replace the whole file.
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

// load reads and caches the vault file. The caller passes the results of os.Stat for the file.
func (f *File) load(info fs.FileInfo, err error) (contents, error) {
	if errors.Is(err, fs.ErrNotExist) {
		f.cache(nil, contents{})
		return contents{Version: version}, nil
	}
	if err != nil {
		return contents{}, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		// Other users must not read the file, although it is encrypted.
		if err := os.Chmod(f.path, 0o600); err != nil {
			return contents{}, fmt.Errorf("other users can access the vault, and its permissions cannot be changed: %w", err)
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
		f.setIdentity(nil) // another process may have replaced the key
		return contents{}, fmt.Errorf("%w (%s)", ErrDamaged, f.path)
	}
	if c.Version > version {
		return contents{}, fmt.Errorf("the vault %s was written by a newer version of ambit", f.path)
	}
	if c.Version == 1 {
		for i := range c.Secrets {
			c.Secrets[i].ID = c.Secrets[i].Agent
		}
	}
	return c, nil
}

// identity returns the key of the vault. If the key is missing and create is true, identity creates a key. If the key
// is missing and create is false, identity returns an error.
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

// setIdentity caches the vault's key, or drops the cached key if the argument is nil.
func (f *File) setIdentity(ident *age.X25519Identity) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ident = ident
}

// change reads the vault file and passes the contents to a callback. If the callback returns true, change writes the
// file. A file lock excludes other processes.
func (f *File) change(apply func(*contents) bool) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return false, err
	}
	lock, err := os.OpenFile(f.lockPath, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer lock.Close() // releases the file lock
	if err := home.Lock(lock); err != nil {
		return false, fmt.Errorf("the vault cannot be locked: %w", err)
	}
	// Bypass the cache. Another process may have just replaced the file.
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
		f.setIdentity(nil) // drop the cached key, because the key file may be missing too
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
