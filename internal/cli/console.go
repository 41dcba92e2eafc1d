package cli

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/home"
	"github.com/ambit-run/ambit/internal/serve"
)

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
			h, err := home.Find()
			if err != nil {
				return &failure{code: exitMissing, err: err}
			}
			d, err := serve.FindDaemon(h)
			var made struct {
				URL string `json:"url"`
			}
			if err == nil {
				err = d.Do(cmd.Context(), http.MethodPost, "/api/v1/console", &made)
			}
			if err != nil {
				return daemonFailure(err)
			}
			if t.json {
				return t.document(made)
			}
			t.printf("%s\n", made.URL)
			return nil
		},
	}
}
