package cli

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// verbTexts contains the help texts. Each verb has a heading, a short text, a long text and indented examples.
//
//go:embed verbs.txt
var verbTexts string

// describe sets the help texts of all verbs from verbs.txt.
func describe(root *cobra.Command) {
	for section := range strings.SplitSeq(strings.TrimPrefix(verbTexts, "# ambit "), "\n# ambit ") {
		path, text, _ := strings.Cut(section, "\n")
		cmd := root
		for _, name := range strings.Fields(path) { // do not use cobra's Find, which also merges flags
			all := cmd.Commands()
			i := slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == name })
			if i < 0 {
				panic("verbs.txt describes ambit " + path + ", which is not a verb")
			}
			cmd = all[i]
		}
		cmd.Short, text, _ = strings.Cut(strings.TrimRight(text, "\n"), "\n\n")
		if at := strings.LastIndex("\n\n"+text, "\n\n  "); at >= 0 {
			cmd.Example = text[at:]
			text = text[:max(0, at-2)]
		}
		cmd.Long = text
	}
}

// noVerb returns the error for an unknown verb. The hint suggests the verb with the most similar name.
func noVerb(cmd *cobra.Command, words []string) error {
	hint := cmp.Or(nearVerb(cmd, words[0]), "see: ambit help --all")
	return usage(hint, "there is no verb %s", diag.Quote(strings.Join(words, " ")))
}

// nearVerb returns a hint that suggests the verb whose name is most similar to the word. The hint is empty if no verb
// has a similar name.
func nearVerb(cmd *cobra.Command, word string) string {
	if near := diag.Closest(word, verbNames(cmd)); near != "" {
		return "did you mean: " + cmd.CommandPath() + " " + near + "?"
	}
	return ""
}

func verbNames(cmd *cobra.Command) []string {
	return each(cmd.Commands(), (*cobra.Command).Name)
}

// ownHelp changes cobra's verbs "help" and "completion". It adds the flag --all to "ambit help", and makes both verbs
// reject unknown arguments. Without ownHelp, cobra would print help for unknown arguments and exit with 0.
func ownHelp(t *terminal, root *cobra.Command) {
	root.SetHelpCommandGroupID(groupHelp)
	root.SetCompletionCommandGroupID(groupHelp)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			var all bool
			cmd.Short = "Show the help for a verb, or list all verbs with --all"
			cmd.Long = "Show the help for a verb. With --all, list every verb, grouped by purpose."
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
			group(cmd)
			for _, shell := range cmd.Commands() {
				shell.Args = exactly(0, "no arguments")
			}
		}
	}
}

// help prints the help of a verb. For ambit itself, it lists the everyday verbs.
func (t *terminal) help(cmd *cobra.Command) {
	t.printf("%s\n\n", cmp.Or(cmd.Long, cmd.Short))
	if !cmd.HasParent() {
		t.printf("%s\n  ambit VERB [flags]\n", t.paint(bold, "Usage"))
		t.printVerbs("Everyday verbs", cmd,
			func(c *cobra.Command) bool { return slices.Contains(everydayVerbs, c.Name()) })
		t.printf("\nAll verbs: %s\nOne verb:  %s\n", t.paint(bold, "ambit help --all"), t.paint(bold, "ambit VERB --help"))
		return
	}
	t.printf("%s\n  %s\n", t.paint(bold, "Usage"), cmd.UseLine())
	if cmd.Example != "" {
		t.printf("\n%s\n%s\n", t.paint(bold, "Examples"), cmd.Example)
	}
	t.printVerbs("Verbs", cmd, func(*cobra.Command) bool { return true })
	t.flags("Flags", cmd.LocalFlags())
	for at := cmd.Parent(); at.HasParent(); at = at.Parent() {
		t.flags("Flags for all verbs of "+at.CommandPath(), at.PersistentFlags())
	}
	t.flags("Flags for every verb", cmd.Root().PersistentFlags())
}

// allVerbs prints all verbs by group, the common flags and the exit codes.
func (t *terminal) allVerbs(root *cobra.Command) {
	t.printf("%s\n\n%s\n  ambit VERB [flags]\n", root.Long, t.paint(bold, "Usage"))
	for _, g := range root.Groups() {
		t.printVerbs(g.Title, root, func(c *cobra.Command) bool { return c.GroupID == g.ID })
	}
	t.flags("Flags for every verb", root.PersistentFlags())
	t.printf("\n%s\n  0 success · 1 invalid, refused or failed · 2 wrong usage · "+
		"3 something needed is missing · 130 interrupted\n", t.paint(bold, "Exit codes"))
}

// printVerbs prints a command's verbs, but only those that the callback includes. The everyday verbs come first.
func (t *terminal) printVerbs(title string, cmd *cobra.Command, include func(*cobra.Command) bool) {
	all := slices.Clone(cmd.Commands())
	if cmd == cmd.Root() {
		slices.SortStableFunc(all, func(a, b *cobra.Command) int {
			return cmp.Compare(uint(slices.Index(everydayVerbs, a.Name())), uint(slices.Index(everydayVerbs, b.Name())))
		})
	}
	var rows [][]string
	for _, c := range all {
		if c.IsAvailableCommand() && include(c) {
			rows = append(rows, []string{t.paint(cyan, c.Name()), c.Short})
		}
	}
	t.section(title, rows)
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
		text = strings.TrimSuffix(text, " ("+kind+")") // the table already shows the value's name
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
	t.section(title, rows)
}
