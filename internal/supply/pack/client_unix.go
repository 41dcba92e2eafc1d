//go:build unix

package pack

import (
	"os/exec"
	"syscall"
)

// wholeGroup starts the command in a process group of its own, so that the whole group
// can be killed.
func wholeGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
