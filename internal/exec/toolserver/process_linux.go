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

// bubblewrap is the path of bwrap, or empty if bwrap cannot create a pid namespace here.
var bubblewrap = sync.OnceValue(func() string {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return ""
	}
	if exec.Command(path, append(baseOptions(), "--unshare-pid", "true")...).Run() != nil {
		return ""
	}
	return path
})

// baseOptions make the whole file system visible, but give root only the basic devices: a raw disk device
// would expose hidden files.
func baseOptions() []string {
	if os.Geteuid() == 0 {
		return []string{"--bind", "/", "/", "--dev", "/dev", "--proc", "/proc"}
	}
	return []string{"--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"}
}

// runtimeDirs are the folders with the sockets of user sessions. Over the session bus a program could start
// processes outside, which see hidden files, or query the keyring.
//
// Hiding these folders is not a sandbox: a tool server works with the user's files and network, and other
// processes may act for it outside. Still reachable are the system bus, the socket of a container engine,
// cron and at, files in the home folder that a shell or desktop runs at the next sign-in, abstract sockets
// (they belong to the shared network namespace) and, for members of a disk group, the disks.
func runtimeDirs() []string {
	dirs := []string{"/run/user"}
	// Another folder counts only if it is private, as the specification requires: some set /tmp.
	own := os.Getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(own); err == nil && filepath.IsAbs(own) && info.Mode().Perm()&0o077 == 0 {
		dirs = append(dirs, own)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		info, err := os.Stat(dir)
		return err != nil || !info.IsDir()
	})
}

// prepare creates the command. With bubblewrap the program gets its own pid namespace, in which it can
// neither see nor signal outside processes and does not see hidden folders. The returned function waits for
// the pid of the namespace's first process.
func (p *process) prepare(s *program, argv []string) (status func() int, err error) {
	wrap := bubblewrap()
	if wrap == "" {
		p.cmd = exec.Command(argv[0], argv[1:]...)
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		return nil, nil
	}
	args := append(baseOptions(), "--unshare-pid", "--die-with-parent", "--new-session",
		"--json-status-fd", "3", "--cap-drop", "ALL")
	if os.Geteuid() == 0 {
		// With all capabilities, root could unmount the covers. These are enough to work on other users'
		// files.
		args = append(args, "--cap-add", "CAP_DAC_OVERRIDE", "--cap-add", "CAP_FOWNER", "--cap-add", "CAP_CHOWN")
	}
	covers, err := hideOptions(s)
	if err != nil {
		return nil, err
	}
	options, err := optionsFile(append(append(args, covers...), environment(s.env)...))
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
		// bubblewrap writes the status before it starts the program. If it ends, so does the pipe.
		err := json.NewDecoder(read).Decode(&first)
		go func() { // discard later messages, so that bubblewrap never blocks
			defer read.Close()
			var rest [512]byte
			for err == nil {
				_, err = read.Read(rest[:])
			}
		}()
		return first.Child
	}, nil
}

// environment returns the options that set the program's environment. bubblewrap itself gets none:
// variables that load code would take effect outside.
func environment(env []string) []string {
	options := []string{"--clearenv"}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		options = append(options, "--setenv", name, value)
	}
	return options
}

// optionsFile returns a file with bubblewrap's options. Arguments would be visible to every user of the
// machine.
func optionsFile(options []string) (*os.File, error) {
	for _, o := range options {
		if strings.Contains(o, "\x00") {
			// A NUL separates options, so the rest would become other options.
			return nil, errors.New("a path or variable of the server contains a NUL character")
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

// hideOptions returns the options that hide folders, session folders first, because they may contain the
// others. It resolves links: hiding a link would not hide its target.
func hideOptions(s *program) ([]string, error) {
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
	return slices.Concat(covers, linkedPrograms(hidden[:len(sessions)], hidden), seal), nil
}

// linkedPrograms returns the options that keep PATH entries working that are links in a session folder, as
// some version managers create. The target of such a link must not overlap a hidden folder.
func linkedPrograms(sessions, hidden []string) []string {
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

// kill ends the program and its descendants at once. The kernel ends a pid namespace with its first
// process. bubblewrap then exits by itself, which leaves no zombie; if it does not exit, it is killed too.
func (p *process) kill() {
	if p.initPID > 0 {
		select {
		case <-p.exited:
			return // with its namespace
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

// containable reports whether this system can contain programs.
func containable() bool { return bubblewrap() != "" }
