package gateway

import (
	"context"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/guard"
)

// Why explains whether a call would be allowed, without making the call or charging limits. It returns the reasons of
// each stage up to the first denial. If the gate denies the call, Why returns all reasons of the gate.
func (g *Gateway) Why(ctx context.Context, c *call.Call) (allowed bool, reasons []call.Reason) {
	copied := *c // a copy, because redaction changes the arguments
	p := &inflight{Call: &copied}
	ask := func(name string, run func(*Gateway, context.Context, *inflight) *call.Refusal, passed func() string) bool {
		if r := run(g, ctx, p); r != nil {
			reasons = append(reasons, r.Deny(name))
			return false
		}
		if said := passed(); said != "" {
			reasons = append(reasons, call.Reason{Stage: name, Allowed: true, Detail: said})
		}
		return true
	}
	if !ask(stageAdmit, admit, func() string { return "the arguments are a JSON object" }) ||
		!ask(stageResolve, resolveStage, func() string { return "the manifest declares the tool " + nameOf(p.tool) }) {
		return false, reasons
	}
	flows := g.whyFlow(p)
	d := gate.Decide(ctx, g.Agent(), g.name, p.tool, p.Call, g.options.Rules)
	reasons = append(reasons, d.Reasons...)
	if hidden := g.hides(p.tool, p.Call); hidden != nil {
		if i := slices.IndexFunc(d.Reasons, func(r call.Reason) bool { return !r.Allowed }); i >= 0 {
			hidden.Code, hidden.Hint, hidden.Command = d.Reasons[i].Code, d.Reasons[i].Hint, d.Reasons[i].Command
		}
		reasons = append(reasons, *hidden)
	}
	// If there are no arguments, explain only whether the tool can be called.
	if !d.Allowed || len(c.Arguments) > 0 && !ask(guard.StageIn, guardIn, p.guarded) {
		return false, reasons
	}
	if g.store != nil && len(c.Arguments) > 0 && !ask(stageLimit, limits, p.limited) {
		return false, reasons
	}
	if g.store != nil && g.options.Quotas != nil && !ask(stageLimit, quotaLeft,
		func() string { return "the quota allows another call" }) {
		return false, reasons
	}
	if flows != nil {
		if reasons = append(reasons, *flows); !flows.Allowed {
			return false, reasons
		}
	}
	if g.needsApproval(p.tool) {
		reasons = append(reasons, call.Reason{
			Stage: stageApprove, Allowed: true,
			Detail: "a person must approve the call first",
		})
	}
	return true, reasons
}

func (p *inflight) guarded() string {
	switch {
	case len(p.notes) == 0 && p.tool.InputSchema == "":
		return "the arguments pass the guardrails; the manifest has no schema for them"
	case len(p.notes) == 0:
		return "the arguments pass the schema and the guardrails"
	}
	return "the arguments would be redacted: " + strings.Join(p.notes, "; ")
}

func (p *inflight) limited() string {
	if p.tool.Policy.Rate == nil && p.tool.Policy.Spend == nil {
		return ""
	}
	return "the limits allow the call"
}
