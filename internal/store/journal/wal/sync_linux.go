package wal

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData waits until the data of a file is on disk. If the size of the file changed, the new size is then on disk
// too.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

// enableDirect makes writes of whole blocks bypass the page cache, if the file system supports this. Syncs are then
// faster, because the kernel does not have to search for changed pages. As a test, enableDirect writes one empty block.
func enableDirect(f *os.File) {
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
