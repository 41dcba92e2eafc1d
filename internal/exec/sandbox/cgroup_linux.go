//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// controllers bound a run.
var controllers = []string{"memory", "pids", "cpu"}

// hierarchy is the parent of the runs' cgroups: ambit's own cgroup, so that ambit's
// limits apply to the runs too. Each controller is in the version 2 tree, or in a
// version 1 tree of its own.
type hierarchy struct {
	// parents are folders by controller; several controllers may share one.
	parents map[string]string
	unified bool
}

// group is the cgroup of one run.
type group struct {
	hierarchy
	name string
}

var errNoController = errors.New("the controller is not available")

// findHierarchy finds this process's cgroups from mountinfo and /proc/self/cgroup.
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
				parent = filepath.Dir(parent) // the ambit that started this one moved it there
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

// ownPaths parses /proc/self/cgroup; the key of version 2 is "".
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

// groupDir returns the folder of a cgroup; root is the part of the tree that is mounted.
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

// mainGroup is the cgroup of ambit itself, once its parent has bounded children.
const mainGroup = "ambit.main"

// prepare enables the controllers for children. In version 2 a cgroup either contains
// processes or bounds its children, so ambit moves itself into a child.
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

// groupPrefix returns the prefix of a process's cgroups and folders. Boot, pid namespace,
// pid and start time identify the process, so that its end can be detected.
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
	// The name, in parentheses, may contain any character.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 20 {
		return "", errors.New("/proc does not show when the process started")
	}
	return f[19], nil
}

// sweepTime bounds how long a sweep waits for the killed processes of one cgroup.
const sweepTime = time.Second

// sweep removes the cgroups of ended ambit processes.
func (h hierarchy) sweep() {
	for _, parent := range h.folders() {
		for _, dir := range abandoned(parent) {
			for deadline := time.Now().Add(sweepTime); ; time.Sleep(time.Millisecond) {
				shim.KillAll(dir)
				if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) || time.Now().After(deadline) {
					break
				}
			}
		}
	}
}

// abandoned returns the entries of a folder that belong to ended processes of this boot
// and pid namespace.
func abandoned(folder string) []string {
	mine, err := groupPrefix(os.Getpid())
	if err != nil {
		return nil
	}
	left, _ := filepath.Glob(filepath.Join(folder, "ambit."+strings.Split(mine, ".")[1]+".*"))
	return slices.DeleteFunc(left, func(path string) bool {
		name := filepath.Base(path)
		pid, err := strconv.Atoi(strings.Split(name, ".")[2])
		if err != nil {
			return true // not ambit's
		}
		owner, err := groupPrefix(pid)
		if err != nil { // abandoned only if the process has ended, not if a file cannot be opened
			return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
		}
		return strings.HasPrefix(name, owner)
	})
}

