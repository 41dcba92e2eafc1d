package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// newSettle is a verb under journal.
func newSettle(t *terminal, store *string) *cobra.Command {
	var done, notDone bool
	cmd := &cobra.Command{
		Use:   "settle ID",
		Short: "Say what became of a call whose outcome is unknown",
		Long: "Say what became of a call that was sent and whose answer never came. Find out on the other side first:\n" +
			"after --not-done a call of the same idempotency key is made again. Your word is journaled with your name.",
		Example: "  ambit journal show --unknown\n  ambit journal settle 4f2a… --done",
		Args:    exactly(1, "the id of a call"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if done == notDone {
				return usage("say one of --done and --not-done", "it has to be said whether the call was carried out")
			}
			if err := wantBegun(t.sharedBegun(cmd.Context(), *store)); err != nil {
				return err
			}
			b, err := t.sharedBooks(cmd.Context(), *store)
			if err != nil {
				return err
			}
			defer b.Close()
			err = gateway.Settle(cmd.Context(), b, args[0], done, identity.LocalName())
			switch {
			case errors.Is(err, gateway.ErrNotUnknown):
				return no("see which there are: ambit journal show --unknown", "%w", err)
			case err != nil:
				return no("", "the call cannot be settled: %w", err)
			}
			if t.json {
				return t.document(map[string]any{"call": args[0], "done": done})
			}
			said := "was not carried out"
			if done {
				said = "was carried out"
			}
			t.printf("settled: call %s %s\n", diag.Printable(args[0]), said)
			return nil
		},
	}
	cmd.Flags().BoolVar(&done, "done", false, "it was carried out")
	cmd.Flags().BoolVar(&notDone, "not-done", false, "it was surely not carried out")
	return cmd
}
