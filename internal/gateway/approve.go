package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	stageApprove       = "approve"
	defaultApprovalTTL = 10 * time.Minute
)

// approve waits until a person approves the call. It returns at once if the tool needs no approval and the arguments are
// not in doubt. A later stage, "intend", charges the limits and uses up the approval.
func approve(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	doubtful, stopped := g.doubts(p)
	if stopped != nil || !doubtful && !g.needsApproval(p.tool) {
		return stopped
	}
	p.dropUnseenMeta()
	if p.Continues != "" && !doubtful {
		return nil
	}
	if stopped = g.prepare(ctx, p); stopped != nil {
		return stopped
	}
	if stopped = g.askPerson(ctx, p); stopped == nil && p.verdict != nil {
		// The person has seen these arguments, so approve their values for later calls too.
		g.session(p.Principal, p.Client, time.Now()).Approve(g.options.Flow.tool(p.tool), p.canonical)
	}
	return stopped
}

// prepare starts the tool's server, so that a person is asked only about a call that can be made.
func (g *Gateway) prepare(ctx context.Context, p *inflight) *call.Refusal {
	b, ok := g.options.Binding.(call.Preparer)
	if !ok {
		return nil
	}
	if err := b.Prepare(ctx, p.tool, p.Principal); err != nil {
		return g.guards.redact(call.AsRefusal(stageAct, err))
	}
	return nil
}

// needsApproval reports whether the manifest or the operator requires a person to approve every call of a tool.
func (g *Gateway) needsApproval(t *agent.Tool) bool {
	return t.Policy.HumanApproval || g.options.Operator.Approval.Asks(g.name, t)
}

// askPerson stores a question about the call and waits for the answer.
func (g *Gateway) askPerson(ctx context.Context, p *inflight) *call.Refusal {
	if len(p.More) > 0 {
		// Refuse inputResponses, because the server would receive them, but the approver sees only the arguments.
		return call.Refuse(stageApprove, call.InputInvalid,
			"%s needs approval, but the call has inputResponses that the approver would not see", p.tool.Name)
	}
	now := time.Now()
	p.question = &approval.Question{
		ID: NewID(), Agent: g.name, Digest: g.agent.Digest, Tool: nameOf(p.tool), Principal: p.Principal, Call: p.ID,
		Arguments: json.RawMessage(p.toSend()), Asked: now, Expires: now.Add(g.options.Approvals.TTL),
	}
	if p.verdict != nil {
		p.question.Origin = originLines(p.verdict)
	}
	q, err := approval.Ask(ctx, g.store, p.question)
	switch {
	case errors.Is(err, approval.ErrTooMany):
		r := call.Refuse(stageApprove, call.ApprovalDenied, "%v", err).Again()
		r.Hint = "decide the waiting calls, then call again; to list them, run: ambit approvals"
		return r
	case err != nil:
		return StoreFailed(ctx, stageApprove, err)
	}
	p.approval = q.ID
	if q.State == approval.Approved {
		return nil
	}
	if q.State == approval.Denied {
		return deniedBy(p, q)
	}
	g.reportWaiting(p, q)
	var stopped *call.Refusal
	if g.options.Approvals.TrustElicitation && p.canElicit() {
		stopped = g.elicit(ctx, p, q)
	} else {
		stopped = g.waitForPerson(ctx, p, q)
	}
	if stopped != nil {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		defer cancel()
		denied := stopped.Code == call.ApprovalDenied
		_ = approval.Leave(leaving, g.store, q.ID, denied, time.Now()) // an error at most repeats a denial or hides a note
	}
	return stopped
}

// deniedBy returns the refusal of a call that a person denied.
func deniedBy(p *inflight, q *approval.Question) *call.Refusal {
	reason := strings.TrimSuffix(": "+clip(q.Reason), ": ")
	return call.Refuse(stageApprove, call.ApprovalDenied, "%s refused the call to %s%s", q.Decider, p.tool.Name, reason)
}

// dropUnseenMeta removes the members of _meta that the protocol does not define for calls. The approver does not see
// these members, so the server must not get them. The call is not refused, because many clients add members to every
// call, such as the id of a conversation.
func (p *inflight) dropUnseenMeta() {
	var kept [][]byte
	dropped := false
	rawjson.Members(p.Meta, func(name string, value jsontext.Value) {
		const protocol = "io.modelcontextprotocol/"
		switch {
		case name == "progressToken" || name == protocol+"logLevel":
			kept = append(kept, slices.Concat([]byte(strconv.Quote(name)+":"), value))
		case !strings.HasPrefix(name, protocol): // ambit itself sends the members with this prefix
			dropped = true
		}
	})
	if p.Meta = nil; len(kept) > 0 {
		p.Meta = slices.Concat([]byte("{"), bytes.Join(kept, []byte(",")), []byte("}"))
	}
	if dropped {
		p.notesMu.Lock()
		defer p.notesMu.Unlock()
		p.notes = append(p.notes, "members of _meta were not sent, because the approver does not see them")
	}
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
		case ctx.Err() != nil && p.isGone():
			return call.Refuse(stageApprove, call.TimedOut,
				"the client disconnected while the call to %s waited for approval %s", p.tool.Name, q.ID).Again()
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
			return StoreFailed(ctx, stageApprove, err)
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
			return deniedBy(p, now)
		}
		g.waitForChange(ctx)
	}
}

