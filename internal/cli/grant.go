package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// grantFlags are the flags of ambit grant and ambit revoke.
type grantFlags struct{ scope, expires, store, server string }

func newGrant(t *terminal) *cobra.Command {
	var f grantFlags
	cmd := &cobra.Command{
		Use:     "grant PRINCIPAL ACTION…",
		GroupID: groupDecide,
		Short:   "Grant a principal the capabilities that agents require",
		Long: "Grant capabilities to a principal. An agent that requires actions accepts work only from principals who hold all\n" +
			"of them. A grant is signed and checked at each use. It ends when it expires or with ambit revoke.",
		Example: "  ambit grant me@local tool.web_search\n  ambit grant ci@example.com tool.web_search memory.write --scope research@local --expires 1h\n  ambit grant coder --server registry.openmcp.org/filesystem --scope read,write",
		Args:    atLeast(2, "a principal and actions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.grantActions(cmd.Context(), args[0], args[1:], f)
		},
	}
	cmd.Flags().StringVar(&f.scope, "scope", "", "limit the grant to the agent with this `id`; the default is every agent")
	cmd.Flags().StringVar(&f.expires, "expires", "", "when it ends: a `time` from now (30d, 1h) or a date (2027-01-31T00:00:00Z)")
	storeFlag(cmd.Flags(), &f.store)
	t.onServer(cmd, &f, (*terminal).grantScope)
	return cmd
}

func (t *terminal) grantActions(ctx context.Context, principal string, actions []string, f grantFlags) error {
	if m := manifestOf(f.scope); m != nil {
		return usage("did you mean --scope "+diag.ShellWord(m.Agent().ID)+"?", "nothing was granted: %s is a file, and --scope takes the id of an agent", f.scope)
	}
	end, err := parseEnd(f.expires, time.Now())
	if err != nil {
		return err
	}
	asked := grant.Asked{Subject: principal, Actions: actions, Scope: f.scope, Expires: end}
	return t.asOwner(ctx, "only the owner may grant", f.store, func(b *store.Store) error {
		granted, err := grant.Of(b).Give(ctx, asked, identity.LocalName())
		if problems, ok := errors.AsType[grant.Problems](err); ok {
			return usage("an action is for example tool.web_search or memory.write", "nothing was granted: %w", problems)
		}
		if err != nil {
			return err
		}
		return t.show(map[string]any{"grants": grantDocuments(granted)}, func() {
			for _, g := range granted {
				t.printf("%s %s\n", t.paint(green, "granted:"), sentence(g))
			}
		})
	})
}

func newRevoke(t *terminal) *cobra.Command {
	var f grantFlags
	cmd := &cobra.Command{
		Use:     "revoke PRINCIPAL ACTION…",
		GroupID: groupDecide,
		Short:   "Revoke granted capabilities immediately",
		Long: "Revoke granted capabilities. The change applies from the next call on, also in a running daemon. If one of the\n" +
			"actions is not granted, nothing is revoked.",
		Example: "  ambit revoke me@local tool.web_search\n  ambit revoke ci@example.com memory.write --scope research@local",
		Args:    atLeast(2, "a principal and actions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.revokeActions(cmd.Context(), args[0], args[1:], f)
		},
	}
	cmd.Flags().StringVar(&f.scope, "scope", "", "revoke only grants for the agent with this `id`; the default is all")
	storeFlag(cmd.Flags(), &f.store)
	t.onServer(cmd, &f, (*terminal).revokeScope)
	return cmd
}

func (t *terminal) revokeActions(ctx context.Context, principal string, actions []string, f grantFlags) error {
	return t.asOwner(ctx, "only the owner may revoke", f.store, func(b *store.Store) error {
		revoked, err := grant.Of(b).Revoke(ctx, principal, actions, f.scope, identity.LocalName())
		if absent, ok := errors.AsType[grant.NotHeld](err); ok {
			return no("see what is granted: ambit grants", "nothing was revoked: %s does not hold %s", diag.Quote(principal), diag.Printable(strings.Join(absent, ", ")))
		}
		if err != nil {
			return err
		}
		return t.show(map[string]any{"revoked": grantDocuments(revoked)}, func() {
			for _, g := range revoked {
				t.printf("%s %s\n", t.paint(green, "revoked:"), diag.Printable(grantText(g, "from")))
			}
		})
	})
}

// asOwner runs f with the store, for verbs that only the owner may use.
func (t *terminal) asOwner(ctx context.Context, rule, store string, f func(*store.Store) error) error {
	if err := t.checkOwner(rule); err != nil {
		return err
	}
	b, err := t.openStore(ctx, store)
	if err != nil {
		return err
	}
	err = f(b)
	if closeErr := b.Close(); err == nil && closeErr != nil {
		err = &failure{code: exitMissing, err: closeErr}
	}
	return err
}

// grantText describes a grant without its end.
func grantText(g *grant.Grant, way string) string {
	s := g.Action + " " + way + " " + g.Subject
	if g.Scope != "" {
		s += " for " + g.Scope
	}
	return s
}

// sentence describes a grant with its end.
func sentence(g *grant.Grant) string {
	s := grantText(g, "to")
	if !g.Expires.IsZero() {
		s += " until " + moment(g.Expires)
	}
	return diag.Printable(s)
}
