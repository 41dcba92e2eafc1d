package shim

import "golang.org/x/sys/unix"

// FileCall describes the arguments of a system call that opens or changes a file. The fields are positions in the list
// of arguments, or -1 if there is no such argument.
type FileCall struct {
	// Dir is the descriptor of the folder that a relative path starts at. Without it, a path starts at the working
	// directory.
	Dir, Path int
	// Flags are the flags of a call that opens a file. A call without them changes the file.
	Flags int
}

// FileCalls describes the system calls that are reported if [Plan.Observe] is set. The keys are the numbers of the
// system calls.
var FileCalls = map[int32]FileCall{
	unix.SYS_OPENAT:    {Dir: 0, Path: 1, Flags: 2},
	unix.SYS_OPENAT2:   {Dir: 0, Path: 1, Flags: 2}, // a pointer to the flags
	unix.SYS_MKDIRAT:   {Dir: 0, Path: 1, Flags: -1},
	unix.SYS_UNLINKAT:  {Dir: 0, Path: 1, Flags: -1},
	unix.SYS_RENAMEAT2: {Dir: 2, Path: 3, Flags: -1},
	unix.SYS_SYMLINKAT: {Dir: 1, Path: 2, Flags: -1},
	unix.SYS_LINKAT:    {Dir: 2, Path: 3, Flags: -1},
}
