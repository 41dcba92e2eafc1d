//go:build amd64 || arm64

package sandbox

import (
	"os"
	"sync"
	"syscall"
)

// TempDir makes a folder that nobody else can enter, for what a run needs and does
// not keep. What processes that were killed left of theirs is removed before the
// first.
func TempDir() (string, error) {
	prefix, err := groupPrefix(os.Getpid())
	if err != nil {
		return "", err
	}
	sweepOnce()
	return os.MkdirTemp("", prefix+"*")
}

var sweepOnce = sync.OnceFunc(func() {
	for _, path := range abandoned(os.TempDir()) {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() {
			continue
		}
		// Anybody may put such a name there. Only what is ours is removed.
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			os.RemoveAll(path)
		}
	}
})
