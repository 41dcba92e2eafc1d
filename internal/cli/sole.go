package cli

import (
	"os"

	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// soleID refuses a program from elsewhere that has the id of one that is
// installed. An id is what grants are scoped to and what memory belongs to, and
// any manifest can say that it has it.
func soleID(m *manifest.Manifest) error {
	if !dispatch.TakesIntents(m.Agent()) {
		return nil
	}
	h, err := home.Find()
	if err != nil {
		return err
	}
	found, err := daemon.Find(programFolders(h)...)
	if err != nil {
		return err
	}
	f := daemon.Pick(found, func(f *daemon.Found) bool {
		return f.Manifest != nil && f.Manifest.Agent() != nil && f.Manifest.Agent().ID == m.Agent().ID
	})
	if f == nil {
		return nil
	}
	mine, err := os.Stat(m.Path)
	if err != nil {
		return err
	}
	if theirs, err := os.Stat(f.Path); err == nil && os.SameFile(mine, theirs) {
		return nil
	}
	return no("use the one that is installed: "+diag.ShellWord(f.Path)+"; or give this one an id of its own",
		"%s is not the agent %s: another one of that id is installed at %s", m.Path, diag.Quote(m.Agent().ID), f.Path)
}
