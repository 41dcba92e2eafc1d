package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/importer"
)

func newImport(t *terminal) *cobra.Command {
	var output string
	var force bool
	what := exactly(1, "one file, folder or repository")
	cmd := verb("import SRC", what, func(ctx context.Context, args []string) error {
		src := args[0]
		if repository.MatchString(src) {
			folder, err := t.clone(ctx, src, output)
			if err != nil {
				return err
			}
			src = folder
		}
		return t.importAgent(src, output, force)
	})
	outputFlags(cmd, &output, &force, "write to `file` instead of standard output")
	return cmd
}

func (t *terminal) importAgent(src, output string, force bool) error {
	if src == "-" || strings.Contains(src, "://") {
		return usage("save the source to a file first; the address of a git repository must end in .git",
			"ambit import takes a file, a folder or a git repository")
	}
	if output == "-" {
		output = ""
	}
	r, err := importer.Import(src, filepath.Dir(output))
	if e, ok := errors.AsType[*importer.Error](err); ok {
		return no(e.Hint, "%s cannot be imported: %w", src, err)
	}
	if err != nil {
		return unreadable(src, err)
	}
	if output != "" {
		if err := writeNew(output, r.Text, force); err != nil {
			return err
		}
		if _, err := r.Unpack(filepath.Dir(output)); err != nil {
			hint := ""
			if e, ok := errors.AsType[*importer.Error](err); ok {
				hint = e.Hint
			}
			return no(hint, "the manifest was written, but its files were not: %w", err)
		}
	}
	next := "ambit " + r.Next + " " + diag.ShellWord(cmp.Or(output, "FILE"))
	return t.show(map[string]any{
		"source": r.Source, "dialect": r.Dialect, "name": r.Name, "manifest": json.RawMessage(r.Text),
		"notes": notNil(r.Notes), "next": next, "output": output,
	}, func() {
		if output == "" {
			t.printf("%s", escapeJSON(string(r.Text)))
		}
		for _, n := range r.Notes {
			s := yellow
			if n.Kind == importer.Guessed {
				s = cyan
			}
			t.notef("%s %s: %s", t.paint(s, n.Kind), diag.Printable(n.What), diag.Printable(n.Detail))
		}
		t.notef("imported %s as a %s manifest; check %s", diag.Printable(r.Source), r.Dialect, count(len(r.Notes), "thing"))
		t.notef("next: %s", diag.Printable(next))
	})
}

// cloneTime is the maximum time for cloning a repository.
const cloneTime = 5 * time.Minute

var repository = regexp.MustCompile(`^(https://|ssh://|git@|file://).*\.git$`)

// cloneTo returns the folder for a clone. The folder is next to the manifest and has the name of the repository.
func cloneTo(src, output string) string {
	return filepath.Join(filepath.Dir(output), strings.TrimSuffix(path.Base(src), ".git"))
}

// clone clones a git repository into a folder next to the manifest and returns the folder. Nothing from the
// repository runs: no hooks, no filters and no submodules.
func (t *terminal) clone(ctx context.Context, src, output string) (string, error) {
	if output == "" || output == "-" {
		return "", usage("add -o FILE",
			"the repository is cloned into the manifest's folder, so the manifest must be written to a file")
	}
	to := cloneTo(src, output)
	if _, err := os.Lstat(to); err == nil {
		return "", no("import that folder instead, or move it away", "%s already exists", to)
	}
	ctx, cancel := context.WithTimeout(ctx, cloneTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git",
		"-c", "core.hooksPath="+os.DevNull, "-c", "core.symlinks=false", "-c", "protocol.ext.allow=never",
		"-c", "core.fsmonitor=false", "clone", "--quiet", "--depth=1", "--no-recurse-submodules", "--", src, to)
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_LFS_SKIP_SMUDGE=1")
	if message, err := cmd.CombinedOutput(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", missing("install git, or clone the repository elsewhere and import the folder", "%w", err)
		}
		return "", no("check the address, and check that git can reach it",
			"the repository cannot be cloned: %s", diag.Printable(strings.TrimSpace(string(message))))
	}
	return to, nil
}
