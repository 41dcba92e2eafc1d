//go:build unix

package program

import (
	"io"
	"os"
	"syscall"
)

// hold keeps a folder from those who clear out old temporary files: a daemon may
// run for longer than they wait, and they leave alone what is locked.
func hold(dir string) (io.Closer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
