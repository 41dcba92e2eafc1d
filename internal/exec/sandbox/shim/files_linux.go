package shim

import (
	"maps"

	"golang.org/x/sys/unix"
)

// FileCall describes the arguments of a system call that opens, changes or inspects a file. The fields Dir, Path and
// Flags are positions in the list of arguments, or -1 if there is no such argument.
type FileCall struct {
	// Dir is the position of the descriptor of a folder. A relative path starts at this folder. If Dir is -1, a relative
	// path starts at the working directory.
	Dir, Path int
	// Flags is the position of the flags of a call that opens a file. If Flags is -1, the call changes the file, unless
	// Looks is set.
	Flags int
	// Looks is set for a call that only inspects a file, such as stat. Such calls matter, because many programs first
	// check whether a file or folder exists, and stop if it does not.
	Looks bool
	// Empty is the position of flags that may contain AT_EMPTY_PATH; 0 means none. A call with this flag refers to an
	// open file instead of a path, so it is not reported.
	Empty int
	// Moves is set for a call that renames a file. Its first path is the old name, and Path is the new name. Links is
	// set for a call that gives a file a second name.
	Moves, Links bool
}

// Source describes the old name in a call that renames a file.
func (c FileCall) Source() FileCall {
	if c.Dir < 0 {
		return FileCall{Dir: -1, Path: 0, Flags: -1}
	}
	return FileCall{Dir: 0, Path: 1, Flags: -1}
}

// FileCalls describes the system calls that are reported if [Plan.Observe] is set. The keys are the numbers of the
// system calls. The map must be complete before any init function runs, because the roles start in an init function.
var FileCalls = withOlder(map[int32]FileCall{
	unix.SYS_OPENAT:     {Dir: 0, Path: 1, Flags: 2},
	unix.SYS_OPENAT2:    {Dir: 0, Path: 1, Flags: 2}, // the third argument points to the flags
	unix.SYS_MKDIRAT:    {Dir: 0, Path: 1, Flags: -1},
	unix.SYS_UNLINKAT:   {Dir: 0, Path: 1, Flags: -1},
	unix.SYS_RENAMEAT2:  {Dir: 2, Path: 3, Flags: -1, Moves: true},
	unix.SYS_SYMLINKAT:  {Dir: 1, Path: 2, Flags: -1},
	unix.SYS_LINKAT:     {Dir: 2, Path: 3, Flags: -1, Links: true},
	unix.SYS_TRUNCATE:   {Dir: -1, Path: 0, Flags: -1},
	unix.SYS_FCHMODAT:   {Dir: 0, Path: 1, Flags: -1},
	unix.SYS_UTIMENSAT:  {Dir: 0, Path: 1, Flags: -1},
	unix.SYS_CHDIR:      {Dir: -1, Path: 0, Flags: -1, Looks: true},
	unix.SYS_FACCESSAT:  {Dir: 0, Path: 1, Flags: -1, Looks: true},
	unix.SYS_FACCESSAT2: {Dir: 0, Path: 1, Flags: -1, Looks: true},
	unix.SYS_READLINKAT: {Dir: 0, Path: 1, Flags: -1, Looks: true},
	unix.SYS_STATX:      {Dir: 0, Path: 1, Flags: -1, Looks: true, Empty: 2},
})

func withOlder(calls map[int32]FileCall) map[int32]FileCall {
	maps.Copy(calls, olderFileCalls())
	return calls
}
