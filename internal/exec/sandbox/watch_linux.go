//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"os"
	"os/exec"
	"syscall"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// watch starts the watcher of this process. When ambit ends, the watcher kills what is
// left in ambit's cgroups. The parent death signal is not enough: bubblewrap requests it
// after it has forked, so its child survives if bubblewrap was killed before that.
//
// Nothing is written to the returned file: it is open as long as ambit runs.
func (h hierarchy) watch() (alive *os.File, err error) {
	prefix, err := groupPrefix(os.Getpid())
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(shim.Watch{Folders: h.folders(), Prefix: prefix})
	if err != nil {
		return nil, err
	}
	told, err := memory("watch", text)
	if err != nil {
		return nil, err
	}
	defer told.Close()
	theirs, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"ambit", shim.Watcher}, Env: []string{}, Dir: "/",
		Stdin: theirs, ExtraFiles: []*os.File{told}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
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
