package shim

import "golang.org/x/sys/unix"

// olderFileCalls returns the system calls that other architectures lack or number differently.
func olderFileCalls() map[int32]FileCall {
	return map[int32]FileCall{
		unix.SYS_RENAMEAT: {Dir: 2, Path: 3, Flags: -1, Moves: true},
		unix.SYS_FSTATAT:  {Dir: 0, Path: 1, Flags: -1, Looks: true, Empty: 3},
	}
}
