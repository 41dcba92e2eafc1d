package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

func newDiff(t *terminal) *cobra.Command {
	return verb("diff OLD NEW", exactly(2, "two manifests"), func(_ context.Context, args []string) error {
		if args[0] == "-" && args[1] == "-" {
			return usage("give at least one manifest as a file", "only one manifest can come from standard input")
		}
		before, err := t.load(args[0], "")
		if err != nil {
			return err
		}
		after, err := t.load(args[1], "")
		if err != nil {
			return err
		}
		d := manifest.Diff(before.Agent(), after.Agent())
		return t.judge(len(d.Widened) == 0, map[string]any{
			"widened": notNil(d.Widened), "narrowed": notNil(d.Narrowed),
			"changed": notNil(d.Changed), "digests": []string{before.Digest(), after.Digest()},
		}, func() { t.delta(d) })
	})
}

func (t *terminal) delta(d manifest.Delta) {
	part := func(title, mark string, s style, changes []manifest.Change) {
		if len(changes) == 0 {
			return
		}
		t.printf("%s\n", t.paint(bold, title))
		for _, c := range changes {
			t.printf("  %s  %s\n", t.paint(s, mark+" "+diag.Printable(c.What)), diag.Printable(c.Detail))
		}
		t.printf("\n")
	}
	part("widened: the agent may do more", "+", red, d.Widened)
	part("narrowed: the agent may do less", "-", green, d.Narrowed)
	part("changed", "~", yellow, d.Changed)
	switch {
	case len(d.Widened) > 0:
		t.printf("%s: %s\n", t.paint(boldRed, "the agent may do more than before"), count(len(d.Widened), "widening"))
	case len(d.Narrowed)+len(d.Changed) > 0:
		t.printf("%s\n", t.paint(green, "the agent gets no new permissions"))
	default:
		t.printf("%s\n", t.paint(green, "no difference"))
	}
}
