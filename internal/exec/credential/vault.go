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

// Vault keeps secrets by the name under which an agent acts, and ref.
type Vault interface {
	Get(agent, ref string) (Secret, bool, error)
	Set(agent, ref string, s Secret) error
	List() ([]Entry, error)
	// Remove reports whether there was one.
	Remove(agent, ref string) (bool, error)
}

// Entry is a secret that is kept, without its value.
type Entry struct {
	Agent string `json:"agent"`
	// ID is that of the manifest that it was set for; empty for any of the name.
	ID    string    `json:"id,omitempty"`
	Ref   string    `json:"ref"`
	Type  Type      `json:"type"`
	Hosts []string  `json:"hosts,omitempty"`
	Set   time.Time `json:"set"`
}

// ErrDamaged says that a vault cannot be opened with its key.
var ErrDamaged = errors.New("the vault cannot be opened: it was changed, or written with another key")

// File is the vault in a home: an encrypted file that processes share.
type File struct {
	path, lockPath string
	key            keyFile
	now            func() time.Time

	mu    sync.Mutex  // not held while somebody is asked for the key
	seen  fs.FileInfo // of what is in kept
	kept  contents
	ident *age.X25519Identity
}

var _ Vault = (*File)(nil)

// Open is the vault of a home. Nothing is made until something is kept.
func Open(h home.Home) *File { return open(h.Dir(), sessionKeyring()) }

func open(dir string, k keyring) *File {
	path := filepath.Join(dir, "secrets")
	return &File{
		path: path, lockPath: path + ".lock", now: time.Now,
		key: keyFile{path: filepath.Join(dir, "keys", "vault"), prefer: k, stored: newAsker(osKeyring{})},
	}
}

// contents is what the file holds once it is opened.
type contents struct {
	Version int      `json:"version"`
	Secrets []record `json:"secrets"`
}

type record struct {
	Entry
	Value string `json:"value"`
}

// version 1 kept secrets under the id alone.
const version = 2

func (c *contents) find(agent, ref string) (int, bool) {
	return slices.BinarySearchFunc(c.Secrets, Entry{Agent: agent, Ref: ref}, func(r record, e Entry) int {
		return cmp.Or(cmp.Compare(r.Agent, e.Agent), cmp.Compare(r.Ref, e.Ref))
	})
}

// Get finds a secret.
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

// List tells what is kept, sorted by agent and ref.
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

// Set keeps a secret, in the place of one that was there.
func (f *File) Set(agent, ref string, s Secret) error {
	if s.IsZero() {
		return errors.New("there is no value to keep")
	}
	_, err := f.change(func(c *contents) bool {
		r := record{Entry{agent, s.of(), ref, s.Type(), s.Hosts(), f.now().UTC().Truncate(time.Second)}, s.Reveal()}
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

// Remove forgets a secret.
func (f *File) Remove(agent, ref string) (bool, error) {
	return f.change(func(c *contents) bool {
		at, ok := c.find(agent, ref)
		if ok {
			c.Secrets = slices.Delete(c.Secrets, at, at+1)
		}
		return ok
	})
}

// Kept says where the vault's key lies: keyring or file; empty if there is none
// yet.
func (f *File) Kept() (string, error) { return f.key.kept() }

// read returns what is in the file. Whoever changes the file replaces it, so
// that there is nothing to wait for but the key.
func (f *File) read() (contents, error) {
	info, err := os.Stat(f.path)
	if err == nil {
		if c, ok := f.remembered(info); ok {
			return c, nil
		}
	}
	return f.load(info, err)
}

// load reads the file, and remembers what it held when it looked as info says.
func (f *File) load(info fs.FileInfo, err error) (contents, error) {
	if errors.Is(err, fs.ErrNotExist) {
		f.remember(nil, contents{})
		return contents{Version: version}, nil
	}
	if err != nil {
		return contents{}, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		// It is encrypted; still it is nobody else's business.
		if err := os.Chmod(f.path, 0o600); err != nil {
			return contents{}, fmt.Errorf("others may read the vault: %w", err)
		}
	}
	c, err := f.decrypt()
	if err != nil {
		return contents{}, err
	}
	f.remember(info, c)
	return c, nil
}

// remembered is what was in the file, if it still looks the same.
func (f *File) remembered(info fs.FileInfo) (contents, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	same := f.seen != nil && os.SameFile(f.seen, info) && f.seen.ModTime().Equal(info.ModTime()) && f.seen.Size() == info.Size()
	return f.kept, same
}

func (f *File) remember(info fs.FileInfo, c contents) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen, f.kept = info, c
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
		f.know(nil) // the key may be another one by now
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

// identity is the key of the vault; with create one is made if there is none.
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
			return nil, fmt.Errorf("the key of the vault is gone: %s", f.key.path)
		}
		ident, err = f.key.make()
	}
	if err == nil {
		f.know(ident)
	}
	return ident, err
}

// know remembers the key; nil forgets it.
func (f *File) know(ident *age.X25519Identity) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ident = ident
}

// change reads, changes and replaces the file while no other process does.
func (f *File) change(apply func(*contents) bool) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return false, err
	}
	lock, err := os.OpenFile(f.lockPath, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer lock.Close() // which lets go of it
	if err := home.Lock(lock); err != nil {
		return false, fmt.Errorf("the vault cannot be locked: %w", err)
	}
	// What is remembered may be what another process has just replaced.
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
		f.know(nil) // with the file, its key may have gone
	}
	ident, err := f.identity(first)
	if err != nil {
		return err
	}
	plain, err := json.Marshal(c)
	if err != nil {
		return errors.New("the vault's contents cannot be written")
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
	f.remember(nil, contents{})
	return err
}
