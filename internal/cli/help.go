package cli

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// noVerb refuses words that are no verb of cmd, and offers the closest one.
func noVerb(cmd *cobra.Command, words []string) error {
	return usage(cmp.Or(nearVerb(cmd, words[0]), "see: ambit help --all"), "there is no verb %s", diag.Quote(strings.Join(words, " ")))
}

// nearVerb offers the verb below cmd that a word resembles; empty if none does.
func nearVerb(cmd *cobra.Command, word string) string {
	if near := diag.Closest(word, verbNames(cmd)); near != "" {
		return "did you mean: " + cmd.CommandPath() + " " + near + "?"
	}
	return ""
}

func verbNames(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return names
}

// hintVerbs lets verbs that have verbs of their own offer the closest one.
func hintVerbs(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		check := cmd.Args
		if !cmd.HasSubCommands() || check == nil {
			continue
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if f, ok := errors.AsType[*failure](err); ok && len(args) > 0 {
				f.hint = cmp.Or(nearVerb(cmd, args[0]), f.hint)
			}
			return err
		}
	}
}

// ownHelp gives cobra's help and completion verbs what they lack: --all, and a
// refusal of words that they do not know. By themselves they print some help and
// exit 0.
func ownHelp(t *terminal, root *cobra.Command) {
	root.SetHelpCommandGroupID(groupHelp)
	root.SetCompletionCommandGroupID(groupHelp)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			var all bool
			cmd.Short = "Show the help of a verb, or of all verbs with --all"
			cmd.Long = "Show the help of a verb. With --all, list every verb by what it is for."
			cmd.Example = "  ambit help --all\n  ambit help journal show"
			cmd.Flags().BoolVar(&all, "all", false, "list every verb")
			cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error {
				about, rest, err := root.Find(args)
				switch {
				case err != nil || len(rest) > 0:
					return noVerb(root, args)
				case all && about == root:
					t.allVerbs(root)
					return nil
				}
				return about.Help()
			}
		case "completion":
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return nil
				}
				return usage("use "+diag.Words(verbNames(cmd), "or"), "there is no completion for %s", diag.Quote(args[0]))
			}
			for _, shell := range cmd.Commands() {
				shell.Args = exactly(0, "no arguments")
			}
		}
	}
}

// help prints the help of a verb, and for ambit itself the everyday verbs.
func (t *terminal) help(cmd *cobra.Command) {
	t.printf("%s\n\n", cmp.Or(cmd.Long, cmd.Short))
	if !cmd.HasParent() {
		t.printf("%s\n  ambit VERB [flags]\n", t.paint(bold, "Usage"))
		t.verbs("Verbs, in the order of a day", cmd, func(c *cobra.Command) bool { return slices.Contains(everyday, c.Name()) })
		t.printf("\nAll verbs: %s\nOne verb:  %s\n", t.paint(bold, "ambit help --all"), t.paint(bold, "ambit VERB --help"))
		return
	}
	t.printf("%s\n  %s\n", t.paint(bold, "Usage"), cmd.UseLine())
	if cmd.Example != "" {
		t.printf("\n%s\n%s\n", t.paint(bold, "Examples"), cmd.Example)
	}
	t.verbs("Verbs", cmd, func(*cobra.Command) bool { return true })
	t.flags("Flags", cmd.LocalFlags())
	for at := cmd.Parent(); at.HasParent(); at = at.Parent() {
		t.flags("Flags of all verbs of "+at.CommandPath(), at.PersistentFlags())
	}
	t.flags("Flags of every verb", cmd.Root().PersistentFlags())
}

// allVerbs lists every verb in its group.
func (t *terminal) allVerbs(root *cobra.Command) {
	t.printf("%s\n\n%s\n  ambit VERB [flags]\n", root.Long, t.paint(bold, "Usage"))
	for _, g := range root.Groups() {
		t.verbs(g.Title, root, func(c *cobra.Command) bool { return c.GroupID == g.ID })
	}
	t.flags("Flags of every verb", root.PersistentFlags())
	t.printf("\n%s\n", t.paint(bold, "Exit codes"))
	t.printf("  0 yes · 1 no (invalid, refused, failed) · 2 wrong usage · 3 something needed is missing here · 130 interrupted\n")
}

// verbs lists some verbs of cmd, the everyday ones in their order.
func (t *terminal) verbs(title string, cmd *cobra.Command, listed func(*cobra.Command) bool) {
	all := slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() || !listed(c) })
	if cmd == cmd.Root() {
		slices.SortStableFunc(all, func(a, b *cobra.Command) int {
			return cmp.Compare(uint(slices.Index(everyday, a.Name())), uint(slices.Index(everyday, b.Name())))
		})
	}
	var rows [][]string
	for _, c := range all {
		rows = append(rows, []string{t.paint(cyan, c.Name()), c.Short})
	}
	if len(rows) > 0 {
		t.printf("\n%s\n", t.paint(bold, title))
		t.table("  ", rows)
	}
}

func (t *terminal) flags(title string, set *pflag.FlagSet) {
	var rows [][]string
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		kind, text := pflag.UnquoteUsage(f)
		text = strings.TrimSuffix(text, " ("+kind+")") // it is there only for its name
		if kind == "string" || kind == "strings" {
			kind = f.Name
		}
		if kind != "" && kind != "bool" {
			name += " " + strings.ToUpper(kind)
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0s" {
			text += " (default " + f.DefValue + ")"
		}
		rows = append(rows, []string{t.paint(cyan, name), text})
	})
	if len(rows) > 0 {
		t.printf("\n%s\n", t.paint(bold, title))
		t.table("  ", t.hang(rows))
	}
}
