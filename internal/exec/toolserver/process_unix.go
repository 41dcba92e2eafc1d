//go:build unix && !linux

package toolserver

import (
	"os/exec"
	"syscall"
)

func lockThread() {}

// prepare creates the command, in its own process group.
func (p *process) prepare(_ *program, argv []string) (status func() int, err error) {
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return nil, nil
}

// kill ends the program and its process group at once.
func (p *process) kill() { syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// containable reports whether this system can contain programs.
func containable() bool { return false }
