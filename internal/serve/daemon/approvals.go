package daemon

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/store"
)

// Approvals is what the API knows of calls that wait for a person. Only an
// admin key decides: a key that carries an agent's traffic never does.
type Approvals interface {
	List(ctx context.Context) ([]*approval.Question, error)
	// Waiting is the same without arguments, which are large and sealed.
	Waiting(ctx context.Context) ([]*approval.Question, error)
	Decide(ctx context.Context, id string, yes bool, who, reason string) error
}

// ApprovalsOf are those in books.
func ApprovalsOf(b *store.Store) Approvals { return bookedApprovals{b} }

type bookedApprovals struct{ b *store.Store }

func (a bookedApprovals) List(ctx context.Context) ([]*approval.Question, error) {
	return approval.List(ctx, a.b, time.Now())
}

func (a bookedApprovals) Waiting(ctx context.Context) ([]*approval.Question, error) {
	return approval.Waiting(ctx, a.b, time.Now())
}

func (a bookedApprovals) Decide(ctx context.Context, id string, yes bool, who, reason string) error {
	return approval.Decide(ctx, a.b, id, yes, who, reason)
}

func (d *Daemon) listApprovals(w http.ResponseWriter, r *http.Request) {
	waiting, err := d.options.Approvals.List(r.Context())
	if err != nil {
		d.options.Log("the approvals cannot be read: %v", err)
		(&problem{status: http.StatusServiceUnavailable, Code: "unavailable", Message: "the approvals cannot be read at the moment", Hint: "the daemon's log says why"}).write(w)
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
		badRequest("the decision is neither approve nor deny", `send {"decision": "approve"} or {"decision": "deny", "reason": …}`).write(w)
		return
	}
	id := r.PathValue("id")
	err := d.options.Approvals.Decide(r.Context(), id, asked.Decision == "approve", principalOf(r).Name, asked.Reason)
	switch {
	case err == nil:
		reply(w, http.StatusOK, map[string]any{"id": id, "decision": asked.Decision})
	case errors.Is(err, approval.ErrUnknown):
		(&problem{status: http.StatusNotFound, Code: "not_found", Message: err.Error(), Hint: "see what waits: GET /api/v1/approvals"}).write(w)
	case errors.Is(err, approval.ErrDecided), errors.Is(err, approval.ErrOver):
		(&problem{status: http.StatusConflict, Code: "conflict", Message: "approval " + id + ": " + err.Error(), Hint: "see what waits: GET /api/v1/approvals"}).write(w)
	default:
		d.options.Log("an approval cannot be decided: %v", err)
		(&problem{status: http.StatusServiceUnavailable, Code: "unavailable", Message: "the approval cannot be decided at the moment", Hint: "the daemon's log says why"}).write(w)
	}
}
