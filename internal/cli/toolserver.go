package cli

import (
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/bashserver"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/store/home"
)

func newToolServer(t *terminal) *cobra.Command {
	var work string
	cmd := &cobra.Command{
		Use:     "tool-server NAME",
		GroupID: groupRun,
		Short:   "Be one of ambit's own MCP tool servers",
		Long: "Be one of ambit's own MCP tool servers, on standard input and output. There is one, bash: its tool execute\n" +
			"runs a shell command in a sandbox without network, with bounded memory, processes and time, that sees\n" +
			"nothing of this machine but its programs and one work folder. Without a sandbox it exits 3.",
		Example: "  ambit tool-server bash --work ~/project",
		Args:    exactly(1, "the name of a server"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != bashserver.Name {
				return usage("there is one: bash", "there is no tool server %q", args[0])
			}
			h := t.home
			if work != "" {
				var err error
				if work, err = workFolder(work, h); err != nil {
					return err
				}
			}
			if err := sandbox.Check(cmd.Context(), sandbox.Standard, h.Dir()); err != nil {
				return asFailure(err)
			}
			o := bashserver.Options{Work: work, Home: h, Version: version}
			if err := bashserver.Serve(cmd.Context(), o, io.NopCloser(t.in), unclosed{t.raw}); err != nil {
				return no("", "the client's input cannot be read: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&work, "work", "", "the `folder` that commands work in, which they may change")
	return cmd
}

// workFolder is a folder that commands may change. What ambit keeps is not to be
// among that.
func workFolder(work string, h home.Home) (string, error) {
	dir, err := filepath.Abs(work)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", usage("make it first", "the work folder cannot be used: %w", err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", usage("name a folder", "%s is not a folder", work)
	}
	kept := h.Dir()
	if real, err := filepath.EvalSymlinks(kept); err == nil {
		kept = real
	}
	if within(kept, dir) || within(dir, kept) {
		return "", usage("choose another folder", "%s is, or holds, or is in what ambit keeps", work)
	}
	return dir, nil
}

// within reports whether a path is in a folder, or is it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// unclosed is an output that others still write to.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
