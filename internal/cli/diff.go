package cli

import (
	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

func newDiff(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "diff OLD NEW",
		GroupID: groupReview,
		Short:   "Show what NEW may do that OLD could not",
		Long: "Show what NEW may do that OLD could not: a new tool, host, scope, side effect or secret, a larger budget, a\n" +
			"looser guardrail. Exits 1 if NEW may do more, 0 if not.",
		Example: "  ambit diff installed.json update.json\n  git show HEAD:agents/default.json | ambit diff - agents/default.json",
		Args:    exactly(2, "two manifests"),
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "-" && args[1] == "-" {
				return usage("give at least one of them as a file", "only one manifest can come from standard input")
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
				"widened": append([]manifest.Change{}, d.Widened...), "narrowed": append([]manifest.Change{}, d.Narrowed...),
				"changed": append([]manifest.Change{}, d.Changed...), "digests": []string{before.Digest(), after.Digest()},
			}, func() { t.delta(d) })
		},
	}
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
	part("widened: it may do more", "+", red, d.Widened)
	part("narrowed: it may do less", "-", green, d.Narrowed)
	part("changed", "~", yellow, d.Changed)
	switch {
	case len(d.Widened) > 0:
		t.printf("%s: %s\n", t.paint(boldRed, "it may do more than before"), count(len(d.Widened), "widening"))
	case len(d.Narrowed)+len(d.Changed) > 0:
		t.printf("%s\n", t.paint(green, "it may do no more than before"))
	default:
		t.printf("%s\n", t.paint(green, "no difference"))
	}
}
