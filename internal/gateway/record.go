package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	stageRecord = "record"
	// recordTime is the timeout for the transaction that records an outcome. Callers cannot cancel this transaction.
	recordTime = 30 * time.Second
	// recordAgain is the time between two attempts to record an outcome.
	recordAgain = time.Second
)

// record writes the call's outcome to the store and the journal in one transaction. It returns the call's refusal, or
// a new refusal if the transaction fails. The answer must not be released before record has returned.
func (g *Gateway) record(p *inflight, stopped *call.Refusal) *call.Refusal {
	r := g.newRecord(p)
	conclude(&r, p, stopped)
	err := g.write(p, stopped, &r)
	if err != nil {
		// The call's intent (its row in the table calls) is still stored, so recovery can find the call.
		if p.intended && !p.wasUnknown {
			g.late.Go(func() { g.recordLater(p, stopped, r) })
		}
		if p.intended && (stopped == nil || stopped.Effect != call.NoEffect) {
			return call.Uncertain(stageRecord, call.OutcomeUnknown,
				"%s was called, but its outcome could not be recorded: %v", p.tool.Name, err)
		}
		return StoreFailed(context.Background(), stageRecord, err)
	}
	if p.late != nil {
		g.late.Go(func() {
			defer g.contain(func() {}) // the outcome stays unknown
			g.hearLate(p)
		})
	}
	return stopped
}

// write makes the journal record durable. If the call has an intent, the same transaction updates the call's row.
func (g *Gateway) write(p *inflight, stopped *call.Refusal, r *journal.Record) error {
	if !p.intended && !p.wasUnknown && len(g.options.Participants) == 0 {
		return g.store.Journal.Note(r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	return g.store.DB.Write(ctx, func(tx state.Tx) error {
		if p.wasUnknown {
			if n, err := tx.Exec(deleteUnknown, p.ID); err != nil || n == 0 {
				return errors.Join(err, errStopped) // a person has settled the call, so the row is gone
			}
		}
		if p.intended {
			if err := g.settleRow(tx, p, stopped); err != nil {
				return err
			}
		}
		for _, participant := range g.options.Participants {
			o := call.Outcome{Result: p.result, Refusal: stopped, Begun: p.intended}
			if err := participant.Record(tx, p.Call, o); err != nil {
				return err
			}
		}
		_, err := g.store.Journal.Append(tx, r)
		return err
	})
}

// recordLater tries to settle the call again and again until the store accepts writes. A call that had no effect is
// settled as usual. The outcome of any other call becomes unknown, and a person must settle the call.
func (g *Gateway) recordLater(p *inflight, stopped *call.Refusal, r journal.Record) {
	known := stopped != nil && stopped.Effect == call.NoEffect
	if !known {
		r.Decision, r.Code = journal.Unknown, string(call.OutcomeUnknown)
		r.Stage, r.Effect = stageRecord, string(call.EffectUnknown)
		r.Detail = "the outcome of the call could not be recorded when the call ended"
	}
	defer g.contain(func() {}) // recovery marks the outcome as unknown when this process has ended
	pause := time.NewTicker(recordAgain)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-g.closing:
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), recordTime)
		err := g.store.DB.Write(ctx, func(tx state.Tx) error {
			n, err := tx.Exec(giveUpCall, p.ID, g.store.DB.Owner())
			if err != nil || n == 0 {
				return errors.Join(err, errStopped) // another process has settled the call
			}
			if known {
				if err := g.settleRow(tx, p, stopped); err != nil {
					return err
				}
			}
			_, err = g.store.Journal.Append(tx, &r)
			return err
		})
		cancel()
		if err == nil || errors.Is(err, errStopped) || errors.Is(err, state.ErrClosed) {
			return
		}
	}
}

// newRecord returns the call's journal record without the outcome.
func (g *Gateway) newRecord(p *inflight) journal.Record {
	r := journal.Record{
		Time: p.start, Call: p.ID, Parent: p.Parent,
		Agent: g.name, ID: g.agent.ID, Digest: g.agent.Digest, Principal: p.Principal, By: p.By,
		Tool: string(guard.Redact([]byte(clip(p.Tool)))), ArgumentsSize: len(p.Arguments), Origins: g.originsOf(p.verdict),
	}
	if c := g.agent.Capabilities; len(c.Required)+len(c.Optional) > 0 {
		r.Capabilities = &journal.Capabilities{Required: c.Required, Optional: c.Optional, Held: p.Held}
	}
	if p.tool != nil {
		r.Tool, r.SideEffect = p.tool.Name, string(p.tool.SideEffect)
		if p.tool.URI != nil {
			r.URI = p.tool.URI.String()
		}
	}
	if p.canonical != nil {
		d := g.describe(p)
		r.ArgumentsMAC, r.Arguments = d.mac, d.shown
	}
	return r
}

