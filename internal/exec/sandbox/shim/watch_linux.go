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

// Watch is what the watcher is told: the names of ambit's cgroups.
type Watch struct {
	// Folders are where they are, and Prefix how they begin.
	Folders []string
	Prefix  string
}

// fdWatch holds the [Watch].
const fdWatch = 3

// watchTime bounds how long the kernel may take to bury what was killed.
const watchTime = 10 * time.Second

// watch waits for the end of its input, which is ambit's end, and then ends what
// ambit left. What asks ambit to end asks the watcher too; it goes last.
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

// clear kills what is in the cgroups, removes those that are empty, and reports
// whether all are gone.
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

// KillAll kills a cgroup's processes and tells how many there were. New ones may
// have come meanwhile, but never from what is not in the list.
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
