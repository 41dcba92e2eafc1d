package cli

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

func newGrants(t *terminal) *cobra.Command {
	var store string
	var all bool
	cmd := &cobra.Command{
		Use:     "grants",
		GroupID: groupDecide,
		Short:   "List granted capabilities and scopes",
		Long: "List the granted capabilities and their principals. A grant whose row in the store was modified is listed as\n" +
			"changed and allows nothing until it is granted again.",
		Example: "  ambit grants\n  ambit grants --all --json",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.listGrants(cmd.Context(), store, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list expired and revoked grants")
	storeFlag(cmd.Flags(), &store)
	return cmd
}

func (t *terminal) listGrants(ctx context.Context, store string, all bool) error {
	var list []*grant.Grant
	if t.hasStore(ctx, store) {
		b, err := t.openStore(ctx, store)
		if err != nil {
			return err
		}
		defer b.Close()
		if list, err = grant.Of(b).List(ctx); err != nil {
			return err
		}
	}
	now := time.Now()
	shown := slices.DeleteFunc(list, func(g *grant.Grant) bool {
		return !all && !g.Changed && g.State(now) != grant.Active
	})
	scoped, err := t.scopesGranted()
	if err != nil {
		return err
	}
	return t.show(map[string]any{"grants": append(grantDocuments(shown), scopeDocuments(scoped)...)}, func() {
		for _, g := range scoped {
			t.printf("%s %s\n", scopeState(g), scopeSentence(g))
		}
		if len(shown)+len(scoped) == 0 {
			t.notef("nothing is granted; grant with: ambit grant PRINCIPAL ACTION")
		}
		rows := [][]string{}
		for _, g := range shown {
			state, colour := g.State(now), dim
			switch state {
			case grant.Active:
				colour = green
			case "changed":
				colour = boldRed
			}
			scope, until := diag.Printable(cmp.Or(g.Scope, "every agent")), "no end"
			if !g.Expires.IsZero() {
				until = "until " + moment(g.Expires)
			}
			rows = append(rows, []string{t.paint(colour, state), diag.Printable(g.Subject), diag.Printable(g.Action), scope, until, "by " + diag.Printable(g.GrantedBy)})
		}
		t.table("", rows)
	})
}

// grantDocument is a grant in the output of --json.
type grantDocument struct {
	Subject   string  `json:"subject"`
	Action    string  `json:"action"`
	Scope     string  `json:"scope"`
	GrantedBy string  `json:"granted_by"`
	GrantedAt string  `json:"granted_at"`
	ExpiresAt *string `json:"expires_at"`
	State     string  `json:"state"`
}

func grantDocuments(list []*grant.Grant) []grantDocument {
	now := time.Now()
	docs := make([]grantDocument, len(list))
	for i, g := range list {
		docs[i] = grantDocument{
			Subject: g.Subject, Action: g.Action, Scope: g.Scope, GrantedBy: g.GrantedBy,
			GrantedAt: g.Granted.UTC().Format(time.RFC3339), State: g.State(now), ExpiresAt: expiry(g.Expires),
		}
	}
	return docs
}

// expiry formats the end of a validity for --json; nil if there is none.
func expiry(at time.Time) *string {
	if at.IsZero() {
		return nil
	}
	return new(at.UTC().Format(time.RFC3339))
}
