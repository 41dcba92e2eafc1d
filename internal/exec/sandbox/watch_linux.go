//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"os"
	"os/exec"
	"syscall"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// watch starts the watcher of this process: when ambit ends, however that comes
// about, it ends whatever is left in ambit's cgroups. That the kernel ends each
// process with its parent is not enough: bubblewrap asks for it when it has
// already divided itself, and if its first half has been killed by then, the
// second lives on.
//
// Nothing is ever written to the file that it returns: that it is open says that
// ambit lives.
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
		err = cmd.Process.Release() // it ends after this process
	}
	if err != nil {
		alive.Close()
		return nil, err
	}
	return alive, nil
}
