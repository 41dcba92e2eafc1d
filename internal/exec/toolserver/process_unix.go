//go:build unix && !linux

package toolserver

import (
	"os/exec"
	"syscall"
)

func lockThread() {}

// prepare makes the command, in a process group of its own.
func (p *process) prepare(_ *spec, argv []string) (status func() int, err error) {
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return nil, nil
}

// kill ends the program and everything in its group, at once.
func (p *process) kill() { syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
