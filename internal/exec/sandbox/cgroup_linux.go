//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

var controllers = []string{"memory", "pids", "cpu"}

// hierarchy locates ambit's own cgroup, which is the parent of the cgroups of all runs. The limits of ambit's cgroup
// therefore apply to the runs too. Each controller is in the cgroup version 2 tree or in a version 1 tree.
type hierarchy struct {
	// parents maps a controller to its folder. Several controllers may share a folder.
	parents map[string]string
	// unified reports whether all controllers share one folder.
	unified bool
}

// group is the cgroup of one run.
type group struct {
	hierarchy
	name string
}

var errNoController = errors.New("the controller is not available")

// findHierarchy finds the cgroups of this process. Its arguments are the contents of /proc/self/mountinfo and
// /proc/self/cgroup.
func findHierarchy(mountinfo, own string) (hierarchy, error) {
	h := hierarchy{parents: map[string]string{}}
	paths := ownPaths(own)
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		f, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 5 || len(r) < 3 {
			continue
		}
		root, mount := f[3], f[4]
		switch r[0] {
		case "cgroup":
			for _, option := range strings.Split(r[2], ",") {
				if path, ok := paths[option]; ok && slices.Contains(controllers, option) {
					h.parents[option] = groupDir(mount, root, path)
				}
			}
		case "cgroup2":
			parent := groupDir(mount, root, paths[""])
			if paths[""] == "" {
				continue
			}
			if filepath.Base(parent) == mainGroup {
				parent = filepath.Dir(parent) // this process inherited the cgroup mainGroup from the ambit process that started it
			}
			for _, c := range controllers {
				if _, taken := h.parents[c]; !taken && hasController(parent, c) {
					h.parents[c] = parent
				}
			}
		}
	}
	for _, c := range controllers {
		if h.parents[c] == "" {
			return h, fmt.Errorf("cgroup %s: %w", c, errNoController)
		}
	}
	h.unified = h.parents["memory"] == h.parents["pids"] && h.parents["pids"] == h.parents["cpu"]
	return h, nil
}

// ownPaths parses /proc/self/cgroup and returns the cgroup path of each controller. The key "" holds the path in
// the version 2 tree.
func ownPaths(own string) map[string]string {
	paths := map[string]string{}
	for line := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 {
			for _, c := range strings.Split(f[1], ",") {
				paths[c] = f[2]
			}
		}
	}
	return paths
}

// groupDir returns the folder of a cgroup. The parameter path is the cgroup's path in the tree. The parameter root is
// the path of the cgroup that is mounted at the mount point.
func groupDir(mount, root, path string) string {
	if rest, ok := strings.CutPrefix(path, root); ok && root != "/" {
		path = rest
	}
	return filepath.Join(mount, path)
}

func hasController(folder, controller string) bool {
	text, err := os.ReadFile(filepath.Join(folder, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(text)), controller)
}

// mainGroup is the child cgroup into which hierarchy.prepare moves ambit.
const mainGroup = "ambit.main"

