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
	stageApprove       = "approve"
	defaultApprovalTTL = 10 * time.Minute
)

// approve waits until a person approves the call. It returns at once if the tool needs no approval. A later stage,
// "intend", charges the limits and uses up the approval.
func approve(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if !p.tool.Policy.HumanApproval || p.Continues != "" {
		return nil
	}
	if len(p.More) > 0 {
		// The inputResponses would reach the server, but the approver sees only the arguments.
		return call.Refuse(stageApprove, call.InputInvalid,
			"%s needs approval, but the call has inputResponses that the approver would not see", p.tool.Name)
	}
	now := time.Now()
	p.question = &approval.Question{
		ID: NewID(), Agent: g.name, Digest: g.agent.Digest, Tool: nameOf(p.tool), Principal: p.Principal, Call: p.ID,
		Arguments: json.RawMessage(p.toSend()), Asked: now, Expires: now.Add(g.options.Approvals.TTL),
	}
	q, err := approval.Ask(ctx, g.store, p.question)
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
	if g.options.Approvals.TrustElicitation && p.canElicit() {
		return g.elicit(ctx, p, q)
	}
	return g.waitForPerson(ctx, p, q)
}

func (g *Gateway) waitForPerson(ctx context.Context, p *inflight, q *approval.Question) *call.Refusal {
	ctx, cancel := context.WithDeadline(ctx, q.Expires)
	defer cancel()
	if p.Gone != nil {
		// If the client has disconnected, the call is not made, even if a person approves it.
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
				"the call to %s is not approved yet (approval %s)", p.tool.Name, q.ID).Again()
			if time.Now().Before(q.Expires) { // the caller stopped waiting before the question expired
				r.Hint = fmt.Sprintf(
					"the approval request expires at %s; to approve, run: ambit approvals approve %s; then repeat the call",
					q.Expires.Local().Format("15:04:05 MST"), q.ID)
			}
			return r
		case err != nil:
			return StoreFailed(stageApprove, err)
		}
		// If the caller has lost access, the call is not made, even if a person approves it.
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
			return call.Refuse(stageApprove, call.ApprovalDenied, "%s refused the call to %s%s", now.Decider,
				p.tool.Name, reason)
		}
		g.waitForChange(ctx)
	}
}

// reportWaiting tells the operator and the client that the call waits for approval.
func (g *Gateway) reportWaiting(p *inflight, q *approval.Question) {
	message := fmt.Sprintf("waiting for a person to approve %s; to approve, run: ambit approvals approve %s",
		p.tool.Name, q.ID)
	if g.options.OnAsk != nil {
		g.options.OnAsk(message)
	}
	if p.OnNotify == nil {
		return
	}
	params, err := json.Marshal(map[string]any{"progress": 0, "message": message})
	if err == nil {
		p.OnNotify("notifications/progress", params)
	}
}

// canElicit reports whether the client can ask its user a question.
func (p *inflight) canElicit() bool {
	if p.Client == nil || p.Client.Asker == nil {
		return false
	}
	var c struct {
		Elicitation *struct{} `json:"elicitation"`
	}
	return json.Unmarshal(p.Client.Capabilities, &c) == nil && c.Elicitation != nil
}

// elicit asks the client's user to approve the call. The operator must have enabled TrustElicitation, because a
// client could answer without asking a person.
func (g *Gateway) elicit(ctx context.Context, p *inflight, q *approval.Question) *call.Refusal {
	ctx, cancel := context.WithDeadline(ctx, q.Expires)
	defer cancel()
	params, err := json.Marshal(map[string]any{
		"message": fmt.Sprintf("%s asks to call %s with these arguments:\n%s", g.agent.Name, nameOf(p.tool), p.toSend()),
		"requestedSchema": map[string]any{
			"type": "object", "required": []string{"approve"},
			"properties": map[string]any{"approve": map[string]any{"type": "boolean", "title": "Approve this call"}},
		},
	})
	if err != nil {
		return call.Refuse(stageApprove, call.ApprovalDenied, "the request for approval cannot be encoded: %v", err)
	}
	raw, err := p.Client.Asker.Ask(ctx, "elicitation/create", params)
	if err != nil {
		return call.Refuse(stageApprove, call.ApprovalExpired,
			"the client did not answer the request to approve the call to %s", p.tool.Name).Again()
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

// useApproval uses up the call's approval, if the call needs one.
func (g *Gateway) useApproval(tx state.Tx, p *inflight) (*call.Refusal, error) {
	if p.approval == "" {
		return nil, nil
	}
	good, err := approval.Use(tx, g.store, p.approval, p.question, time.Now())
	if err != nil || good {
		return nil, err
	}
	return usedUp(p.approval), nil
}

func usedUp(id string) *call.Refusal {
	return call.Refuse(stageApprove, call.ApprovalExpired,
		"approval %s has expired or was used by another call", id).Again()
}
