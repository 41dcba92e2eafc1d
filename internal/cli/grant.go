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

// granting are the flags of ambit grant and ambit revoke.
type granting struct{ scope, expires, store, server string }

func newGrant(t *terminal) *cobra.Command {
	var f granting
	cmd := &cobra.Command{
		Use:     "grant PRINCIPAL ACTION…",
		GroupID: groupDecide,
		Short:   "Grant a principal the capabilities that agents require",
		Long: "Grant capabilities to a principal. An agent that requires actions takes work only from principals who hold all\n" +
			"of them. A grant is signed, and checked whenever it is used; it ends when it expires, or by ambit revoke.",
		Example: "  ambit grant me@local tool.web_search\n  ambit grant ci@example.com tool.web_search memory.write --scope research@local --expires 1h\n  ambit grant coder --server registry.openmcp.org/filesystem --scope read,write",
		Args:    atLeast(2, "a principal and actions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.grantActions(cmd.Context(), args[0], args[1:], f)
		},
	}
	cmd.Flags().StringVar(&f.scope, "scope", "", "the `id` of the only agent that it is for; without it, every agent")
	cmd.Flags().StringVar(&f.expires, "expires", "", "when it ends: a `time` from now (30d, 1h) or a date (2027-01-31T00:00:00Z)")
	storeFlag(cmd.Flags(), &f.store)
	t.onServer(cmd, &f, (*terminal).grantScope)
	return cmd
}

func (t *terminal) grantActions(ctx context.Context, principal string, actions []string, f granting) error {
	if m := manifestOf(f.scope); m != nil {
		return usage("did you mean --scope "+diag.ShellWord(m.Agent().ID)+"?", "nothing was granted: %s is a file, and --scope takes the id of an agent", f.scope)
	}
	asked := grant.Asked{Subject: principal, Actions: actions, Scope: f.scope}
	if f.expires != "" {
		end, err := parseEnd(f.expires, time.Now())
		if err != nil {
			return err
		}
		asked.Expires = end
	}
	return t.owning(ctx, "only the owner may grant", f.store, func(b *store.Store) error {
		given, err := grant.Of(b).Give(ctx, asked, identity.LocalName())
		if problems, ok := errors.AsType[grant.Problems](err); ok {
			return usage("actions are such as tool.web_search or memory.write", "nothing was granted: %w", problems)
		}
		if err != nil {
			return err
		}
		return t.show(map[string]any{"grants": grantDocuments(given)}, func() {
			for _, g := range given {
				t.printf("%s %s\n", t.paint(green, "granted:"), sentence(g))
			}
		})
	})
}

func newRevoke(t *terminal) *cobra.Command {
	var f granting
	cmd := &cobra.Command{
		Use:     "revoke PRINCIPAL ACTION…",
		GroupID: groupDecide,
		Short:   "Take granted capabilities back, at once",
		Long: "Take granted capabilities back. It counts from the next call on, also in a daemon that runs. If one of the actions\n" +
			"is not granted, nothing is revoked.",
		Example: "  ambit revoke me@local tool.web_search\n  ambit revoke ci@example.com memory.write --scope research@local",
		Args:    atLeast(2, "a principal and actions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.revokeActions(cmd.Context(), args[0], args[1:], f)
		},
	}
	cmd.Flags().StringVar(&f.scope, "scope", "", "only what was granted for the agent of this `id`; without it, whatever the scope")
	storeFlag(cmd.Flags(), &f.store)
	t.onServer(cmd, &f, (*terminal).revokeScope)
	return cmd
}

func (t *terminal) revokeActions(ctx context.Context, principal string, actions []string, f granting) error {
	return t.owning(ctx, "only the owner may revoke", f.store, func(b *store.Store) error {
		revoked, err := grant.Of(b).Revoke(ctx, principal, actions, f.scope, identity.LocalName())
		if absent, ok := errors.AsType[grant.NotHeld](err); ok {
			return no("see what is granted: ambit grants", "nothing was revoked: %s does not hold %s", diag.Quote(principal), diag.Printable(strings.Join(absent, ", ")))
		}
		if err != nil {
			return err
		}
		return t.show(map[string]any{"revoked": grantDocuments(revoked)}, func() {
			for _, g := range revoked {
				t.printf("%s %s\n", t.paint(green, "revoked:"), diag.Printable(held(g, "from")))
			}
		})
	})
}

// owning opens the books for something that only the owner may do.
func (t *terminal) owning(ctx context.Context, rule, store string, f func(*store.Store) error) error {
	if err := checkOwner(rule); err != nil {
		return err
	}
	b, err := t.books(ctx, store)
	if err != nil {
		return err
	}
	err = f(b)
	if closeErr := b.Close(); err == nil && closeErr != nil {
		err = &failure{code: exitMissing, err: closeErr}
	}
	return err
}

// held is what was granted, and to or from whom.
func held(g *grant.Grant, way string) string {
	s := g.Action + " " + way + " " + g.Subject
	if g.Scope != "" {
		s += " for " + g.Scope
	}
	return s
}

// sentence is a grant in words.
func sentence(g *grant.Grant) string {
	s := held(g, "to")
	if !g.Expires.IsZero() {
		s += " until " + moment(g.Expires)
	}
	return diag.Printable(s)
}
