package cli

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// nearVerb is a hint of the verb below cmd that a word was meant to be, or nothing.
func nearVerb(cmd *cobra.Command, word string) string {
	var verbs []string
	for _, c := range cmd.Commands() {
		verbs = append(verbs, c.Name())
	}
	if near := diag.Closest(word, verbs); near != "" {
		return "did you mean: " + cmd.CommandPath() + " " + near + "?"
	}
	return ""
}

// hintVerbs lets verbs that have verbs of their own say which one was meant.
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

// refuseUnknown makes cobra's own verbs, help and completion, say no to a word
// that they do not know. By themselves they show some help and end with yes.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error {
				about, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return usage("see: ambit --help", "there is no verb %s", diag.Quote(strings.Join(args, " ")))
				}
				return about.Help()
			}
		case "completion":
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return nil
				}
				var shells []string
				for _, c := range cmd.Commands() {
					shells = append(shells, c.Name())
				}
				return usage("use "+diag.Words(shells, "or"), "there is no completion for %s", diag.Quote(args[0]))
			}
		}
	}
}
