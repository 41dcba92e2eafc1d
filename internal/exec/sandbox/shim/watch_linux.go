package shim

import (
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Watch identifies ambit's cgroups for the watcher.
type Watch struct {
	// Folders contain the cgroups; Prefix is the prefix of their names.
	Folders []string
	Prefix  string
}

// fdWatch contains the [Watch].
const fdWatch = 3

// watchTime bounds how long the kernel may take to remove killed processes.
const watchTime = 10 * time.Second

// watch waits for the end of its input, which is ambit's end, and then kills what ambit
// left. It ignores signals, because those to ambit's group reach the watcher too.
func watch() error {
	w, err := read[Watch](fdWatch, "watch")
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	io.Copy(io.Discard, os.Stdin)
	for deadline := time.Now().Add(watchTime); time.Now().Before(deadline) && !w.clear(); time.Sleep(time.Millisecond) {
	}
	syscall.Exit(0)
	return nil
}

// clear kills the processes in the cgroups, removes empty cgroups, and reports whether
// all were removed.
func (w *Watch) clear() bool {
	gone := true
	for _, folder := range w.Folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), w.Prefix) {
				continue
			}
			KillAll(folder + "/" + e.Name())
			if os.Remove(folder+"/"+e.Name()) != nil {
				gone = false
			}
		}
	}
	return gone
}

// KillAll kills the processes of a cgroup and returns their number. Processes that they
// started in the meantime may remain.
func KillAll(dir string) int {
	text, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil {
		return 0
	}
	pids := strings.Fields(string(text))
	if len(pids) > 0 && os.WriteFile(dir+"/cgroup.kill", []byte("1"), 0) == nil {
		return len(pids)
	}
	for _, p := range pids {
		if pid, err := strconv.Atoi(p); err == nil && pid > 0 {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return len(pids)
}
