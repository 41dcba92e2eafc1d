package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	stageApprove = "approve"
	// defaultApprovalTTL is how long a question waits for a person by default.
	defaultApprovalTTL = 10 * time.Minute
)

// approve waits for a person's approval, if the tool needs one. The limits are not
// charged yet, and only intend uses the approval.
func approve(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if !p.tool.Policy.HumanApproval || p.Continues != "" {
		return nil
	}
	if len(p.More) > 0 {
		// They would be sent with the approved arguments, and the person would not see them.
		return call.Refuse(stageApprove, call.InputInvalid,
			"%s needs approval, and the call has inputResponses that the approver would not see", p.tool.Name)
	}
	now := time.Now()
	q, err := approval.Ask(ctx, g.store, &approval.Question{
		ID: NewID(), Agent: g.name, Digest: g.agent.Digest, Tool: nameOf(p.tool), Principal: p.Principal, Call: p.ID,
		Arguments: json.RawMessage(p.sent()), Asked: now, Expires: now.Add(g.approvals.TTL),
	})
	switch {
	case errors.Is(err, approval.ErrTooMany):
		return call.Refuse(stageApprove, call.ApprovalDenied, "%v", err).Again()
	case err != nil:
		return StoreFailed(stageApprove, err)
	}
	p.approval = q.ID
	if q.State == approval.Approved {
		return nil
	}
	g.reportWaiting(p, q)
	if g.approvals.TrustElicitation && p.canElicit() {
		return g.elicit(ctx, p, q)
	}
	return g.waitForPerson(ctx, p, q)
}

func (g *Gateway) waitForPerson(ctx context.Context, p *inflight, q *approval.Question) *call.Refusal {
	ctx, cancel := context.WithDeadline(ctx, q.Expires)
	defer cancel()
	if p.Gone != nil {
		// A call whose client has gone is not made, even if it is approved.
		go func() {
			select {
			case <-p.Gone:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	for {
		now, err := approval.Look(ctx, g.store, q.ID)
		switch {
		case ctx.Err() != nil:
			r := call.Refuse(stageApprove, call.ApprovalExpired,
				"the call of %s is not approved yet (approval %s)", p.tool.Name, q.ID).Again()
			if time.Now().Before(q.Expires) { // the caller did not wait for the answer
				r.Hint = fmt.Sprintf("approve it by %s: ambit approvals approve %s; then make the same call again",
					q.Expires.Local().Format("15:04:05 MST"), q.ID)
			}
			return r
		case err != nil:
			return StoreFailed(stageApprove, err)
		}
		// A caller that has lost access gets no call, even if it is approved.
		if stopped := stillAllowed(ctx, stageApprove); stopped != nil {
			return stopped
		}
		switch {
		case now.State == approval.Approved:
			return nil
		case now.State == approval.Used:
			return usedUp(q.ID)
		case now.State != approval.Pending:
			reason := strings.TrimSuffix(": "+clip(now.Reason), ": ")
			return call.Refuse(stageApprove, call.ApprovalDenied, "%s refused the call of %s%s", now.Decider, p.tool.Name, reason)
		}
		g.waitForChange(ctx)
	}
}

// reportWaiting informs the operator, and a client that listens that the call waits for
// approval.
func (g *Gateway) reportWaiting(p *inflight, q *approval.Question) {
	message := fmt.Sprintf("waiting for a person to approve %s: ambit approvals approve %s", p.tool.Name, q.ID)
	if g.onAsk != nil {
		g.onAsk(message)
	}
	if p.OnNotify == nil {
		return
	}
	params, err := json.Marshal(map[string]any{"progress": 0, "message": message})
	if err == nil {
		p.OnNotify("notifications/progress", params)
	}
}

// canElicit reports whether the client can ask its user.
func (p *inflight) canElicit() bool {
	if p.Client == nil || p.Client.Asker == nil {
		return false
	}
	var c struct {
		Elicitation *struct{} `json:"elicitation"`
	}
	return json.Unmarshal(p.Client.Capabilities, &c) == nil && c.Elicitation != nil
}

// elicit asks the user of the client. It is used only if the operator trusts that a
// person answers there.
func (g *Gateway) elicit(ctx context.Context, p *inflight, q *approval.Question) *call.Refusal {
	ctx, cancel := context.WithDeadline(ctx, q.Expires)
	defer cancel()
	params, err := json.Marshal(map[string]any{
		"message": fmt.Sprintf("%s asks to call %s with these arguments:\n%s", g.agent.Name, nameOf(p.tool), p.sent()),
		"requestedSchema": map[string]any{
			"type": "object", "required": []string{"approve"},
			"properties": map[string]any{"approve": map[string]any{"type": "boolean", "title": "Approve this call"}},
		},
	})
	if err != nil {
		return call.Refuse(stageApprove, call.ApprovalDenied, "the question cannot be encoded: %v", err)
	}
	raw, err := p.Client.Asker.Ask(ctx, "elicitation/create", params)
	if err != nil {
		return call.Refuse(stageApprove, call.ApprovalExpired,
			"the client did not answer whether the call of %s is approved", p.tool.Name).Again()
	}
	var answer struct {
		Action  string `json:"action"`
		Content struct {
			Approve bool `json:"approve"`
		} `json:"content"`
	}
	yes := json.Unmarshal(raw, &answer) == nil && answer.Action == "accept" && answer.Content.Approve
	err = approval.Decide(ctx, g.store, q.ID, yes, p.Principal+" (asked by the client)", "")
	if err != nil && !errors.Is(err, approval.ErrDecided) && !errors.Is(err, approval.ErrOver) {
		return StoreFailed(stageApprove, err)
	}
	return g.waitForPerson(ctx, p, q)
}

// useApproval uses up the approval of a call that needs one.
func (g *Gateway) useApproval(tx state.Tx, p *inflight) (*call.Refusal, error) {
	if p.approval == "" {
		return nil, nil
	}
	good, err := approval.Use(tx, p.approval, time.Now())
	if err != nil || good {
		return nil, err
	}
	return usedUp(p.approval), nil
}

func usedUp(id string) *call.Refusal {
	return call.Refuse(stageApprove, call.ApprovalExpired,
		"the approval %s was used by another call, or has expired", id).Again()
}
