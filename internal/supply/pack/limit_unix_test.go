//go:build unix

package pack

import "syscall"

var limitFiles = func() error {
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 32 << 10, Max: 32 << 10})
}
