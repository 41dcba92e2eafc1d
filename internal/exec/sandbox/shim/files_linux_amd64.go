package shim

import "golang.org/x/sys/unix"

// olderFileCalls returns the system calls that other architectures lack or number differently.
func olderFileCalls() map[int32]FileCall {
	calls := map[int32]FileCall{
		unix.SYS_OPEN:       {Dir: -1, Path: 0, Flags: 1},
		unix.SYS_RENAME:     {Dir: -1, Path: 1, Flags: -1, Moves: true},
		unix.SYS_LINK:       {Dir: -1, Path: 1, Flags: -1, Links: true},
		unix.SYS_SYMLINK:    {Dir: -1, Path: 1, Flags: -1},
		unix.SYS_RENAMEAT:   {Dir: 2, Path: 3, Flags: -1, Moves: true},
		unix.SYS_NEWFSTATAT: {Dir: 0, Path: 1, Flags: -1, Looks: true, Empty: 3},
	}
	for _, number := range []int32{unix.SYS_CREAT, unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_UNLINK, unix.SYS_CHMOD} {
		calls[number] = FileCall{Dir: -1, Path: 0, Flags: -1}
	}
	for _, number := range []int32{unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_READLINK} {
		calls[number] = FileCall{Dir: -1, Path: 0, Flags: -1, Looks: true}
	}
	return calls
}
