package toolserver

import "os/exec"

func lockThread() {}

func (p *process) prepare(_ *program, argv []string) (status func() int, err error) {
	p.cmd = exec.Command(argv[0], argv[1:]...)
	return nil, nil
}

func (p *process) kill() { p.cmd.Process.Kill() }

// containable reports whether programs can be contained on this machine.
func containable() bool { return false }
