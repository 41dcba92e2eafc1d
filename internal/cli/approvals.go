package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	list := func(ctx context.Context, _ []string) error { return t.listApprovals(ctx, store) }
	cmd := verb("approvals", exactly(0, "no arguments"), list)
	sharedStoreFlag(cmd.PersistentFlags(), &store)
	decide := func(name string, yes bool) *cobra.Command {
		c := verb(name+" ID", exactly(1, "the id of an approval"), func(ctx context.Context, args []string) error {
			return t.decide(ctx, store, args[0], yes, reason)
		})
		c.Flags().StringVar(&reason, "reason", "", "the `reason` to show to the caller")
		return c
	}
	cmd.AddCommand(verb("list", exactly(0, "no arguments"), list), decide("approve", true), decide("deny", false))
	return cmd
}

func (t *terminal) listApprovals(ctx context.Context, store string) error {
	var waiting []*approval.Question
	if t.hasSharedStore(store) {
		b, err := t.sharedStore(ctx, store)
		if err != nil {
			return err
		}
		defer b.Close()
		t.readKeyNames(ctx, b)
		if waiting, err = approval.List(ctx, b, time.Now()); err != nil {
			return no("", "the approvals cannot be read: %w", err)
		}
	}
	return t.show(map[string]any{"approvals": notNil(waiting)}, func() {
		if len(waiting) == 0 {
			t.printf("no call is waiting for approval\n")
			return
		}
		for _, q := range waiting {
			left := ""
			if !q.Left.IsZero() {
				left = fmt.Sprintf("; the caller left %s ago, so your answer is for its next identical call",
					time.Since(q.Left).Round(time.Second))
			}
			t.printf("%s  %s %s\n  requested by %s, expires in %s%s\n  %s\n",
				t.paint(bold, q.ID), diag.Printable(q.Agent), t.paint(cyan, diag.Printable(q.Tool)),
				diag.Printable(t.withKeyName(q.Principal)), time.Until(q.Expires).Round(time.Second), left,
				diag.Printable(string(q.Arguments)))
			for _, line := range q.Origin {
				t.warnf("%s", diag.Printable(line))
			}
			for _, warning := range approval.LookAlikes(q.Tool, string(q.Arguments)) {
				t.warnf("%s", warning)
			}
		}
		t.notef("to decide, run: ambit approvals approve ID, or: ambit approvals deny ID")
	})
}

func (t *terminal) decide(ctx context.Context, store, id string, yes bool, reason string) error {
	if !t.hasSharedStore(store) {
		return t.noStore()
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
	case errors.Is(err, approval.ErrUnknown), errors.Is(err, approval.ErrDecided), errors.Is(err, approval.ErrOver):
		return no("to list the waiting calls, run: ambit approvals", "approval %s: %w", diag.Printable(id), err)
	case err != nil:
		return no("", "the decision cannot be recorded: %w", err)
	}
	decision := "denied"
	if yes {
		decision = "approved"
	}
	doc := map[string]any{
		"id": q.ID, "decision": decision, "agent": q.Agent, "tool": q.Tool, "arguments": json.RawMessage(q.Arguments),
	}
	return t.say(doc, "%s: the tool %s of the agent %s, with the arguments %s\n", decision,
		diag.Printable(q.Tool), diag.Printable(q.Agent), diag.Printable(string(q.Arguments)))
}

// fullApproval returns the approval with the given id. The id can be shortened to 6 or more characters. A shortened
// id must match exactly one waiting approval.
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
