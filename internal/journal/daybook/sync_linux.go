package daybook

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData waits until what was written is on the disk, with its size if that
// has changed.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

// syncFolder waits until the folder names its files.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
