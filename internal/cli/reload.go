package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
)

func newReload(t *terminal) *cobra.Command {
	return verb("reload", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		var c daemon.Change
		if err := t.postToDaemon(ctx, "/api/v1/reload", &c); err != nil {
			return err
		}
		return t.show(c, func() {
			t.printf("%s %s\n", t.paint(green, "reloaded:"), changes(c))
			for _, line := range reloadNotes(c) {
				t.warnf("%s", diag.Printable(line))
			}
		})
	})
}

// reloadNotes explains why agents were rejected, and lists the additional rights of changed agents.
func reloadNotes(c daemon.Change) []string {
	rejected := each(c.Reasons, func(why string) string { return "rejected: " + why })
	wider := each(c.Widened, func(what string) string { return "may do more than before: " + what })
	return slices.Concat(rejected, wider)
}

// changes describes the result of a reload.
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
