package gateway

import (
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// contain recovers a panic and then calls the given function. A defect that one call triggers must not end the calls of
// other agents. Code that handles the content of callers or servers must defer contain.
func (g *Gateway) contain(then func()) {
	if g.options.OnPanic == nil {
		return
	}
	if value := recover(); value != nil {
		g.options.OnPanic(diag.Panic(value))
		then()
	}
}

// broken returns the refusal of a call that ended with a panic.
func broken(stage string, effect call.Effect) *call.Refusal {
	r := call.Refuse(stage, call.ServerUnavailable, "ambit itself failed while it handled the call")
	r.Hint, r.Effect = "this is a defect of ambit; its log contains the details", effect
	return r
}

// abandon ends a call after a panic and returns its refusal. If the outcome is not recorded yet, abandon records it
// like the outcome of a call whose server went away. The last parameter is the refusal that had stopped the call before
// the panic, or nil.
func (g *Gateway) abandon(p *inflight, begun bool, stopped *call.Refusal) (refusal *call.Refusal) {
	effect := call.NoEffect
	switch {
	case stopped != nil:
		effect = stopped.Effect
	case !p.intended:
	case p.stage == guard.StageOut || p.stage == stageFlow: // the tool has answered
		effect = call.EffectDone
	default:
		effect = call.EffectUnknown
	}
	failed := broken(p.stage, effect)
	failed.Unsent = !begun || stopped != nil && stopped.Unsent
	if p.recording {
		if p.stage == stageRecord {
			g.recordDraft(p, failed)
		}
		return failed
	}
	defer g.contain(func() {
		g.recordDraft(p, failed)
		refusal = failed
	})
	return g.record(p, failed)
}

// recordDraft records the outcome of a call with an intent after a panic while the outcome was recorded. It uses the
// journal record of the intent, because another attempt to make the record could end with the same panic. Without
// recordDraft, the call would stay unfinished until this process ends.
func (g *Gateway) recordDraft(p *inflight, failed *call.Refusal) {
	if !p.intended {
		return
	}
	r := p.draft
	result := call.Result{Duration: p.result.Duration}
	conclude(&r, &inflight{Call: p.Call, approval: p.approval, result: result}, failed)
	g.late.Go(func() { g.recordLater(p, failed, r) })
}
