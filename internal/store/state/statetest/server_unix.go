//go:build unix

package statetest

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// unprivileged returns the process attributes for the server. The server refuses to run as root. If this process is
// root, unprivileged selects the user "nobody" and makes that user the owner of dir. The server gets a process group of
// its own. An interrupt from the terminal then does not stop the server before the test ends.
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
