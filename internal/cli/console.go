package cli

import "github.com/spf13/cobra"

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
			if t.json {
				return t.document(made)
			}
			t.printf("%s\n", made.URL)
			return nil
		},
	}
}
