package wal

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData waits until the data of a file, and its size if that changed, is on disk.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

// direct makes writes of whole blocks bypass the page cache, if the file system supports
// it: a sync then has no pages to look for. It writes one empty block as a test.
func direct(f *os.File) {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_DIRECT); err != nil {
		return
	}
	if _, err := f.WriteAt(aligned(blockSize), 0); err != nil {
		unix.FcntlInt(f.Fd(), unix.F_SETFL, flags)
	}
}
