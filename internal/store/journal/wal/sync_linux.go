package wal

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

// direct lets whole blocks go to the disk past the kernel's copies of files, if
// the file system can do that: a sync then has nothing to look for. It writes one
// empty block to find out.
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

// SyncFolder waits until the folder names the files that it has, and no others.
func SyncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
