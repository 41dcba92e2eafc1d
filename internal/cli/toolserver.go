package cli

import (
	"context"
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
	cmd := verb("tool-server NAME", exactly(1, "the name of a server"), func(ctx context.Context, args []string) error {
		if args[0] != bashserver.Name {
			return usage("run: ambit tool-server bash", "there is no tool server %q", args[0])
		}
		o := bashserver.Options{Home: t.home, Version: version}
		var err error
		if work != "" {
			if o.Work, err = workFolder(work, t.home); err != nil {
				return err
			}
		}
		if err := sandbox.Check(ctx, sandbox.Standard, t.home.Dir()); err != nil {
			return asFailure(err)
		}
		if err := bashserver.Serve(ctx, o, io.NopCloser(t.in), unclosed{t.raw}); err != nil {
			return no("", "the client's input cannot be read: %w", err)
		}
		return nil
	})
	cmd.Flags().StringVar(&work, "work", "", "the work `folder`: commands run in this folder and can modify its files")
	return cmd
}

// workFolder returns the real path of the folder that commands may change. The folder must not overlap the home,
// which contains ambit's keys and state.
func workFolder(work string, h home.Home) (string, error) {
	dir, err := filepath.Abs(work)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", usage("create the folder first", "the work folder cannot be used: %w", err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", usage("give the path of a folder", "%s is not a folder", work)
	}
	kept := h.Dir()
	if real, err := filepath.EvalSymlinks(kept); err == nil {
		kept = real
	}
	if sandbox.Inside(kept, dir) || sandbox.Inside(dir, kept) {
		return "", usage("choose another folder", "%s overlaps the folder in which ambit stores its keys and state", work)
	}
	return dir, nil
}

// unclosed is a writer whose Close method does nothing, because the terminal still uses the writer after Close.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
