package toolserver

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func lockThread() { runtime.LockOSThread() }

// bubblewrap is the path of bwrap if it can make a pid namespace here, found
// out by making one.
var bubblewrap = sync.OnceValue(func() string {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return ""
	}
	probe := exec.Command(path, "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc", "--unshare-pid", "true")
	if probe.Run() != nil {
		return ""
	}
	return path
})

// prepare makes the command. With bubblewrap the program gets a pid namespace
// of its own, in which it can neither see nor signal anything outside, and
// does not see what it must not. The function it returns waits for the pid of
// the namespace's first process.
func (p *process) prepare(s *spec, argv []string) (status func() int, err error) {
	wrap := bubblewrap()
	if wrap == "" {
		p.cmd = exec.Command(argv[0], argv[1:]...)
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		return nil, nil
	}
	args := []string{
		"--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc",
		"--unshare-pid", "--die-with-parent", "--new-session", "--json-status-fd", "3", "--cap-drop", "ALL",
	}
	if os.Geteuid() == 0 {
		// With all of root's powers it could take the covers off again. These are
		// the ones that it needs to work on other people's files.
		args = append(args, "--cap-add", "CAP_DAC_OVERRIDE", "--cap-add", "CAP_FOWNER", "--cap-add", "CAP_CHOWN")
	}
	covers, err := covered(s)
	if err != nil {
		return nil, err
	}
	args = append(append(append(args, covers...), "--"), argv...)
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.contained = true
	p.cmd = exec.Command(wrap, args...)
	p.cmd.ExtraFiles = []*os.File{write}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() int {
		write.Close()
		var first struct {
			Child int `json:"child-pid"`
		}
		// It says so before it starts the program, or ends, which is the end of
		// the pipe too.
		err := json.NewDecoder(read).Decode(&first)
		go func() { // later words are of no interest, but must not block it
			defer read.Close()
			var rest [512]byte
			for err == nil {
				_, err = read.Read(rest[:])
			}
		}()
		return first.Child
	}, nil
}

// covered are the options that hide folders. What counts is where they really
// are: a link to a folder would hide nothing.
func covered(s *spec) ([]string, error) {
	var covers, seal []string
	for _, dir := range s.hide {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, err
		}
		covers = append(covers, "--tmpfs", dir)
		seal = append(seal, "--remount-ro", dir)
	}
	if s.show != "" {
		show, err := filepath.EvalSymlinks(s.show)
		if err != nil {
			return nil, err
		}
		covers = append(covers, "--ro-bind", show, show)
	}
	return append(covers, seal...), nil
}

// kill ends the program and everything it started, at once. The kernel ends a
// pid namespace with its first process; bubblewrap outside then sees that and
// ends by itself, which leaves nothing unreaped. If it does not, it is ended
// too.
func (p *process) kill() {
	if p.initPID > 0 {
		select {
		case <-p.exited:
			return // and its namespace with it
		default:
		}
		syscall.Kill(p.initPID, syscall.SIGKILL)
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		select {
		case <-p.exited:
			return
		case <-timer.C:
		}
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
}
