package toolserver

import "os/exec"

func lockThread() {}

// prepare creates the command.
func (p *process) prepare(_ *program, argv []string) (status func() int, err error) {
	p.cmd = exec.Command(argv[0], argv[1:]...)
	return nil, nil
}

// kill ends the program at once.
func (p *process) kill() { p.cmd.Process.Kill() }

// containable reports whether this system can contain programs.
func containable() bool { return false }