// folders returns the parents without duplicates.
func (h hierarchy) folders() []string {
	var out []string
	for _, c := range controllers {
		if p := h.parents[c]; !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// bounds are the limits of a group.
type bounds struct {
	memory, pids int64
	cpu          float64
}

const cpuPeriod = 100_000 // microseconds

// create makes the cgroup of a run, with its limits.
func (h hierarchy) create(b bounds) (*group, error) {
	prefix, err := groupPrefix(os.Getpid())
	if err != nil {
		return nil, err
	}
	g := &group{h, prefix + strconv.FormatInt(runs.Add(1), 10)}
	for _, parent := range h.folders() {
		if err := os.Mkdir(filepath.Join(parent, g.name), 0o755); err != nil {
			g.remove()
			return nil, err
		}
	}
	if err := g.bound(b); err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

func (g *group) bound(b bounds) error {
	quota := strconv.FormatInt(max(int64(b.cpu*cpuPeriod), 1000), 10)
	memory, pids := strconv.FormatInt(b.memory, 10), strconv.FormatInt(b.pids, 10)
	if err := g.set("pids", "pids.max", pids); err != nil {
		return err
	}
	if g.isV2("memory") {
		for _, s := range [][2]string{{"memory.max", memory}, {"memory.oom.group", "1"}} {
			if err := g.set("memory", s[0], s[1]); err != nil {
				return err
			}
		}
		if err := g.limitSwap("memory.swap.max", "0"); err != nil {
			return err
		}
	} else {
		if err := g.set("memory", "memory.limit_in_bytes", memory); err != nil {
			return err
		}
		if err := g.limitSwap("memory.memsw.limit_in_bytes", memory); err != nil {
			return err
		}
	}
	if g.isV2("cpu") {
		return g.write("cpu", "cpu.max", quota+" "+strconv.Itoa(cpuPeriod))
	}
	if err := g.set("cpu", "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)); err != nil {
		return err
	}
	return g.set("cpu", "cpu.cfs_quota_us", quota)
}

// limitSwap prevents swapping. If the kernel does not account swap, the machine must
// not have any.
func (g *group) limitSwap(file, value string) error {
	err := g.set("memory", file, value)
	if errors.Is(err, os.ErrNotExist) {
		if swaps, readErr := os.ReadFile("/proc/swaps"); readErr == nil && strings.Count(string(swaps), "\n") <= 1 {
			return nil
		}
	}
	return err
}

// isV2 reports whether a controller is in the version 2 tree.
func (g *group) isV2(controller string) bool { return isV2Dir(g.dir(controller)) }

func isV2Dir(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return err == nil
}

func (g *group) dir(controller string) string { return filepath.Join(g.parents[controller], g.name) }

// write does not create the file: a new file would not be a limit.
func (g *group) write(controller, file, value string) error {
	f, err := os.OpenFile(filepath.Join(g.dir(controller), file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// set writes a value and reads it back.
func (g *group) set(controller, file, value string) error {
	if err := g.write(controller, file, value); err != nil {
		return err
	}
	want, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return err
	}
	if got := g.number(controller, file); got > want || got < 0 || want-got >= 4096 {
		return fmt.Errorf("%s is %d and not %d", file, got, want)
	}
	return nil
}

// number reads a file with one number; -1 if that fails.
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

// counter reads the line NAME N of a file; 0 if there is none.
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

// oom reports whether a process was killed because memory ran out.
func (g *group) oom() bool {
	file := "memory.oom_control"
	if g.isV2("memory") {
		file = "memory.events"
	}
	return g.counter("memory", file, "oom_kill") > 0
}

// peak returns the peak memory.
func (g *group) peak() int64 {
	file := "memory.max_usage_in_bytes"
	if g.isV2("memory") {
		file = "memory.peak"
	}
	return max(g.number("memory", file), 0)
}

// join returns the tasks files, one for each version 1 tree.
func (g *group) join() []string {
	var out []string
	for _, parent := range g.folders() {
		if !isV2Dir(filepath.Join(parent, g.name)) {
			out = append(out, filepath.Join(parent, g.name, "tasks"))
		}
	}
	return out
}

// open opens the version 2 folder, in which processes can be started; nil if there is
// none.
func (g *group) open() (*os.File, error) {
	for _, parent := range g.folders() {
		if dir := filepath.Join(parent, g.name); isV2Dir(dir) {
			return os.Open(dir)
		}
	}
	return nil, nil
}

// emptyWait bounds how long the kernel may take to remove killed processes.
const emptyWait = 10 * time.Second

// end kills the remaining processes and removes the group.
func (g *group) end() error {
	var err error
	for deadline := time.Now().Add(emptyWait); ; time.Sleep(time.Millisecond) {
		left := 0
		for _, parent := range g.folders() {
			left += shim.KillAll(filepath.Join(parent, g.name))
		}
		if left == 0 {
			if err = g.remove(); err == nil {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of the run did not end: %w", left, errors.Join(err, os.ErrDeadlineExceeded))
		}
	}
}

func (g *group) remove() error {
	var errs []error
	for _, parent := range g.folders() {
		if err := os.Remove(filepath.Join(parent, g.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// kill kills the current processes of the group.
func (g *group) kill() {
	for _, parent := range g.folders() {
		shim.KillAll(filepath.Join(parent, g.name))
	}
}
