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

// bubblewrap returns the path of bwrap. It returns "" if bwrap is not installed or cannot create a pid namespace.
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

// baseOptions returns the bubblewrap options that make the whole file system visible. If ambit is root, the options
// include only basic devices, because root could read hidden files from a raw disk device.
func baseOptions() []string {
	if os.Geteuid() == 0 {
		return []string{"--bind", "/", "/", "--dev", "/dev", "--proc", "/proc"}
	}
	return []string{"--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"}
}

// runtimeDirs returns the folders that contain the sockets of user sessions. These folders are hidden from tool
// servers. Over the session bus, a program could query the keyring. It could also start processes outside its
// namespace, and these processes could see the hidden files.
//
// Hiding these folders does not replace a sandbox. A tool server still has access to the user's files and to the
// network. It can still make processes outside its namespace act for it, through:
//   - the system bus and the socket of a container engine
//   - cron and at
//   - files in the home folder that a shell or desktop runs at the next sign-in
//   - abstract sockets, which belong to the shared network namespace
//   - the disks, if the user is in a group that can read them
func runtimeDirs() []string {
	dirs := []string{"/run/user"}
	// Hide XDG_RUNTIME_DIR only if the folder is private, as the XDG specification requires. Some systems set the
	// variable to /tmp.
	own := os.Getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(own); err == nil && filepath.IsAbs(own) && info.Mode().Perm()&0o077 == 0 {
		dirs = append(dirs, own)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		info, err := os.Stat(dir)
		return err != nil || !info.IsDir()
	})
}

// prepare creates the command. If bubblewrap is available, the program gets its own pid namespace. The program then
// cannot see or signal other processes, and cannot see the hidden folders. The returned function waits for the pid
// of the first process in the namespace. It is nil if there is no namespace.
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
		// Keep only the capabilities that let root read and change the files of other users. With further
		// capabilities, root could unmount the file systems that hide folders.
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
		// Bubblewrap writes the status before it starts the program. If bubblewrap exits early, the pipe is closed,
		// and Decode returns an error.
		err := json.NewDecoder(read).Decode(&first)
		go func() { // discard the rest of the status, because a full pipe would block bubblewrap
			defer read.Close()
			var rest [512]byte
			for err == nil {
				_, err = read.Read(rest[:])
			}
		}()
		return first.Child
	}, nil
}

// environment returns the bubblewrap options that set the program's environment. Bubblewrap itself must run without
// these variables. Some of them make a program load code, and bubblewrap would run this code outside the namespace.
func environment(env []string) []string {
	options := []string{"--clearenv"}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		options = append(options, "--setenv", name, value)
	}
	return options
}

// optionsFile returns an in-memory file that contains bubblewrap's options. All users of the machine can read the
// arguments of a process, so the options must not be passed as arguments.
func optionsFile(options []string) (*os.File, error) {
	for _, o := range options {
		if strings.Contains(o, "\x00") {
			// NUL separates the options in the file. Bubblewrap would read the text after a NUL as another option.
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

// hideOptions returns the options that hide folders. Session folders come first, because they may contain the other
// folders. The options contain the targets of links, because hiding a link does not hide its target.
func hideOptions(s *program) ([]string, error) {
	var covers, seal, hidden []string
	sessions := runtimeDirs()
	for _, dir := range append(sessions, s.hidden...) {
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
	if s.visible != "" {
		show, err := filepath.EvalSymlinks(s.visible)
		if err != nil {
			return nil, err
		}
		covers = append(covers, "--ro-bind", show, show)
	}
	return slices.Concat(covers, linkedPrograms(hidden[:len(sessions)], hidden), seal), nil
}

// linkedPrograms returns the options that keep folders of PATH usable if they are inside session folders. Some
// version managers create such folders as links. A folder stays hidden if its target overlaps a hidden folder.
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

// kill kills the program and its child processes. If the first process of the pid namespace is killed, the kernel
// kills all processes in the namespace, and bubblewrap exits. If bubblewrap does not exit within a second, kill also
// kills bubblewrap.
func (p *process) kill() {
	if p.initPID > 0 {
		select {
		case <-p.exited:
			return // bubblewrap has already exited, so the namespace has ended
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

// containable reports whether programs can be contained on this machine.
func containable() bool { return bubblewrap() != "" }