// prepare enables the controllers for child cgroups. In version 2, a cgroup that contains processes cannot limit its
// children, so ambit moves itself to a child cgroup if necessary.
func (h hierarchy) prepare() error {
	if !h.unified {
		return nil
	}
	parent := h.parents["memory"]
	control := filepath.Join(parent, "cgroup.subtree_control")
	enabled := func() bool {
		text, err := os.ReadFile(control)
		for _, c := range controllers {
			if err != nil || !slices.Contains(strings.Fields(string(text)), c) {
				return false
			}
		}
		return true
	}
	if enabled() {
		return nil
	}
	enable := []byte("+" + strings.Join(controllers, " +"))
	err := os.WriteFile(control, enable, 0)
	if errors.Is(err, unix.EBUSY) {
		main := filepath.Join(parent, mainGroup)
		if err := os.Mkdir(main, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := os.WriteFile(filepath.Join(main, "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
		err = os.WriteFile(control, enable, 0)
	}
	if err == nil && !enabled() {
		err = errNoController
	}
	return err
}

var runs atomic.Int64

// groupPrefix returns the prefix for the names of a process's cgroups and temporary folders. The prefix contains the
// boot id, the pid namespace, the pid and the start time of the process. Other ambit processes use these values to
// find out whether the process is still running.
func groupPrefix(pid int) (string, error) {
	boot, err := bootID()
	if err != nil {
		return "", err
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	started, err := startTime(pid)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("ambit.%s-%s.%d.%s.", boot, strings.Trim(namespace, "pid:[]"), pid, started), nil
}

func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field is a command name in parentheses, and the name may contain any character.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 20 {
		return "", errors.New("cannot read the start time of the process from /proc")
	}
	return f[19], nil
}

// sweepTime is how long sweep waits for the processes of one cgroup to exit.
const sweepTime = time.Second

// sweep cleans up after ambit processes that have exited. It kills the processes of their sandboxes and removes their
// cgroups.
func (h hierarchy) sweep() {
	for _, parent := range h.folders() {
		for _, dir := range abandonedEntries(parent) {
			for deadline := time.Now().Add(sweepTime); ; time.Sleep(time.Millisecond) {
				shim.KillAll(dir)
				if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) || time.Now().After(deadline) {
					break
				}
			}
		}
	}
}

// abandonedEntries returns the entries of a folder that were left behind by ambit processes that have exited. It
// considers only processes of the current boot and pid namespace.
func abandonedEntries(folder string) []string {
	mine, err := groupPrefix(os.Getpid())
	if err != nil {
		return nil
	}
	left, _ := filepath.Glob(filepath.Join(folder, "ambit."+strings.Split(mine, ".")[1]+".*"))
	return slices.DeleteFunc(left, func(path string) bool {
		name := filepath.Base(path)
		pid, err := strconv.Atoi(strings.Split(name, ".")[2])
		if err != nil {
			return true // the entry was not made by ambit
		}
		owner, err := groupPrefix(pid)
		if err != nil { // an entry is abandoned only if its process no longer exists
			return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
		}
		return strings.HasPrefix(name, owner)
	})
}

// folders returns the parent folders of all controllers without duplicates.
func (h hierarchy) folders() []string {
	return slices.Compact(slices.Sorted(maps.Values(h.parents)))
}

// bounds are the limits of a cgroup. Memory is in bytes and CPU is in cores.
type bounds struct {
	memory, pids int64
	cpu          float64
}

const cpuPeriod = 100_000 // microseconds

// create makes the cgroup of a run and sets its limits.
func (h hierarchy) create(b bounds) (*group, error) {
	prefix, err := groupPrefix(os.Getpid())
	if err != nil {
		return nil, err
	}
	g := &group{h, prefix + strconv.FormatInt(runs.Add(1), 10)}
	for _, dir := range g.dirs() {
		if err == nil {
			err = os.Mkdir(dir, 0o755)
		}
	}
	if err == nil {
		err = g.bound(b)
	}
	if err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

// dirs returns the folders of the cgroup, one in each tree.
func (g *group) dirs() []string {
	dirs := g.folders()
	for i, parent := range dirs {
		dirs[i] = filepath.Join(parent, g.name)
	}
	return dirs
}

func (g *group) bound(b bounds) error {
	if len(g.parents) == 0 {
		return nil
	}
	quota, period := strconv.FormatInt(max(int64(b.cpu*cpuPeriod), 1000), 10), strconv.Itoa(cpuPeriod)
	memory, pids := strconv.FormatInt(b.memory, 10), strconv.FormatInt(b.pids, 10)
	limits := [][3]string{{"pids", "pids.max", pids}}
	swap, most := "memory.memsw.limit_in_bytes", memory
	if g.isV2("memory") {
		limits = append(limits, [3]string{"memory", "memory.max", memory}, [3]string{"memory", "memory.oom.group", "1"})
		swap, most = "memory.swap.max", "0"
	} else {
		limits = append(limits, [3]string{"memory", "memory.limit_in_bytes", memory})
	}
	if !g.isV2("cpu") {
		limits = append(limits, [3]string{"cpu", "cpu.cfs_period_us", period}, [3]string{"cpu", "cpu.cfs_quota_us", quota})
	}
	for _, l := range limits {
		if err := g.set(l[0], l[1], l[2]); err != nil {
			return err
		}
	}
	if err := g.limitSwap(swap, most); err != nil || !g.isV2("cpu") {
		return err
	}
	return g.write("cpu", "cpu.max", quota+" "+period)
}

// limitSwap prevents the cgroup from using swap space. On a kernel without swap accounting, this is impossible, so
// limitSwap returns an error if the machine has swap space.
func (g *group) limitSwap(file, value string) error {
	err := g.set("memory", file, value)
	if errors.Is(err, os.ErrNotExist) {
		if swaps, readErr := os.ReadFile("/proc/swaps"); readErr == nil && strings.Count(string(swaps), "\n") <= 1 {
			return nil
		}
	}
	return err
}

func (g *group) isV2(controller string) bool { return isV2Dir(g.dir(controller)) }

func isV2Dir(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return err == nil
}

func (g *group) dir(controller string) string { return filepath.Join(g.parents[controller], g.name) }

// write writes a value to an existing control file. It never creates a file, because a new file would not be a
// control file and would limit nothing.
func (g *group) write(controller, file, value string) error {
	f, err := os.OpenFile(filepath.Join(g.dir(controller), file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// set writes a number to a control file and checks that the kernel accepted the number. The kernel may round the
// number down by less than a page.
func (g *group) set(controller, file, value string) error {
	if err := g.write(controller, file, value); err != nil {
		return err
	}
	want, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return err
	}
	if got := g.number(controller, file); got > want || got < 0 || want-got >= 4096 {
		return fmt.Errorf("the limit %d was written to %s, but the kernel set %d", want, file, got)
	}
	return nil
}

// number returns the number in a control file. It returns -1 if the file cannot be read or parsed.
func (g *group) number(controller, file string) int64 {
	text, err := os.ReadFile(filepath.Join(g.dir(controller), file))
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// counter returns the value of a named counter in a control file. Each line of the file has the form "NAME NUMBER".
// The result is 0 if the name does not occur.
func (g *group) counter(controller, file, name string) int64 {
	text, _ := os.ReadFile(filepath.Join(g.dir(controller), file))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// oom reports whether the kernel killed a process because memory ran out.
func (g *group) oom() bool {
	file := "memory.oom_control"
	if g.isV2("memory") {
		file = "memory.events"
	}
	return g.counter("memory", file, "oom_kill") > 0
}

// peak returns the peak memory use of the cgroup in bytes.
func (g *group) peak() int64 {
	file := "memory.max_usage_in_bytes"
	if g.isV2("memory") {
		file = "memory.peak"
	}
	return max(g.number("memory", file), 0)
}

// join moves the current thread into the cgroup in each version 1 tree. [group.leave] moves the thread back. A process
// that the thread starts inherits the cgroup. Moving the current thread is fast. To move another thread or process, the
// kernel waits for every processor.
func (g *group) join() error { return moveThread(g.dirs()) }

func (g *group) leave() error { return moveThread(g.folders()) }

func moveThread(dirs []string) (err error) {
	for _, dir := range dirs {
		if !isV2Dir(dir) {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0))
		}
	}
	if err != nil {
		err = &setupError{"cgroup", err.Error()}
	}
	return err
}

// open opens the folder of the cgroup in the version 2 tree. The folder's descriptor can be used to start a process
// in the cgroup. The result is nil if all controllers use version 1.
func (g *group) open() (*os.File, error) {
	for _, dir := range g.dirs() {
		if isV2Dir(dir) {
			return os.Open(dir)
		}
	}
	return nil, nil
}

// emptyWait is how long to wait for the kernel to remove killed processes.
const emptyWait = 10 * time.Second

// killAndRemove kills the remaining processes and removes the cgroup.
func (g *group) killAndRemove() error {
	var err error
	for deadline := time.Now().Add(emptyWait); ; time.Sleep(time.Millisecond) {
		left := g.kill()
		if left == 0 {
			if err = g.remove(); err == nil {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of the run did not exit after SIGKILL: %w",
				left, errors.Join(err, os.ErrDeadlineExceeded))
		}
	}
}

func (g *group) remove() error {
	var errs []error
	for _, dir := range g.dirs() {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (g *group) kill() (processes int) {
	for _, dir := range g.dirs() {
		processes += shim.KillAll(dir)
	}
	return processes
}

// watch starts the watcher process. When ambit exits, the watcher kills the processes that remain in ambit's cgroups.
// The parent death signal alone is not enough, because bubblewrap requests the signal only after a fork. If
// bubblewrap is killed before the request, its child survives.
//
// The result is the write end of a pipe. The watcher reads from the pipe, but ambit never writes to it. When ambit
// exits, the kernel closes the write end, and the watcher reads the end of file.
func (h hierarchy) watch() (alive *os.File, err error) {
	prefix, err := groupPrefix(os.Getpid())
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(shim.Watch{Folders: h.folders(), Prefix: prefix})
	if err != nil {
		return nil, err
	}
	config, err := memoryFile("watch", text)
	if err != nil {
		return nil, err
	}
	defer config.Close()
	theirs, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"ambit", shim.Watcher}, Env: []string{}, Dir: "/",
		Stdin: theirs, ExtraFiles: []*os.File{config}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err = cmd.Start(); err == nil {
		err = cmd.Process.Release() // the watcher outlives this process
	}
	if err != nil {
		alive.Close()
		return nil, err
	}
	return alive, nil
}

// TempDir makes a folder that other users cannot enter. The first call also removes the folders of ambit processes
// that have exited.
func TempDir() (string, error) {
	prefix, err := groupPrefix(os.Getpid())
	if err != nil {
		return "", err
	}
	sweepOnce()
	return os.MkdirTemp("", prefix+"*")
}

// bootID identifies the current boot of this machine. Names need the boot id, because machines can share a temporary
// folder, and the first pid namespace has the same number on every machine. Without the boot id, the folders of
// running processes on another machine would look abandoned.
var bootID = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	id := strings.ReplaceAll(strings.TrimSpace(string(text)), "-", "")
	if len(id) < bootLength {
		return "", errors.New("cannot read the id of this boot from /proc")
	}
	return id[:bootLength], nil
})

// bootLength is how many hexadecimal digits of the boot id appear in names. 12 digits hold 48 random bits.
const bootLength = 12

var sweepOnce = sync.OnceFunc(func() {
	for _, path := range abandonedEntries(os.TempDir()) {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() {
			continue
		}
		// Other users can create folders with matching names. Remove only the current user's folders.
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			os.RemoveAll(path)
		}
	}
})