// isGone reports whether the client has disconnected.
func (p *inflight) isGone() bool {
	select {
	case <-p.Gone:
		return true
	default: // if Gone is nil, this case is always taken
		return false
	}
}

// reportWaiting reports to the operator and the client that the call waits for approval.
func (g *Gateway) reportWaiting(p *inflight, q *approval.Question) {
	message := fmt.Sprintf("waiting for a person to approve the call to %s; to approve it, run: "+
		"ambit approvals approve %s", p.tool.Name, q.ID)
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

// canElicit reports whether the client can ask its user to approve the call. A call that is part of another call cannot
// be repeated alone.
func (p *inflight) canElicit() bool {
	if p.Client == nil || p.Client.Asker == nil && (!p.Client.Repeats || p.Parent != "") {
		return false
	}
	var c struct {
		Elicitation *struct {
			Form, URL *struct{}
		} `json:"elicitation"`
	}
	return json.Unmarshal(p.Client.Capabilities, &c) == nil && c.Elicitation != nil &&
		(c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

// elicit asks the client's user to approve the call. The operator must have enabled TrustElicitation, because a client
// could answer without asking a person. If the client answers by repeating the call, elicit returns a refusal with the
// question.
func (g *Gateway) elicit(ctx context.Context, p *inflight, q *approval.Question) *call.Refusal {
	ctx, cancel := context.WithDeadline(ctx, q.Expires)
	defer cancel()
	shown := approval.Show(p.toSend())
	lines := append([]string{
		fmt.Sprintf("%s asks to call %s with these arguments:", diag.Printable(g.agent.Name), diag.Printable(nameOf(p.tool))), shown,
	}, slices.Concat(p.question.Origin, approval.LookAlikes(nameOf(p.tool), shown))...)
	params, err := json.Marshal(map[string]any{
		"message": strings.Join(lines, "\n"),
		"requestedSchema": map[string]any{
			"type": "object", "required": []string{"approve"},
			"properties": map[string]any{"approve": map[string]any{"type": "boolean", "title": "Approve this call"}},
		},
	})
	if err != nil {
		return call.Refuse(stageApprove, call.ApprovalDenied, "the request for approval cannot be encoded: %v", err)
	}
	if p.Client.Asker == nil {
		r := call.Refuse(stageApprove, call.ApprovalExpired, "the call to %s waits for approval %s", p.tool.Name, q.ID).Again()
		r.Question = &call.Question{Approval: q.ID, Params: params}
		return r
	}
	raw, err := p.Client.Asker.Ask(ctx, "elicitation/create", params)
	if err != nil {
		return call.Refuse(stageApprove, call.ApprovalExpired,
			"the client did not answer the request to approve the call to %s", p.tool.Name).Again()
	}
	if refusal := g.Answer(ctx, q.ID, p.Principal, raw); refusal != nil {
		return refusal
	}
	return g.waitForPerson(ctx, p, q)
}

// Answer decides an approval with the answer of the client's user. It returns a refusal if the answer is not yes. If
// the approval already has a decision, that decision stays.
func (g *Gateway) Answer(ctx context.Context, id, principal string, answer jsontext.Value) *call.Refusal {
	if !g.options.Approvals.TrustElicitation {
		return call.Refuse(stageApprove, call.ApprovalDenied, "the operator does not accept approvals from clients")
	}
	action, _ := rawjson.Text(rawjson.Lookup(answer, "action"))
	yes := rawjson.Valid(answer) && !rawjson.Twice(answer) && !rawjson.Twice(rawjson.Lookup(answer, "content")) &&
		action == "accept" && string(rawjson.Lookup(answer, "content", "approve")) == "true"
	who := principal + " (asked by the client)"
	err := approval.Decide(ctx, g.store, id, yes, who, "")
	switch {
	case err != nil && !errors.Is(err, approval.ErrDecided) && !errors.Is(err, approval.ErrOver):
		return StoreFailed(ctx, stageApprove, err)
	case !yes:
		return call.Refuse(stageApprove, call.ApprovalDenied, "%s refused the call", who)
	}
	return nil
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
