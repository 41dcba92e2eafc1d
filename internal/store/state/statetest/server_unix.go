//go:build unix

package statetest

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// unprivileged gives a folder to a user who is not root, as whom a process then
// runs: the server refuses root. It also runs apart from the terminal, so that
// an interrupt meets the test first.
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
