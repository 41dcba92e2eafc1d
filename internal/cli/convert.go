package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

func newConvert(t *terminal) *cobra.Command {
	var to, from, output string
	var force bool
	cmd := verb("convert --to DIALECT PATH", exactly(1, "one manifest"), func(_ context.Context, args []string) error {
		if to == "" {
			return usage("add --to with one of "+strings.Join(dialectNames(), ", "),
				"ambit convert needs --to")
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
			return no("to see what the agent does, run: ambit inspect "+diag.ShellWord(args[0]),
				"cannot convert %s to %s: %w", m.Dialect, target, err)
		}
		if err != nil {
			return no("", "%w", err)
		}
		toFile := output != "" && output != "-"
		if toFile {
			if err := writeNew(output, c.Text, force); err != nil {
				return err
			}
		}
		return t.show(map[string]any{
			"dialect": target, "manifest": manifestValue(target, c.Text),
			"lost": notNil(c.Lost), "added": notNil(c.Added),
		}, func() {
			if !toFile {
				t.text(string(c.Text))
			}
			t.convertedNotes(c)
		})
	})
	cmd.Flags().StringVar(&to, "to", "", "the `dialect` to convert to")
	dialectFlag(cmd, &from)
	outputFlags(cmd, &output, &force, "write to `file` instead of standard output")
	complete(cmd, "to", dialectNames())
	return cmd
}

func (t *terminal) convertedNotes(c *manifest.Converted) {
	for _, n := range c.Lost {
		t.notef("%s %s: %s", t.paint(yellow, "lost"), diag.Printable(n.What), diag.Printable(n.Detail))
	}
	for _, n := range c.Added {
		t.notef("%s %s: %s", t.paint(cyan, "filled in"), diag.Printable(n.What), diag.Printable(n.Detail))
	}
	if len(c.Lost)+len(c.Added) > 0 {
		t.notef("%s lost, %s filled in; check the result before you use it", count(len(c.Lost), "part"),
			count(len(c.Added), "part"))
	}
}
