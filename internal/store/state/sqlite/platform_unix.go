//go:build unix

package sqlite

import (
	"os"
	"syscall"
)

const errQuota = syscall.EDQUOT

// remove removes the file of a dead owner. The caller has locked the file, so no new owner can lock the file.
func remove(f *os.File) error { return os.Remove(f.Name()) }
