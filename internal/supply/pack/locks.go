package pack

import (
	"os"
	"sync"
	"time"
)

// Locks reads lock files and keeps the content of the last one. The agents of a folder share a lock file, so if each of
// them read it, the start of a daemon would take time in proportion to the square of their number. A nil *Locks keeps
// nothing. The lock files that it returns must not be changed.
type Locks struct {
	mu   sync.Mutex
	path string
	seen os.FileInfo // nil if there is no last lock file
	last *Lock
}

// settled is the age from which a change of a file also changes its modification time.
const settled = time.Second

// Read is like [ReadLock], but does not read the last file again if it is unchanged.
func (l *Locks) Read(path string) (*Lock, error) {
	if l == nil {
		return ReadLock(path)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	info, err := os.Stat(path)
	if err == nil && l.seen != nil && l.path == path && os.SameFile(l.seen, info) && l.seen.Size() == info.Size() &&
		l.seen.ModTime().Equal(info.ModTime()) {
		return l.last, nil
	}
	l.seen = nil
	lock, readErr := ReadLock(path)
	if err == nil && readErr == nil && time.Since(info.ModTime()) >= settled {
		l.path, l.seen, l.last = path, info, lock
	}
	return lock, readErr
}
