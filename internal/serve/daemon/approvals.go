package daemon

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/store"
)

// Approvals are the calls that wait for a person. Only admin keys decide: the key of an agent's
// client never does.
type Approvals interface {
	List(ctx context.Context) ([]*approval.Question, error)
	// Waiting is List without the arguments, which are large and sealed.
	Waiting(ctx context.Context) ([]*approval.Question, error)
	Decide(ctx context.Context, id string, yes bool, who, reason string) error
}

// ApprovalsOf returns the approvals of a store.
func ApprovalsOf(s *store.Store) Approvals { return storedApprovals{s} }

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

func (d *Daemon) listApprovals(w http.ResponseWriter, r *http.Request) {
	waiting, err := d.options.Approvals.List(r.Context())
	if err != nil {
		d.unavailable(w, "the approvals cannot be read", err)
		return
	}
	if waiting == nil {
		waiting = []*approval.Question{}
	}
	reply(w, http.StatusOK, map[string]any{"approvals": waiting})
}

func (d *Daemon) decideApproval(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Decision string `json:"decision"`
		Reason   string `json:"reason"`
	}
	if trouble := readJSON(r, &asked); trouble != nil {
		trouble.write(w)
		return
	}
	if asked.Decision != "approve" && asked.Decision != "deny" {
		badRequest("the decision must be approve or deny", `send {"decision": "approve"} or {"decision": "deny", "reason": …}`).write(w)
		return
	}
	id := r.PathValue("id")
	err := d.options.Approvals.Decide(r.Context(), id, asked.Decision == "approve", principalOf(r).Name, asked.Reason)
	switch {
	case err == nil:
		reply(w, http.StatusOK, map[string]any{"id": id, "decision": asked.Decision})
	case errors.Is(err, approval.ErrUnknown):
		(&problem{status: http.StatusNotFound, Code: "not_found", Message: err.Error(), Hint: "list the waiting approvals: GET /api/v1/approvals"}).write(w)
	case errors.Is(err, approval.ErrDecided), errors.Is(err, approval.ErrOver):
		(&problem{status: http.StatusConflict, Code: "conflict", Message: "approval " + id + ": " + err.Error(), Hint: "list the waiting approvals: GET /api/v1/approvals"}).write(w)
	default:
		d.unavailable(w, "the approval cannot be decided", err)
	}
}
