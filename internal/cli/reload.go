package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/serve/daemon"
)

func newReload(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "reload",
		GroupID: groupRun,
		Short:   "Reload the agents of the daemon",
		Long: "Reload the agents of the daemon. Agents with an unchanged manifest and lock keep running. Changed agents are\n" +
			"started and proven before they replace the old ones; running calls are finished.",
		Example: "  ambit reload",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var c daemon.Change
			if err := t.postToDaemon(cmd.Context(), "/api/v1/reload", &c); err != nil {
				return err
			}
			return t.say(c, "%s %s\n", t.paint(green, "reloaded:"), changes(c))
		},
	}
}

// postToDaemon sends a request to the daemon of this home and decodes its answer.
func (t *terminal) postToDaemon(ctx context.Context, path string, into any) error {
	d, err := daemon.FindDaemon(t.home)
	if err == nil {
		err = d.Do(ctx, http.MethodPost, path, into)
	}
	if err != nil {
		return daemonFailure(err)
	}
	return nil
}

// reloaded logs the result of a reload that a signal requested.
func (t *terminal) reloaded(c daemon.Change, err error) {
	if err != nil {
		t.logf("not reloaded, nothing has changed: %v", err)
		return
	}
	t.logf("reloaded: %s", changes(c))
}

// changes describes the result of a reload in one line.
func changes(c daemon.Change) string {
	var parts []string
	for _, p := range []struct {
		verb  string
		names []string
	}{{"added", c.Added}, {"changed", c.Changed}, {"removed", c.Removed}, {"rejected", c.Rejected}} {
		if len(p.names) > 0 {
			parts = append(parts, p.verb+" "+strings.Join(p.names, " "))
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("%d unchanged", len(c.Kept))), ", ")
}

func newConsole(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "console",
		GroupID: groupRun,
		Short:   "Print a link that signs you into the daemon's console",
		Long: "Print a link that signs you into the console of the running daemon: what agents may do and did, calls that wait\n" +
			"for your approval, credentials, the journal. The link works once, for ten minutes.",
		Example: "  ambit console\n  xdg-open \"$(ambit console)\"",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var made struct {
				URL string `json:"url"`
			}
			if err := t.postToDaemon(cmd.Context(), "/api/v1/console", &made); err != nil {
				return err
			}
			return t.say(made, "%s\n", made.URL)
		},
	}
}
