package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

func newConvert(t *terminal) *cobra.Command {
	var to, from, output string
	var force bool
	cmd := &cobra.Command{
		Use:     "convert --to DIALECT PATH",
		GroupID: groupWrite,
		Short:   "Convert a manifest to another dialect",
		Long: "Convert a manifest to another dialect: " + strings.Join(dialectNames(), ", ") + ". Parts that the other dialect cannot\n" +
			"express are listed on stderr, and so are parts that had to be filled in. A conversion that would leave nothing is refused.",
		Example: "  ambit convert --to gpars agents/default.json\n  ambit convert --to matrix -o research.json agents/examples/research/agent.toml",
		Args:    exactly(1, "one manifest"),
		RunE: func(_ *cobra.Command, args []string) error {
			if to == "" {
				return usage("add --to with one of "+strings.Join(dialectNames(), ", "), "convert needs the dialect to convert to")
			}
			target, err := parseDialect(to)
			if err != nil {
				return err
			}
			m, err := t.load(args[0], from)
			if err != nil {
				return err
			}
			c, err := manifest.Convert(m, target)
			if errors.Is(err, convert.ErrNothingSurvives) {
				return no("ambit inspect "+diag.ShellWord(args[0])+" shows what it does", "cannot convert %s to %s: %w", m.Dialect, target, err)
			}
			if err != nil {
				return no("", "%w", err)
			}
			if output != "" && output != "-" {
				if err := writeNew(output, c.Text, force); err != nil {
					return err
				}
			}
			if t.json {
				return t.convertedJSON(target, c)
			}
			if output == "" || output == "-" {
				t.text(string(c.Text))
			}
			t.convertedNotes(c)
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the `dialect` to convert to")
	dialectFlag(cmd, &from)
	outputFlags(cmd, &output, &force, "write to `file` instead of standard output")
	complete(cmd, "to", dialectNames())
	return cmd
}

func (t *terminal) convertedJSON(target agent.Dialect, c *manifest.Converted) error {
	return t.document(map[string]any{
		"dialect": target, "manifest": manifestValue(target, c.Text),
		"lost": append([]convert.Note{}, c.Lost...), "added": append([]convert.Note{}, c.Added...),
	})
}

func (t *terminal) convertedNotes(c *manifest.Converted) {
	for _, n := range c.Lost {
		t.notef("%s %s: %s", t.paint(yellow, "lost"), diag.Printable(n.What), diag.Printable(n.Detail))
	}
	for _, n := range c.Added {
		t.notef("%s %s: %s", t.paint(cyan, "filled in"), diag.Printable(n.What), diag.Printable(n.Detail))
	}
	if len(c.Lost)+len(c.Added) > 0 {
		t.notef("%s lost, %d filled in: check the result before you use it", count(len(c.Lost), "thing"), len(c.Added))
	}
}
