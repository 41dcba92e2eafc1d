//go:build unix

package pack

import (
	"os/exec"
	"syscall"
)

// openFile contains the flags for opening a file of a tree. The file could have been replaced with a symbolic link or
// a pipe. With these flags, opening does not follow the link or block on the pipe.
const openFile = syscall.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// wholeGroup makes cmd start in its own process group. When the context of cmd is canceled, the whole group is killed.
func wholeGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
