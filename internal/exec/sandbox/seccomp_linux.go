//go:build amd64 || arm64

package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func seccompKnows(action *uint32) error {
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(action))); errno != 0 {
		return errno
	}
	return nil
}
