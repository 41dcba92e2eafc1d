//go:build unix && !linux

package toolserver

import (
	"os/exec"
	"syscall"
)

func lockThread() {}

// prepare creates the command for a program that runs in its own process group.
func (p *process) prepare(_ *program, argv []string) (status func() int, err error) {
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return nil, nil
}

func (p *process) kill() { syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// containable reports whether programs can be contained on this machine.
func containable() bool { return false }
