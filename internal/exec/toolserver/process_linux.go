package toolserver

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func lockThread() { runtime.LockOSThread() }

// bubblewrap is the path of bwrap if it can make a pid namespace here, found
// out by making one.
var bubblewrap = sync.OnceValue(func() string {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return ""
	}
	if exec.Command(path, append(world(), "--unshare-pid", "true")...).Run() != nil {
		return ""
	}
	return path
})

// world are the options for what a program sees before anything is hidden from it:
// everything, but no devices of root's. A disk read as it is has every file on it,
// covers or not.
func world() []string {
	if os.Geteuid() == 0 {
		return []string{"--bind", "/", "/", "--dev", "/dev", "--proc", "/proc"}
	}
	return []string{"--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"}
}

// runtimeDirs are where the sockets of people's sessions are. By the session bus
// a program would have others started outside, which see what is hidden from it,
// or ask the keyring.
//
// This is a cover and not a wall: a tool server works with the person's files and
// network, and whatever acts for the person on its word acts outside. Left are the
// system bus, the socket of a container engine, cron and at, what a shell or a
// desktop runs from the home folder at the next sign-in, sockets without a file
// (their names go with the network, which is shared) and, for whoever is in a group
// that may read disks, the disks.
func runtimeDirs() []string {
	dirs := []string{"/run/user"}
	// Elsewhere it counts if it is private, as it must be: some say /tmp.
	own := os.Getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(own); err == nil && filepath.IsAbs(own) && info.Mode().Perm()&0o077 == 0 {
		dirs = append(dirs, own)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		info, err := os.Stat(dir)
		return err != nil || !info.IsDir()
	})
}

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
	args := append(world(), "--unshare-pid", "--die-with-parent", "--new-session", "--json-status-fd", "3", "--cap-drop", "ALL")
	if os.Geteuid() == 0 {
		// With all of root's powers it could take the covers off again. These are
		// the ones that it needs to work on other people's files.
		args = append(args, "--cap-add", "CAP_DAC_OVERRIDE", "--cap-add", "CAP_FOWNER", "--cap-add", "CAP_CHOWN")
	}
	covers, err := covered(s)
	if err != nil {
		return nil, err
	}
	options, err := secretly(append(append(args, covers...), environment(s.env)...))
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		options.Close()
		return nil, err
	}
	p.contained = true
	p.cmd = exec.Command(wrap, append([]string{"--args", "4", "--"}, argv...)...)
	p.cmd.ExtraFiles = []*os.File{write, options}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() int {
		write.Close()
		options.Close()
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

// environment are the options that give the program its environment. It is not
// bubblewrap's own: a variable that makes a program load or run something would
// have it run outside.
func environment(env []string) []string {
	options := []string{"--clearenv"}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		options = append(options, "--setenv", name, value)
	}
	return options
}

// secretly is a file that bubblewrap reads options from: what stands among its
// arguments is there for everybody on the machine.
func secretly(options []string) (*os.File, error) {
	for _, o := range options {
		if strings.Contains(o, "\x00") {
			// It would end the option there, and the rest of it would be others.
			return nil, errors.New("a path or a variable of the server holds a NUL character")
		}
	}
	fd, err := unix.MemfdCreate("options", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "options")
	if _, err = f.WriteString(strings.Join(options, "\x00") + "\x00"); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// covered are the options that hide folders: those of sessions first, since one
// of the others may be within. What counts is where they really are: a link to a
// folder would hide nothing.
func covered(s *spec) ([]string, error) {
	var covers, seal, hidden []string
	sessions := runtimeDirs()
	for _, dir := range append(sessions, s.hide...) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, err
		}
		hidden = append(hidden, dir)
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
	return slices.Concat(covers, linked(hidden[:len(sessions)], hidden), seal), nil
}

// linked are the options that keep programs to be found whose folder in PATH is a
// link among the sockets of a session, as a version manager may have it. What the
// link leads to must have nothing to do with what is hidden.
func linked(sessions, hidden []string) []string {
	within := func(path, dir string) bool {
		rel, err := filepath.Rel(dir, path)
		return err == nil && filepath.IsLocal(rel)
	}
	var binds []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		to, err := filepath.EvalSymlinks(dir)
		if err != nil || !slices.ContainsFunc(sessions, func(s string) bool { return within(dir, s) }) {
			continue
		}
		if !slices.ContainsFunc(hidden, func(h string) bool { return within(to, h) || within(h, to) }) {
			binds = append(binds, "--ro-bind", to, filepath.Clean(dir))
		}
	}
	return binds
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

// containable reports whether programs are contained here.
func containable() bool { return bubblewrap() != "" }
