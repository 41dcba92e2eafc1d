package authority

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"sync"

	"github.com/ambit-run/ambit/internal/store/home"
)

// Memory is a file in a home that contains, for each PostgreSQL store, the newest register that the home has seen. A
// SQLite store needs no memory: an attacker who can change its file can also read the root key beside it.
type Memory struct {
	file, store string

	mu   sync.Mutex
	last os.FileInfo // of the file, when it was last read
}

// MemoryOf returns the memory of a home for the PostgreSQL store at a URL.
func MemoryOf(h home.Home, storeURL string) *Memory {
	m := &Memory{file: h.Seen()}
	if u, err := url.Parse(storeURL); err == nil {
		q := u.Query()
		m.store = u.Host + q.Get("host") + ":" + q.Get("port") + u.Path // without the password
	}
	return m
}

// changed returns the newest register that the home has seen, if the file has changed since the last call.
func (m *Memory) changed() (newest mark, changed bool) {
	if m == nil {
		return mark{}, false
	}
	info, err := os.Stat(m.file)
	if err != nil {
		return mark{}, false
	}
	m.mu.Lock()
	same := m.last != nil && os.SameFile(info, m.last) && info.ModTime().Equal(m.last.ModTime())
	m.last = info
	m.mu.Unlock()
	if same {
		return mark{}, false
	}
	return m.read(), true
}

// read returns the newest register that the home has seen.
func (m *Memory) read() mark {
	if m == nil {
		return mark{}
	}
	return m.all()[m.store]
}

func (m *Memory) all() map[string]mark {
	all := map[string]mark{}
	if text, err := os.ReadFile(m.file); err == nil {
		_ = json.Unmarshal(text, &all) // a damaged file remembers nothing
	}
	return all
}

// keep records a register, unless the file contains a newer version of it. If the home cannot be written, only the
// process remembers the register.
func (m *Memory) keep(ctx context.Context, newest mark) {
	if m == nil || newest.Name == "" {
		return
	}
	release, err := home.Hold(ctx, m.file+".lock")
	if err != nil {
		return
	}
	defer release()
	all := m.all()
	if old := all[m.store]; old.Name == newest.Name && old.Version >= newest.Version {
		return
	}
	all[m.store] = newest
	if text, err := json.Marshal(all); err == nil {
		_ = home.Replace(m.file, 0o600, text)
	}
}
