package cli

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// stateValid is the state of a valid agent in a list that does not come from a daemon.
const stateValid daemon.State = "valid"

func newAgents(t *terminal) *cobra.Command {
	var folder string
	cmd := verb("agents", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		list, err := listAgents(ctx, t.home, folder)
		if err != nil {
			return err
		}
		err = t.show(list, func() { t.printAgents(list) })
		if err == nil && list.Store != "" {
			return errMissing
		}
		return err
	})
	cmd.Flags().StringVar(&folder, "agents", "", "list the agents in this `folder` instead of asking the daemon")
	return cmd
}

// agentList is the JSON document of "ambit agents".
type agentList struct {
	Agents []daemon.Card `json:"agents"`
	// Daemon is the URL of the running daemon. It is nil if the list comes from the manifests.
	Daemon *string `json:"daemon"`
	// Policy explains why the policy file is not in force. It is empty if the file is in force.
	Policy string `json:"policy,omitempty"`
	// Store explains why the daemon's store is unavailable. It is empty if the store is available.
	Store string `json:"store,omitempty"`
}

func (t *terminal) printAgents(list *agentList) {
	url := ""
	if list.Daemon != nil {
		url = *list.Daemon
	}
	t.agentTable(list.Agents, url)
	t.printDenials(list.Agents)
	switch {
	case len(list.Agents) == 0:
		t.notef("there are no agents")
		t.hintf("put a manifest into %s, or run: ambit install PATH --client cli", t.home.Agents())
	case url == "":
		t.remarkf("no daemon is running; to start one, run: ambit serve")
	}
	if list.Policy != "" {
		t.alertf("the policy file is not in force: %s", diag.Printable(list.Policy))
	}
	if list.Store != "" {
		t.alertf("the daemon cannot use its store, so it refuses every call: %s", diag.Printable(list.Store))
		if list.Store != journal.ErrHandedOver.Error() {
			t.hintf("start the database, or fix the daemon's --store; the daemon continues as soon as the store answers")
		}
	}
}

// listAgents returns the agents of the running daemon. If no daemon is running, or if a folder is given, listAgents
// reads the manifests instead.
func listAgents(ctx context.Context, h home.Home, folder string) (*agentList, error) {
	list := &agentList{Agents: []daemon.Card{}}
	if folder == "" {
		d, err := daemon.FindDaemon(h)
		if err == nil {
			if err = d.Do(ctx, http.MethodGet, "/api/v1/agents", list); err == nil {
				list.Daemon = &d.URL
				return list, nil
			}
		}
		if !errors.Is(err, daemon.ErrNoDaemon) {
			return nil, daemonFailure(err)
		}
	}
	folders, err := agentFolders(h, folder)
	if err != nil {
		return nil, err
	}
	found, err := daemon.List(folders...)
	if err != nil {
		return nil, err
	}
	for i := range found {
		card := found[i].Card()
		if found[i].Problem == nil {
			ended, _ := installedGaps(h, &found[i])
			card.State, card.Error = stateValid, strings.Join(ended, "; ")
		}
		list.Agents = append(list.Agents, card)
	}
	list.Policy = policy.Open(policyOptions(h)).Problem()
	return list, nil
}

// daemonFailure adds a hint to an error from the daemon.
func daemonFailure(err error) error {
	if e, ok := errors.AsType[*daemon.APIError](err); ok {
		return no(e.Hint, "%w", err)
	}
	if errors.Is(err, daemon.ErrNoDaemon) {
		return missing("run: ambit serve", "%w", err)
	}
	return err
}

// printDenials prints the accesses that sandboxes recently refused to the agents' servers.
func (t *terminal) printDenials(cards []daemon.Card) {
	for _, c := range cards {
		for _, d := range c.Refused {
			t.printf("%s: the sandbox of server %s refused: %s %s, %s\n", diag.Printable(c.Name), diag.Printable(d.Server),
				diag.Printable(string(d.Kind)), diag.Printable(d.What), count(d.Count, "time"))
			if d.Allow != "" {
				t.printf("  to allow it, run: %s\n", diag.Printable(d.Allow))
			}
		}
	}
}

// agentTable prints a table of agents. The first column is the name of the agent's file, which commands accept. The
// name in the manifest follows in parentheses. The URL of the daemon is empty if no daemon is running.
func (t *terminal) agentTable(cards []daemon.Card, url string) {
	t.table("  ", each(cards, func(c daemon.Card) []string {
		style, last := red, c.Error
		switch {
		case c.State == daemon.Starting:
			style = yellow
		case c.State == daemon.Ready && url != "":
			style, last = green, url+"/mcp/"+c.Name
		case c.State == daemon.Ready, c.State == stateValid:
			style, last = green, cmp.Or(c.Error, c.ID)
		}
		name, dialect := t.paint(bold, diag.Printable(c.Name)), diag.Printable(string(c.Dialect))
		if c.DisplayName != "" && c.DisplayName != c.Name {
			name += t.paint(dim, " ("+diag.Printable(c.DisplayName)+")")
		}
		return []string{t.paint(style, string(c.State)), name, dialect, diag.Printable(last)}
	}))
}
