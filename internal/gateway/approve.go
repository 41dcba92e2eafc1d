package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	stageApprove = "approve"
	// defaultApprovalTTL is how long a question waits for a person.
	defaultApprovalTTL = 10 * time.Minute
)

// approve waits for a person, where the tool asks for one. Nothing of the
// call's has been taken yet, and the answer is used only by intend.
func approve(g *Gateway, ctx context.Context, p *passing) *call.Refusal {
	if !p.tool.Policy.HumanApproval || p.Continues != "" {
		return nil
	}
	if len(p.More) > 0 {
		// The person would not see them, and they would be sent with what was approved.
		return call.Refuse(stageApprove, call.InputInvalid,
			"a person approves the arguments of %s, and inputResponses came with them that answer no question", p.tool.Name)
	}
	now := time.Now()
	q, err := approval.Ask(ctx, g.books, &approval.Question{
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

func (g *Gateway) waitForPerson(ctx context.Context, p *passing, q *approval.Question) *call.Refusal {
	ctx, cancel := context.WithDeadline(ctx, q.Expires)
	defer cancel()
	if p.Gone != nil {
		// An approval does not make a call that its client no longer waits for.
		go func() {
			select {
			case <-p.Gone:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	for {
		now, err := approval.Look(ctx, g.books, q.ID)
		switch {
		case ctx.Err() != nil:
			r := call.Refuse(stageApprove, call.ApprovalExpired,
				"nobody has approved the call of %s yet (approval %s)", p.tool.Name, q.ID).Again()
			if time.Now().Before(q.Expires) { // the caller did not wait for the answer
				r.Hint = fmt.Sprintf("until %s it can be approved: ambit approvals approve %s; then make the same call again", q.Expires.Local().Format("15:04:05 MST"), q.ID)
			}
			return r
		case err != nil:
			return StoreFailed(stageApprove, err)
		}
		// A caller who has lost its access gets no call by an approval.
		if stopped := stillAllowed(ctx, stageApprove); stopped != nil {
			return stopped
		}
		switch {
		case now.State == approval.Approved:
			return nil
		case now.State == approval.Used:
			return usedUp(q.ID)
		case now.State != approval.Pending:
			return call.Refuse(stageApprove, call.ApprovalDenied,
				"%s refused the call of %s%s", now.Decider, p.tool.Name, because(now.Reason))
		}
		g.waitForChange(ctx)
	}
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + clip(reason)
}

// reportWaiting reports to the operator, and to a client that listens, that a
// person is being asked.
func (g *Gateway) reportWaiting(p *passing, q *approval.Question) {
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

// canElicit reports whether the client can ask the person who sits before it.
func (p *passing) canElicit() bool {
	if p.Client == nil || p.Client.Asker == nil {
		return false
	}
	var c struct {
		Elicitation *struct{} `json:"elicitation"`
	}
	return json.Unmarshal(p.Client.Capabilities, &c) == nil && c.Elicitation != nil
}

// elicit asks the person at the client. It is used only where the operator
// trusts that it is a person who answers there.
func (g *Gateway) elicit(ctx context.Context, p *passing, q *approval.Question) *call.Refusal {
	ctx, cancel := context.WithDeadline(ctx, q.Expires)
	defer cancel()
	params, err := json.Marshal(map[string]any{
		"message": fmt.Sprintf("%s wants to call %s with these arguments:\n%s", g.agent.Name, nameOf(p.tool), p.sent()),
		"requestedSchema": map[string]any{
			"type": "object", "required": []string{"approve"},
			"properties": map[string]any{"approve": map[string]any{"type": "boolean", "title": "Approve this call"}},
		},
	})
	if err != nil {
		return call.Refuse(stageApprove, call.ApprovalDenied, "the question cannot be written: %v", err)
	}
	raw, err := p.Client.Asker.Ask(ctx, "elicitation/create", params)
	if err != nil {
		return call.Refuse(stageApprove, call.ApprovalExpired,
			"the client did not say whether the call of %s is approved", p.tool.Name).Again()
	}
	var answer struct {
		Action  string `json:"action"`
		Content struct {
			Approve bool `json:"approve"`
		} `json:"content"`
	}
	yes := json.Unmarshal(raw, &answer) == nil && answer.Action == "accept" && answer.Content.Approve
	if err := approval.Decide(ctx, g.books, q.ID, yes, p.Principal+" (asked by the client)", ""); err != nil && !errors.Is(err, approval.ErrDecided) && !errors.Is(err, approval.ErrOver) {
		return StoreFailed(stageApprove, err)
	}
	return g.waitForPerson(ctx, p, q)
}

// useApproval takes the approval for this call, if it needs one.
func (g *Gateway) useApproval(tx state.Tx, p *passing) (*call.Refusal, error) {
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
