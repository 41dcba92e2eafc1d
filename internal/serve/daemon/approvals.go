package daemon

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/serve/console"
	"github.com/ambit-run/ambit/internal/store"
)

// ApprovalsOf returns the approvals in a store.
func ApprovalsOf(s *store.Store) console.Approvals { return storedApprovals{s} }

type storedApprovals struct{ store *store.Store }

func (a storedApprovals) List(ctx context.Context) ([]*approval.Question, error) {
	return approval.List(ctx, a.store, time.Now())
}

func (a storedApprovals) Waiting(ctx context.Context) ([]*approval.Question, error) {
	return approval.Waiting(ctx, a.store, time.Now())
}

func (a storedApprovals) Decide(ctx context.Context, id string, yes bool, who, reason string) error {
	return approval.Decide(ctx, a.store, id, yes, who, reason)
}

func (a storedApprovals) Look(ctx context.Context, id string) (*approval.Question, error) {
	return approval.Look(ctx, a.store, id)
}

func (d *Daemon) listApprovals(r *http.Request) (any, *problem) {
	waiting, err := d.options.Approvals.List(r.Context())
	if err != nil {
		return nil, d.unavailable("the approvals cannot be read", err)
	}
	if waiting == nil {
		waiting = []*approval.Question{}
	}
	return map[string]any{"approvals": waiting}, nil
}

func (d *Daemon) decideApproval(r *http.Request) (any, *problem) {
	var asked struct {
		Decision string `json:"decision"`
		Reason   string `json:"reason"`
	}
	if trouble := readJSON(r, &asked); trouble != nil {
		return nil, trouble
	}
	if asked.Decision != "approve" && asked.Decision != "deny" {
		return nil, badRequest(`"decision" must be "approve" or "deny"`,
			`send {"decision": "approve"} or {"decision": "deny", "reason": …}`)
	}
	id := r.PathValue("id")
	err := d.options.Approvals.Decide(r.Context(), id, asked.Decision == "approve", principalOf(r).Name, asked.Reason)
	switch {
	case err == nil:
		return map[string]any{"id": id, "decision": asked.Decision}, nil
	case errors.Is(err, approval.ErrUnknown):
		return nil, failure("not_found", err.Error(), "to list approvals, send: GET /api/v1/approvals")
	case errors.Is(err, approval.ErrDecided), errors.Is(err, approval.ErrOver):
		return nil, failure("conflict", "approval "+id+": "+err.Error(), "to list approvals, send: GET /api/v1/approvals")
	default:
		return nil, d.unavailable("the decision cannot be stored", err)
	}
}
