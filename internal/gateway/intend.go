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

// States of a row in calls.
const (
	stateSending = "sending"
	stateUnknown = "unknown"
)

// limits checks whether rate and spend allow the call. It consumes nothing: a
// person may still have to approve it.
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
		return StoreFailed(stageLimit, err)
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

// errStopped undoes a transaction whose call is refused.
var errStopped = errors.New("refused")

// intend commits to the call before anything is sent. It repeats the checks of the
// earlier stages, charges the limits and uses the approval.
func intend(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if !p.needsIntent() {
		return nil
	}
	if ctx.Err() != nil {
		return call.Refuse(stageIntend, call.TimedOut, "the call was cancelled before it was made")
	}
	for {
		// An approval may have taken long: the limits count from the time of sending.
		p.taken = time.Now()
		var stopped *call.Refusal
		var e *earlier
		// The outcome of this write must be known, so it cannot be cancelled.
		err := g.store.DB.Write(context.WithoutCancel(ctx), func(tx state.Tx) (err error) {
			stopped, e = nil, nil
			if err = g.store.Journal.InForce(tx); err != nil {
				return err
			}
			if stopped = gateStage(g, g.inside(ctx, tx), p); stopped != nil {
				return errStopped
			}
			if p.IdempotencyKey != "" {
				if e, err = g.claim(tx, p); err != nil || e != nil {
					return errors.Join(err, errStopped)
				}
			}
			if p.Continues == "" { // otherwise it was counted when it began
				if stopped, err = limit.Take(tx, g.meter(p)); err != nil || stopped != nil {
					return errors.Join(err, errStopped)
				}
			}
			if stopped, err = g.useApproval(tx, p); err != nil || stopped != nil {
				return errors.Join(err, errStopped)
			}
			for _, participant := range g.participants {
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
			return StoreFailed(stageIntend, err)
		}
		// Another call with the same key was first.
		if stopped := remember(g, ctx, p); stopped != nil || p.replayed != "" {
			return stopped
		}
	}
}

// inside returns a context that makes the gate's rules read in the transaction.
func (g *Gateway) inside(ctx context.Context, tx state.Tx) context.Context {
	if g.rules.Grants == nil && g.rules.Policy == nil {
		return ctx
	}
	return state.Within(ctx, tx)
}

const (
	insertClaim = `INSERT INTO answers (agent, principal, idem, call, mac, done) VALUES ($1, $2, $3, $4, $5, 0)
ON CONFLICT (agent, principal, idem) DO NOTHING`
	insertCall = `INSERT INTO calls (id, agent, digest, tool, principal, state, owner, idem, sealed, record, started)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
)

// claim reserves the call's key, or returns the call that has it.
func (g *Gateway) claim(tx state.Tx, p *inflight) (*earlier, error) {
	n, err := tx.Exec(insertClaim, g.name, p.Principal, p.IdempotencyKey, p.ID, g.keyMAC(p))
	if err != nil || n == 1 {
		return nil, err
	}
	e, err := g.findEarlier(tx, p)
	if err == nil && e == nil {
		e = &earlier{} // it was deleted since
	}
	return e, err
}

func (g *Gateway) writeIntent(tx state.Tx, p *inflight) error {
	var sealed any
	if p.tool.Policy.Idempotent {
		sealed = g.store.Keys.Seal(sealArguments+p.ID, p.Arguments)
	}
	draft, err := json.Marshal(g.newRecord(p))
	if err != nil {
		return err
	}
	_, err = tx.Exec(insertCall,
		p.ID, g.name, g.agent.Digest, nameOf(p.tool), p.Principal, stateSending, g.store.DB.Owner(),
		p.IdempotencyKey, sealed, draft, p.start.UnixMicro())
	return err
}
