package cli

import (
	"os"

	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// soleID refuses a program that has the id of a different, installed program. Grants and
// memory belong to an id, and any manifest can claim any id.
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
	return no("use the installed agent: "+diag.ShellWord(f.Path)+"; or give this one another id",
		"%s has the id %s of another agent, which is installed at %s", m.Path, diag.Quote(m.Agent().ID), f.Path)
}
