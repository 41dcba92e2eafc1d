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

// stateValid is the state of an agent that can be served while no daemon runs.
const stateValid daemon.State = "valid"

func newAgents(t *terminal) *cobra.Command {
	var folder string
	cmd := &cobra.Command{
		Use:     "agents",
		GroupID: groupRun,
		Short:   "List the agents and their states",
		Long: "List the agents of the running daemon and their states: ready, starting, quarantined, failed or rejected.\n" +
			"Without a daemon, or with --agents, list the agents of the folder: valid or rejected.",
		Example: "  ambit agents\n  ambit agents --json | jq -r '.agents[] | select(.state != \"ready\").name'",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cards, url, trouble, err := listAgents(cmd.Context(), t.home, folder)
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
				t.hintf("put a manifest into %s, or start with: ambit new NAME", t.home.Agents())
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

// listAgents asks the daemon, or reads the folders if there is none. Trouble explains why
// the rules in force are not those of the policy file.
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
		cards = append(cards, found[i].Card())
		if found[i].Problem == nil {
			cards[i].State = stateValid
		}
	}
	return cards, "", policy.Open(policyOptions(h)).Status().Problem, nil
}

// daemonFailure explains a failed request to the daemon.
func daemonFailure(err error) error {
	if e, ok := errors.AsType[*daemon.APIError](err); ok {
		return no(e.Hint, "%w", err)
	}
	if errors.Is(err, daemon.ErrNoDaemon) {
		return missing("start one with: ambit serve", "%w", err)
	}
	return err
}

// agentTable prints agents, with their addresses if a daemon serves them.
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
		rows[i] = []string{
			t.paint(style, string(c.State)), t.paint(bold, diag.Printable(c.Name)), diag.Printable(string(c.Dialect)), diag.Printable(last),
		}
	}
	t.table("  ", rows)
}
