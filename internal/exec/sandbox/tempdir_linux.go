//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"os"
	"strings"
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

// bootID tells this boot of this machine from all others. The first pid namespace has
// the same number everywhere, and machines may share a folder for what is temporary:
// without it one of them would take the folders of another's living processes for
// abandoned ones.
var bootID = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	id := strings.ReplaceAll(strings.TrimSpace(string(text)), "-", "")
	if len(id) < bootLength {
		return "", errors.New("the kernel does not tell which boot this is")
	}
	return id[:bootLength], nil
})

// bootLength is how much of a boot's id is in names: 48 random bits.
const bootLength = 12

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
