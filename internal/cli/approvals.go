package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
)

func newApprovals(t *terminal) *cobra.Command {
	var store, reason string
	cmd := &cobra.Command{
		Use:     "approvals",
		GroupID: groupDecide,
		Short:   "Approve or deny calls that wait for a person",
		Long: "List the calls that wait for a person's approval, with their exact arguments, and approve or deny them.\n" +
			"An approval allows exactly one call, once: a call with other arguments needs another approval.",
		Example: "  ambit approvals\n  ambit approvals approve 4f2a…\n  ambit approvals deny 4f2a… --reason 'not this customer'",
		Args:    exactly(0, "no arguments of its own"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.listApprovals(cmd.Context(), store) },
	}
	sharedStoreFlag(cmd.PersistentFlags(), &store)
	list := &cobra.Command{
		Use: "list", Short: "List the calls that wait", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return t.listApprovals(cmd.Context(), store) },
	}
	decide := func(verb, short string, yes bool) *cobra.Command {
		c := &cobra.Command{
			Use: verb + " ID", Short: short, Args: exactly(1, "the id of an approval"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return t.decide(cmd.Context(), store, args[0], yes, reason)
			},
		}
		c.Flags().StringVar(&reason, "reason", "", "`why`, for the caller")
		return c
	}
	cmd.AddCommand(list, decide("approve", "Allow the call, once", true), decide("deny", "Refuse the call", false))
	return cmd
}

func (t *terminal) listApprovals(ctx context.Context, store string) error {
	var waiting []*approval.Question
	if t.hasSharedStore(ctx, store) {
		b, err := t.sharedStore(ctx, store)
		if err != nil {
			return err
		}
		defer b.Close()
		if waiting, err = approval.List(ctx, b, time.Now()); err != nil {
			return no("", "the approvals cannot be read: %w", err)
		}
	}
	if t.json {
		if waiting == nil {
			waiting = []*approval.Question{}
		}
		return t.document(map[string]any{"approvals": waiting})
	}
	if len(waiting) == 0 {
		t.printf("nothing waits for approval\n")
		return nil
	}
	for _, q := range waiting {
		t.printf("%s  %s %s\n", t.paint(bold, q.ID), diag.Printable(q.Agent), t.paint(cyan, diag.Printable(q.Tool)))
		t.printf("  asked by %s, expires in %s\n", diag.Printable(q.Principal), time.Until(q.Expires).Round(time.Second))
		t.printf("  %s\n", diag.Printable(string(q.Arguments)))
	}
	t.notef("to decide: ambit approvals approve ID, or ambit approvals deny ID")
	return nil
}

func (t *terminal) decide(ctx context.Context, store, id string, yes bool, reason string) error {
	if err := t.requireSharedStore(ctx, store); err != nil {
		return err
	}
	b, err := t.sharedStore(ctx, store)
	if err != nil {
		return err
	}
	defer b.Close()
	q, err := fullApproval(ctx, b, id)
	if err == nil {
		err = approval.Decide(ctx, b, q.ID, yes, identity.LocalName(), reason)
	}
	switch {
	case errors.Is(err, approval.ErrUnknown):
		return no("list the calls that wait: ambit approvals", "%w", err)
	case errors.Is(err, approval.ErrDecided), errors.Is(err, approval.ErrOver):
		return no("list the calls that wait: ambit approvals", "approval %s: %w", diag.Printable(id), err)
	case err != nil:
		return no("", "the approval cannot be decided: %w", err)
	}
	decision := "denied"
	if yes {
		decision = "approved"
	}
	doc := map[string]any{
		"id": q.ID, "decision": decision, "agent": q.Agent, "tool": q.Tool, "arguments": json.RawMessage(q.Arguments),
	}
	return t.say(doc, "%s %s of %s with %s\n", decision,
		diag.Printable(q.Tool), diag.Printable(q.Agent), diag.Printable(string(q.Arguments)))
}

// fullApproval finds an approval by its id, or a pending one by a unique prefix of its id.
func fullApproval(ctx context.Context, b *store.Store, id string) (*approval.Question, error) {
	q, err := approval.Get(ctx, b, id)
	if !errors.Is(err, approval.ErrUnknown) || len(id) < 6 {
		return q, err
	}
	waiting, listErr := approval.List(ctx, b, time.Now())
	if listErr != nil {
		return nil, listErr
	}
	waiting = slices.DeleteFunc(waiting, func(q *approval.Question) bool { return !strings.HasPrefix(q.ID, id) })
	if len(waiting) != 1 {
		return nil, err
	}
	return waiting[0], nil
}