// conclude adds the call's outcome to its journal record.
func conclude(r *journal.Record, p *inflight, stopped *call.Refusal) {
	r.DurationUS, r.Approval = p.result.Duration.Microseconds(), p.approval
	observed(r, &p.result.Observed)
	defer func() {
		if p.result.Log != "" {
			r.Detail = strings.TrimPrefix(r.Detail+"; "+p.result.Log, "; ")
		}
	}()
	r.Decision = DecisionOf(p.result.IsError, stopped)
	if stopped != nil {
		r.Code, r.Stage = string(stopped.Code), stopped.Stage
		// Append the notes, because they explain why the gateway doubted the call. The refusal does not always say why.
		r.Effect, r.Detail = string(stopped.Effect), strings.TrimSuffix(clip(stopped.Message)+"; "+p.noted(), "; ")
		return
	}
	sum := sha256.Sum256(p.result.Raw)
	r.ResultHash, r.ResultSize = hex.EncodeToString(sum[:]), len(p.result.Raw)
	r.ToolError, r.Replay, r.Detail = p.result.IsError, p.replayed, p.noted()
}

// DecisionOf returns the journal's decision for a call. If the call was answered, stopped is nil, and toolError reports
// whether the answer is an error.
func DecisionOf(toolError bool, stopped *call.Refusal) journal.Decision {
	switch {
	case stopped == nil && !toolError:
		return journal.Allow
	case stopped == nil:
		return journal.Failed
	case stopped.Effect == call.EffectUnknown:
		return journal.Unknown
	case failures[stopped.Code]:
		return journal.Failed
	}
	return journal.Deny
}

// failures contains the codes that report a failure of the called tool instead of a denial by the gateway.
var failures = map[call.Code]bool{call.ProgramFailed: true, call.TimedOut: true}

// observed adds ambit's observations of the tool's server to a journal record. It redacts the names of hosts and
// programs, because the server chooses these names and can put secrets into them.
func observed(r *journal.Record, o *call.Observed) {
	clean := func(s string) string { return string(guard.Redact([]byte(clip(s)))) }
	for _, host := range o.Contacted {
		r.Contacted = append(r.Contacted, clean(host))
	}
	for _, right := range o.Refused {
		r.Refused = append(r.Refused, journal.Denial{
			Kind: string(right.Kind), What: clean(right.What), Private: right.Private,
		})
	}
	r.Omitted = o.Omitted
}

const (
	deleteUnknown = `DELETE FROM calls WHERE id = $1 AND state = 'unknown'`
	deleteCall    = `DELETE FROM calls WHERE id = $1`
	leaveUnknown  = `UPDATE calls SET state = 'unknown', sealed = NULL, owner = '' WHERE id = $1`
	keepAnswer    = `UPDATE answers SET sealed = $1, done = $2
WHERE agent = $3 AND principal = $4 AND idem = $5 AND call = $6`
	dropClaim = `DELETE FROM answers WHERE agent = $1 AND principal = $2 AND idem = $3 AND call = $4`
)

// settleRow deletes the call's row, or marks the outcome in it as unknown. It also updates the row of the call's
// idempotency key.
func (g *Gateway) settleRow(tx state.Tx, p *inflight, stopped *call.Refusal) (err error) {
	switch {
	case stopped == nil:
		if _, err = tx.Exec(deleteCall, p.ID); err == nil && p.IdempotencyKey != "" {
			sealed := g.sealAnswer(p)
			_, err = tx.Exec(keepAnswer, sealed, time.Now().UnixMicro(), g.name, p.Principal, p.IdempotencyKey, p.ID)
		}
	case stopped.Effect == call.NoEffect:
		// Give back the charge only if the call was not sent, because every call that was sent counts toward the
		// limits. The charge of a continued call stays, because its first round was sent.
		if _, err = tx.Exec(deleteCall, p.ID); err == nil && stopped.Unsent && p.Continues == "" {
			err = limit.GiveBack(tx, g.meter(p))
		}
		if err == nil && p.IdempotencyKey != "" {
			_, err = tx.Exec(dropClaim, g.name, p.Principal, p.IdempotencyKey, p.ID)
		}
	case stopped.Effect == call.EffectDone:
		// The tool carried out the call, but the gateway withheld the answer, so the key stays reserved.
		if _, err = tx.Exec(deleteCall, p.ID); err == nil && p.IdempotencyKey != "" {
			_, err = tx.Exec(keepAnswer, nil, time.Now().UnixMicro(), g.name, p.Principal, p.IdempotencyKey, p.ID)
		}
	default:
		_, err = tx.Exec(leaveUnknown, p.ID)
	}
	return err
}

// hearLate waits for the answer to a call that timed out, and then settles the call.
func (g *Gateway) hearLate(p *inflight) {
	o := <-p.late
	stopped := p.afterResend(o.Refusal)
	if stopped != nil && stopped.Effect == call.EffectUnknown {
		return // the late answer leaves the outcome unknown
	}
	p.late, p.wasUnknown, p.result = nil, true, o.Result
	p.result.Duration = time.Since(p.start)
	if stopped == nil {
		stopped = guardOut(g, context.Background(), p)
	}
	// If record fails, the outcome stays unknown until a person settles the call.
	_ = g.record(p, stopped)
}

// clip shortens strings that come from callers and servers.
func clip(s string) string {
	if len(s) > 300 {
		return diag.Cut(s, 300) + "…"
	}
	return s
}
