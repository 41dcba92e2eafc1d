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

// controllers are what bounds a run.
var controllers = []string{"memory", "pids", "cpu"}

// hierarchy is where runs get their cgroups: below the one that ambit itself is
// in, so that whatever bounds ambit bounds them too. Each controller is in the
// second version's tree, or in a tree of its own.
type hierarchy struct {
	// parents by controller; equal ones are one folder.
	parents map[string]string
	unified bool
}

// group is the cgroup of one run.
type group struct {
	hierarchy
	name string
}

var errNoController = errors.New("there is no such controller to write to")

// findHierarchy reads where the cgroups are mounted and which are our own.
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
					h.parents[option] = below(mount, root, path)
				}
			}
		case "cgroup2":
			parent := below(mount, root, paths[""])
			if paths[""] == "" {
				continue
			}
			if filepath.Base(parent) == mainGroup {
				parent = filepath.Dir(parent) // an ambit that started this one moved there
			}
			for _, c := range controllers {
				if _, taken := h.parents[c]; !taken && offers(parent, c) {
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

// ownPaths reads /proc/self/cgroup; the second version's is under "".
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

// below is the folder of a cgroup where only a part of the tree is mounted.
func below(mount, root, path string) string {
	if rest, ok := strings.CutPrefix(path, root); ok && root != "/" {
		path = rest
	}
	return filepath.Join(mount, path)
}

func offers(folder, controller string) bool {
	text, err := os.ReadFile(filepath.Join(folder, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(text)), controller)
}

// mainGroup is where ambit itself is, once its cgroup bears others.
const mainGroup = "ambit.main"

// prepare makes the parents able to bear bounded children. In the second
// version a cgroup either holds processes or bounds its children, so ambit moves
// into one beside them.
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

// groupPrefix names the cgroups and folders of a process: boot, pid namespace, pid
// and start time say whether it still lives.
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
	// The name, in parentheses, may hold anything.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 20 {
		return "", errors.New("the kernel does not tell when a process started")
	}
	return f[19], nil
}

// sweepTime bounds how long a sweep waits for the dead of one cgroup to be buried.
const sweepTime = time.Second

// sweep removes what killed processes left. Their programs ended with them.
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

// abandoned are the entries of a folder that are named by processes of this boot and
// pid namespace, all of which have ended.
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
			return true // of somebody else
		}
		owner, err := groupPrefix(pid)
		if err != nil { // for one that has ended only, and not for want of a file descriptor
			return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
		}
		return strings.HasPrefix(name, owner)
	})
}

// folders are the different parents.
func (h hierarchy) folders() []string {
	var out []string
	for _, c := range controllers {
		if p := h.parents[c]; !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// bounds are what a group allows.
type bounds struct {
	memory, pids int64
	cpu          float64
}

const cpuPeriod = 100_000 // microseconds

// create makes the cgroup of a run, bounded before anything is in it.
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
	if g.second("memory") {
		for _, s := range [][2]string{{"memory.max", memory}, {"memory.oom.group", "1"}} {
			if err := g.set("memory", s[0], s[1]); err != nil {
				return err
			}
		}
		if err := g.swapless("memory.swap.max", "0"); err != nil {
			return err
		}
	} else {
		if err := g.set("memory", "memory.limit_in_bytes", memory); err != nil {
			return err
		}
		if err := g.swapless("memory.memsw.limit_in_bytes", memory); err != nil {
			return err
		}
	}
	if g.second("cpu") {
		return g.write("cpu", "cpu.max", quota+" "+strconv.Itoa(cpuPeriod))
	}
	if err := g.set("cpu", "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)); err != nil {
		return err
	}
	return g.set("cpu", "cpu.cfs_quota_us", quota)
}

// swapless keeps the run's memory from the swap. Where the kernel cannot tell,
// there must be none.
func (g *group) swapless(file, value string) error {
	err := g.set("memory", file, value)
	if errors.Is(err, os.ErrNotExist) {
		if swaps, readErr := os.ReadFile("/proc/swaps"); readErr == nil && strings.Count(string(swaps), "\n") <= 1 {
			return nil
		}
	}
	return err
}

// second reports whether a controller is of the second version.
func (g *group) second(controller string) bool { return isSecond(g.dir(controller)) }

func isSecond(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return err == nil
}

func (g *group) dir(controller string) string { return filepath.Join(g.parents[controller], g.name) }

// write does not create: a file that is not there is no bound.
func (g *group) write(controller, file, value string) error {
	f, err := os.OpenFile(filepath.Join(g.dir(controller), file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// set writes a value and looks whether it is what holds.
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

// number reads a file that holds one; -1 if it does not.
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

// counter reads one line NAME N of a file; 0 if it is not there.
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

// oom reports whether something was killed for want of memory.
func (g *group) oom() bool {
	file := "memory.oom_control"
	if g.second("memory") {
		file = "memory.events"
	}
	return g.counter("memory", file, "oom_kill") > 0
}

// peak is the most memory that was in use.
func (g *group) peak() int64 {
	file := "memory.max_usage_in_bytes"
	if g.second("memory") {
		file = "memory.peak"
	}
	return max(g.number("memory", file), 0)
}

// join are the files that a thread writes itself to: one for each tree of the
// first version.
func (g *group) join() []string {
	var out []string
	for _, parent := range g.folders() {
		if !isSecond(filepath.Join(parent, g.name)) {
			out = append(out, filepath.Join(parent, g.name, "tasks"))
		}
	}
	return out
}

// open opens the folder of the second version, in which processes can be
// started; nil if there is none.
func (g *group) open() (*os.File, error) {
	for _, parent := range g.folders() {
		if dir := filepath.Join(parent, g.name); isSecond(dir) {
			return os.Open(dir)
		}
	}
	return nil, nil
}

// emptyWait bounds how long the kernel may take to bury what was killed.
const emptyWait = 10 * time.Second

// end kills what is left and removes the group.
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
			return fmt.Errorf("%d processes of the run do not end: %w", left, errors.Join(err, os.ErrDeadlineExceeded))
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

// kill ends everything in the group, once.
func (g *group) kill() {
	for _, parent := range g.folders() {
		shim.KillAll(filepath.Join(parent, g.name))
	}
}
