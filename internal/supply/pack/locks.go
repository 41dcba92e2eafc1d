package pack

import (
	"os"
	"sync"
	"time"
)

// Locks reads lock files and keeps the content of the last one. The agents of a folder share a lock file. If each of
// them read it, the start of a daemon would take time in proportion to the square of their number. A nil *Locks keeps
// nothing. Callers must not change a returned Lock.
type Locks struct {
	mu   sync.Mutex
	path string
	seen os.FileInfo // nil if no content is kept
	last *Lock
}

// settled is the minimum age of a file whose content is kept. A younger file could change again without getting another
// modification time, because file systems store the time in coarse steps.
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
