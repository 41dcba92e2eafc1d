package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"sync"

	"github.com/ambit-run/ambit/internal/store/home"
)

// Memory is a file in a home that contains, for each PostgreSQL store, the newest register that the home has seen. A
// SQLite store needs no such file: an attacker who can change the store can also read the root key beside it.
type Memory struct {
	file, store string

	mu   sync.Mutex
	last os.FileInfo // the size and time of the file when it was last read
	read Head        // the store's register in that file
}

// MemoryOf returns the memory of a home for the PostgreSQL store at a URL.
func MemoryOf(h home.Home, storeURL string) *Memory {
	m := &Memory{file: h.Seen()}
	if u, err := url.Parse(storeURL); err == nil {
		q := u.Query()
		m.store = u.Host + q.Get("host") + ":" + q.Get("port") + u.Path + q.Get("search_path") // without the password
	}
	return m
}

// DamagedError means that the file in which a home remembers registers cannot be read. Without that file, this machine
// cannot detect that the register of a store is an older one.
type DamagedError struct {
	File string
	Err  error
}

// Error names the damaged file and describes the fix.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s cannot be read: %v; the file records the newest register of keys, grants and approvals; "+
		"restore the file, or, to accept the store as it is, run: ambit key adopt", e.File, e.Err)
}

// Unwrap returns why the file cannot be read.
func (e *DamagedError) Unwrap() error { return e.Err }

// newest returns the newest register that the home has seen in the store. It reads the file only if the file has
// changed.
func (m *Memory) newest() (Head, error) {
	if m == nil {
		return Head{}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	info, err := os.Stat(m.file)
	if err == nil && m.last != nil && os.SameFile(info, m.last) && info.ModTime().Equal(m.last.ModTime()) {
		return m.read, nil
	}
	all, err := m.all()
	if err != nil {
		return Head{}, err
	}
	m.last, m.read = info, all[m.store]
	return m.read, nil
}

// all returns the newest register of each store. If there is no file, the result is empty.
func (m *Memory) all() (all map[string]Head, err error) {
	text, err := os.ReadFile(m.file)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Head{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err == nil && all == nil {
		err = errors.New("the file does not contain a JSON object")
	}
	if err != nil {
		return nil, &DamagedError{m.file, home.WithoutPath(err)}
	}
	return all, nil
}

// keep records a register, unless the file contains a newer version of it. If the file is damaged and a person has
// adopted the register, keep renames the damaged file and creates a new one.
func (m *Memory) keep(ctx context.Context, newest Head, adopted bool) error {
	if m == nil || newest.Name == "" {
		return nil
	}
	release, err := home.Hold(ctx, m.file+".lock")
	if err != nil {
		return err
	}
	defer release()
	all, err := m.all()
	if err != nil && adopted {
		all, err = map[string]Head{}, os.Rename(m.file, m.file+".damaged")
	}
	if err != nil {
		return err
	}
	if old := all[m.store]; old.Name == newest.Name && old.Version >= newest.Version {
		return nil
	}
	all[m.store] = newest
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return home.Replace(m.file, 0o600, text)
}
