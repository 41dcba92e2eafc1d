package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
)

// logServersTo returns the log function for the output of tool servers: to stderr, or to a
// file so that the daemon's own lines stay readable.
func (t *terminal) logServersTo(name string) (func(agent, alias, line string), func(), error) {
	if name == "" {
		return func(agent, alias, line string) { t.serverLog(agent+"/"+alias, line) }, func() {}, nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, usage("name a file that can be written", "cannot open the log of the tool servers: %w", err)
	}
	write := func(agent, alias, line string) {
		// Ignoring the error keeps the daemon alive on a full disk.
		_, _ = fmt.Fprintf(f, "[%s] %s\n", diag.Printable(agent+"/"+alias), diag.Printable(line))
	}
	return write, func() { _ = f.Close() }, nil
}

// installLine returns the command that installs a served agent into a client; empty if its
// file is gone.
func installLine(folders []string, name string) string {
	all, err := daemon.Find(folders...)
	if err != nil {
		return ""
	}
	for _, f := range all {
		if f.Name == name && f.Problem == nil {
			return myself() + " install " + diag.ShellWord(nearest(f.Path)) + " --client claude-code"
		}
	}
	return ""
}

// nearest returns a path relative to the current folder if it is inside it.
func nearest(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(here, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// myself returns the command with which a person runs this program from here.
func myself() string {
	if _, err := exec.LookPath("ambit"); err == nil || !strings.ContainsRune(os.Args[0], filepath.Separator) {
		return "ambit"
	}
	return diag.ShellWord(nearest(os.Args[0]))
}
