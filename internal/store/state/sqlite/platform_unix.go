//go:build unix

package sqlite

import (
	"os"
	"syscall"
)

const errQuota = syscall.EDQUOT

// remove removes an owner's file while it is locked, so that its owner cannot lock it
// meanwhile.
func remove(f *os.File) error { return os.Remove(f.Name()) }
