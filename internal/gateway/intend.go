package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	stageLimit  = "limit"
	stageIntend = "intend"
)

// These are the states of a row in the table calls.
const (
	stateSending = "sending"
	stateUnknown = "unknown"
)

// limits checks the tool's rate and spending limits. It does not charge them, because a person may still refuse the
// call.
func limits(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if p.tool.Policy.Rate == nil && p.tool.Policy.Spend == nil || p.Continues != "" {
		return nil
	}
	var stopped *call.Refusal
	err := g.store.DB.Read(ctx, func(tx state.Tx) (err error) {
		stopped, err = limit.Look(tx, g.meter(p))
		return err
	})
	if err != nil {
		return StoreFailed(ctx, stageLimit, err)
	}
	return stopped
}

func (g *Gateway) meter(p *inflight) limit.Meter {
	at := p.taken
	if at.IsZero() {
		at = time.Now()
	}
	return limit.Meter{
		Agent: g.name, Tool: nameOf(p.tool), Call: p.ID, At: at,
		Rate: p.tool.Policy.Rate, Spend: p.tool.Policy.Spend, Arguments: p.canonical,
	}
}

// errStopped is returned from a transaction to roll it back. It is not reported as a store error.
var errStopped = errors.New("refused")

// intend stores the call's intent, a row in the table calls, before anything is sent. The same transaction repeats
// the gate's checks, charges the limits and uses up the approval.
func intend(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if !p.needsIntent() {
		return nil
	}
	if ctx.Err() != nil {
		return call.Refuse(stageIntend, call.TimedOut, "the call was cancelled before it was made")
	}
	if p.forwarded != nil {
		// Check the gate with the redacted arguments before the transaction starts. Parsing them can take a long time
		// and must not delay other writers.
		if stopped := gateStage(g, ctx, p); stopped != nil {
			return stopped
		}
	}
	g.describe(p) // describe scans the arguments, so it runs before the transaction too
	for {
		// The call counts toward the limits from now on. It may have waited a long time for its approval.
		p.taken = time.Now()
		var stopped *call.Refusal
		var e *earlierCall
		// Cancelling the call must not cancel this write. Otherwise, the gateway would not know whether the intent is
		// stored.
		err := g.store.DB.Write(context.WithoutCancel(ctx), func(tx state.Tx) (err error) {
			stopped, e = nil, nil
			if err = g.store.Journal.InForce(tx); err != nil {
				return err
			}
			if stopped = gateStage(g, state.Within(ctx, tx), p); stopped != nil {
				return errStopped
			}
			if p.IdempotencyKey != "" {
				if e, err = g.claim(tx, p); err != nil || e != nil {
					return errors.Join(err, errStopped)
				}
			}
			if p.Continues == "" { // a continued call was already charged when its first round was sent
				if stopped, err = limit.Take(tx, g.meter(p)); err != nil || stopped != nil {
					return errors.Join(err, errStopped)
				}
			}
			if stopped, err = g.useApproval(tx, p); err != nil || stopped != nil {
				return errors.Join(err, errStopped)
			}
			for _, participant := range g.options.Participants {
				if stopped, err = participant.Begin(tx, p.Call); err != nil || stopped != nil {
					return errors.Join(err, errStopped)
				}
			}
			return g.writeIntent(tx, p)
		})
		switch {
		case err == nil:
			p.intended = true
			return nil
		case stopped != nil:
			return stopped
		case e == nil:
			return StoreFailed(ctx, stageIntend, err)
		}
		// Another call has reserved the same idempotency key.
		if stopped := remember(g, ctx, p); stopped != nil || p.replayed != "" {
			return stopped
		}
	}
}

const (
	insertClaim = `INSERT INTO answers (agent, principal, idem, call, mac, done) VALUES ($1, $2, $3, $4, $5, 0)
ON CONFLICT (agent, principal, idem) DO NOTHING`
	insertCall = `INSERT INTO calls (id, agent, digest, tool, principal, state, owner, idem, sealed, record, started, mac)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
)

// claim reserves the call's idempotency key. If an earlier call has reserved the key, claim returns that call.
func (g *Gateway) claim(tx state.Tx, p *inflight) (*earlierCall, error) {
	n, err := tx.Exec(insertClaim, g.name, p.Principal, p.IdempotencyKey, p.ID, g.keyMAC(p))
	if err != nil || n == 1 {
		return nil, err
	}
	e, err := g.findEarlier(tx, p)
	if err == nil && e == nil {
		e = &earlierCall{} // the earlier call was deleted between the two statements
	}
	return e, err
}

func (g *Gateway) writeIntent(tx state.Tx, p *inflight) error {
	p.draft = g.newRecord(p)
	draft, err := json.Marshal(p.draft)
	if err != nil {
		return err
	}
	o := orphan{
		id: p.ID, agent: g.name, digest: g.agent.Digest, tool: nameOf(p.tool), principal: p.Principal,
		idem: p.IdempotencyKey, record: draft,
	}
	var sealed any
	if p.tool.Policy.Idempotent {
		sealed = g.store.Keys.Seal(o.purpose(), p.Arguments)
	}
	mac := g.store.Keys.MAC(macPurpose, []byte(o.content()))
	_, err = tx.Exec(insertCall, o.id, o.agent, o.digest, o.tool, o.principal, stateSending, g.store.DB.Owner(),
		o.idem, sealed, o.record, p.start.UnixMicro(), mac[:])
	return err
}

// quota counts the call toward the principal's quota, which covers calls to all agents. It runs after the approval, so
// that a call that is never approved does not count. Each round of a continued call counts, because each round is a
// request to the server. A call still counts if it fails later.
func quota(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if g.options.Quotas == nil {
		return nil
	}
	return g.count(ctx, p, false)
}

// quotaLeft returns a refusal if the principal's quota is used up. It does not count the call.
func quotaLeft(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	return g.count(ctx, p, true)
}

func (g *Gateway) count(ctx context.Context, p *inflight, dryRun bool) *call.Refusal {
	stopped, err := g.options.Quotas.Count(ctx, g.store.DB, p.Principal, time.Now(), dryRun)
	if err != nil {
		return StoreFailed(ctx, stageLimit, err)
	}
	return stopped
}
