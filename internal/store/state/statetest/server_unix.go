//go:build unix

package statetest

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// unprivileged returns the attributes of a process that runs as a user other than root,
// which the server refuses, and gives that user the directory. The process has its own
// process group, so that an interrupt from the terminal reaches the test first.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	as := &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() != 0 {
		return as, nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(nobody.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(nobody.Gid)
	if err != nil {
		return nil, err
	}
	as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return as, os.Chown(dir, uid, gid)
}
