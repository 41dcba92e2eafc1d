package shim

import "golang.org/x/sys/unix"

func init() {
	FileCalls[unix.SYS_OPEN] = FileCall{Dir: -1, Path: 0, Flags: 1}
	FileCalls[unix.SYS_RENAMEAT] = FileCall{Dir: 2, Path: 3, Flags: -1}
	for _, number := range []int32{unix.SYS_CREAT, unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_UNLINK} {
		FileCalls[number] = FileCall{Dir: -1, Path: 0, Flags: -1}
	}
	for _, number := range []int32{unix.SYS_RENAME, unix.SYS_LINK, unix.SYS_SYMLINK} {
		FileCalls[number] = FileCall{Dir: -1, Path: 1, Flags: -1}
	}
}
