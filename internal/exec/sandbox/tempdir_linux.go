//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
)

// TempDir makes a folder that other users cannot enter. The first call removes the
// folders that killed processes have left.
func TempDir() (string, error) {
	prefix, err := groupPrefix(os.Getpid())
	if err != nil {
		return "", err
	}
	sweepOnce()
	return os.MkdirTemp("", prefix+"*")
}

// bootID identifies this boot of this machine. The first pid namespace has the same
// number on every machine, and machines may share a temporary folder. Without bootID,
// the folders of another machine's live processes would look abandoned.
var bootID = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	id := strings.ReplaceAll(strings.TrimSpace(string(text)), "-", "")
	if len(id) < bootLength {
		return "", errors.New("/proc does not show the id of this boot")
	}
	return id[:bootLength], nil
})

// bootLength is the length of the boot's id in names: 48 random bits.
const bootLength = 12

var sweepOnce = sync.OnceFunc(func() {
	for _, path := range abandoned(os.TempDir()) {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() {
			continue
		}
		// Other users can create such names. Remove only this user's folders.
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			os.RemoveAll(path)
		}
	}
})
