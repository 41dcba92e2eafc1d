//go:build unix

package pack

import (
	"os/exec"
	"syscall"
)

// wholeGroup makes the command the head of a process group, which ends as a
// whole.
func wholeGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
