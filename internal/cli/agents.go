package cli

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
)

// stateValid is that of an agent which could be served, where no daemon runs.
const stateValid daemon.State = "valid"

func newAgents(t *terminal) *cobra.Command {
	var folder string
	cmd := &cobra.Command{
		Use:     "agents",
		GroupID: groupRun,
		Short:   "List the agents, and how each is",
		Long: "List the agents of the daemon that runs, and how each is: ready, starting, quarantined, failed or rejected.\n" +
			"Without a daemon, or with --agents, list those of the folder: valid or rejected.",
		Example: "  ambit agents\n  ambit agents --json | jq -r '.agents[] | select(.state != \"ready\").name'",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h := t.home
			cards, url, trouble, err := listAgents(cmd.Context(), h, folder)
			if err != nil {
				return err
			}
			if t.json {
				doc := map[string]any{"agents": cards, "daemon": nil}
				if trouble != "" {
					doc["policy"] = trouble
				}
				if url != "" {
					doc["daemon"] = url
				}
				return t.document(doc)
			}
			defer t.policyTrouble(trouble)
			if len(cards) == 0 {
				t.notef("there are no agents")
				t.hintf("put a manifest into %s, or start with: ambit new NAME", h.Agents())
				return nil
			}
			t.agentTable(cards, url)
			if url == "" {
				t.remarkf("no daemon is running; start it with: ambit serve")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&folder, "agents", "", "list the agents of this `folder` instead of asking a daemon")
	return cmd
}

// listAgents asks the daemon, or without one reads the folders. Trouble is why the
// user's rules are not those of their file.
func listAgents(ctx context.Context, h home.Home, folder string) (cards []daemon.Card, url, trouble string, err error) {
	cards = []daemon.Card{}
	if folder == "" {
		d, err := daemon.FindDaemon(h)
		if err == nil {
			doc := struct {
				Agents *[]daemon.Card `json:"agents"`
				Policy *string        `json:"policy"`
			}{&cards, &trouble}
			if err = d.Do(ctx, http.MethodGet, "/api/v1/agents", &doc); err == nil {
				return cards, d.URL, trouble, nil
			}
		}
		if !errors.Is(err, daemon.ErrNoDaemon) {
			return nil, "", "", daemonFailure(err)
		}
	}
	folders, err := agentFolders(h, folder)
	if err != nil {
		return nil, "", "", err
	}
	found, err := daemon.List(folders...)
	if err != nil {
		return nil, "", "", err
	}
	for i := range found {
		f := &found[i]
		c := f.Card()
		if f.Problem == nil {
			c.State = stateValid
		}
		cards = append(cards, c)
	}
	return cards, "", policy.Open(policyOptions(h)).Status().Problem, nil
}

// daemonFailure is why a daemon could not be asked.
func daemonFailure(err error) error {
	if e, ok := errors.AsType[*daemon.APIError](err); ok {
		return no(e.Hint, "%w", err)
	}
	if errors.Is(err, daemon.ErrNoDaemon) {
		return &failure{code: exitMissing, err: err, hint: "start one with: ambit serve"}
	}
	return err
}

// agentTable shows agents, with their addresses where there is a daemon.
func (t *terminal) agentTable(cards []daemon.Card, url string) {
	rows := make([][]string, len(cards))
	for i, c := range cards {
		style := red
		last := c.Error
		switch c.State {
		case daemon.Ready, stateValid:
			style, last = green, c.ID
			if url != "" {
				last = url + "/mcp/" + c.Name
			}
		case daemon.Starting:
			style = yellow
		}
		rows[i] = []string{t.paint(style, string(c.State)), t.paint(bold, diag.Printable(c.Name)), diag.Printable(string(c.Dialect)), diag.Printable(last)}
	}
	t.table("  ", rows)
}

// firstServed is the first agent that is up, or on its way.
func firstServed(cards []daemon.Card) string {
	for _, c := range cards {
		if c.State == daemon.Ready || c.State == daemon.Starting {
			return c.Name
		}
	}
	return ""
}
