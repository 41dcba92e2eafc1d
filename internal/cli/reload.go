package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
)

func newReload(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "reload",
		GroupID: groupRun,
		Short:   "Have the daemon read its agents again",
		Long: "Have the daemon read its agents again. Agents whose manifest and lock are as they were go on running. The\n" +
			"others are started and proven first, then take over at once; calls under way are finished.",
		Example: "  ambit reload",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var c daemon.Change
			if err := tellDaemon(cmd.Context(), "/api/v1/reload", &c); err != nil {
				return err
			}
			return t.say(c, "%s %s\n", t.paint(green, "reloaded:"), changes(c))
		},
	}
}

// tellDaemon has the daemon that runs here do something.
func tellDaemon(ctx context.Context, path string, into any) error {
	h, err := home.Find()
	if err != nil {
		return err
	}
	d, err := daemon.FindDaemon(h)
	if err == nil {
		err = d.Do(ctx, http.MethodPost, path, into)
	}
	if err != nil {
		return daemonFailure(err)
	}
	return nil
}

// reloaded tells of a reload that a signal asked for.
func (t *terminal) reloaded(c daemon.Change, err error) {
	if err != nil {
		t.tell("not reloaded, everything is as before: %v", err)
		return
	}
	t.tell("reloaded: %s", changes(c))
}

// changes says in a line what a reload did.
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
	return strings.Join(append(parts, fmt.Sprintf("%d as before", len(c.Kept))), ", ")
}

func newConsole(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "console",
		GroupID: groupRun,
		Short:   "Print a link that signs you into the daemon's console",
		Long: "Print a link that signs you into the console of the daemon that runs here: what agents may do and did, calls that\n" +
			"wait for your approval, credentials, the journal. The link is good once, for ten minutes.",
		Example: "  ambit console\n  xdg-open \"$(ambit console)\"",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var made struct {
				URL string `json:"url"`
			}
			if err := tellDaemon(cmd.Context(), "/api/v1/console", &made); err != nil {
				return err
			}
			return t.say(made, "%s\n", made.URL)
		},
	}
}
