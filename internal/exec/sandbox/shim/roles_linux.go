package shim

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	if len(os.Args) != 2 {
		return
	}
	switch os.Args[1] {
	case Watcher:
		fail(watch())
	case Holder:
		hold()
	case Shim:
		// The restrictions apply only to the current thread. The program inherits them only if this thread executes
		// it.
		runtime.LockOSThread()
		fail(restrict())
	case Guest:
		fail(guest())
	}
}

type failure struct {
	what string
	err  error
}

func (f *failure) Error() string { return f.what + ": " + f.err.Error() }

func mechanismError(what string, err error) error { return &failure{what, err} }

// fail reports an error to ambit and exits.
func fail(err error) {
	m := Message{Kind: Failed, What: "sandbox", Text: err.Error()}
	if f, ok := errors.AsType[*failure](err); ok {
		m.What, m.Text = f.what, f.err.Error()
	}
	send(m, nil)
	syscall.Exit(125)
}

// send sends a message to ambit. If the message carries no descriptors, the caller may ignore the error: a closed
// socket means that ambit has exited.
func send(m Message, rights []byte) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = unix.Sendmsg(FDControl, text, rights, nil, unix.MSG_NOSIGNAL)
	}
	return err
}

func read[T any](fd uintptr, name string) (*T, error) {
	var v T
	text, err := io.ReadAll(io.NewSectionReader(os.NewFile(fd, name), 0, MaxOrder))
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		return nil, mechanismError(name, err)
	}
	return &v, nil
}

// Watch identifies ambit's cgroups for the watcher.
type Watch struct {
	// Folders lists the folders that contain the cgroups. Prefix is the prefix of the names of the cgroups.
	Folders []string
	Prefix  string
}

// fdWatch is the descriptor of the memory file that contains the [Watch].
const fdWatch = 3

// watchTime is how long the watcher waits for the kernel to remove killed processes.
const watchTime = 10 * time.Second

// watch waits until its stdin is closed, which happens when ambit exits. Then it kills the remaining processes in
// ambit's cgroups. It ignores termination signals, because a signal to ambit's processes may also reach the watcher.
func watch() error {
	w, err := read[Watch](fdWatch, "watch")
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	io.Copy(io.Discard, os.Stdin)
	for deadline := time.Now().Add(watchTime); time.Now().Before(deadline) && !w.purge(); time.Sleep(time.Millisecond) {
	}
	syscall.Exit(0)
	return nil
}

// purge kills the processes in the cgroups and removes empty cgroups. It reports whether all cgroups were removed.
func (w *Watch) purge() bool {
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

// KillAll kills the processes in a cgroup and returns how many it found. A process that starts during the call may
// survive. In version 1, a thread of ambit is in the cgroup while it starts a sandbox, so KillAll skips the calling
// process.
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
		if pid, err := strconv.Atoi(p); err == nil && pid > 0 && pid != os.Getpid() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return len(pids)
}

// hold blocks forever. The process that runs it is ended with SIGKILL.
func hold() {
	for {
		unix.Pause()
	}
}
