package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	stageRecord = "record"
	// recordTime bounds the last commit, which no caller can cancel.
	recordTime = 30 * time.Second
	// recordAgain is the interval at which a failed record is retried.
	recordAgain = time.Second
)

// record writes the outcome of the call, with its journal leaf, in one transaction.
// The answer is released only after that. The refusal it returns is the call's own,
// or reports that the outcome could not be recorded.
func (g *Gateway) record(p *inflight, stopped *call.Refusal) *call.Refusal {
	r := g.newRecord(p)
	conclude(&r, p, stopped)
	err := g.write(p, stopped, &r)
	if err != nil {
		// The intent, if there is one, stays: recovery finds it.
		if p.intended && !p.wasUnknown {
			g.late.Go(func() { g.recordLater(p, stopped, r) })
		}
		if p.intended && (stopped == nil || stopped.Effect != call.NoEffect) {
			return call.Uncertain(stageRecord, call.OutcomeUnknown,
				"%s was called, and its outcome could not be recorded: %v", p.tool.Name, err)
		}
		return StoreFailed(stageRecord, err)
	}
	if p.late != nil {
		g.late.Go(func() { g.hearLate(p) })
	}
	return stopped
}

// write makes the record durable. A call without an intent needs only the journal.
func (g *Gateway) write(p *inflight, stopped *call.Refusal, r *journal.Record) error {
	if !p.intended && !p.wasUnknown && len(g.participants) == 0 {
		return g.store.Journal.Note(r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	return g.store.DB.Write(ctx, func(tx state.Tx) error {
		if p.wasUnknown {
			if n, err := tx.Exec(deleteUnknown, p.ID); err != nil || n == 0 {
				return errors.Join(err, errStopped) // a person settled it first
			}
		}
		if p.intended {
			if err := g.settleRow(tx, p, stopped); err != nil {
				return err
			}
		}
		for _, participant := range g.participants {
			o := call.Outcome{Result: p.result, Refusal: stopped, Begun: p.intended}
			if err := participant.Record(tx, p.Call, o); err != nil {
				return err
			}
		}
		_, err := g.store.Journal.Append(tx, r)
		return err
	})
}

// recordLater settles a call whose outcome could not be recorded, as soon as the store
// accepts writes again. A call without effect is returned to its limits, because its
// caller was asked to retry. The outcome of any other call is unknown, so a person
// settles it.
func (g *Gateway) recordLater(p *inflight, stopped *call.Refusal, r journal.Record) {
	known := stopped != nil && stopped.Effect == call.NoEffect
	if !known {
		r.Decision, r.Code = journal.Unknown, string(call.OutcomeUnknown)
		r.Stage, r.Effect = stageRecord, string(call.EffectUnknown)
		r.Detail = "the outcome of the call could not be recorded at once"
	}
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
			n, err := tx.Exec(giveUpOwn, p.ID, g.store.DB.Owner())
			if err != nil || n == 0 {
				return errors.Join(err, errStopped) // another process has settled it
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

// newRecord returns the record of a call without its outcome.
func (g *Gateway) newRecord(p *inflight) journal.Record {
	r := journal.Record{
		Time: p.start, Call: p.ID, Parent: p.Parent,
		Agent: g.name, ID: g.agent.ID, Digest: g.agent.Digest, Principal: p.Principal, By: p.By,
		Tool: string(guard.Redact([]byte(clip(p.Tool)))), ArgumentsSize: len(p.Arguments),
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
		mac := g.store.Keys.MAC("arguments", p.canonical)
		r.ArgumentsMAC = hex.EncodeToString(mac[:])
		shown := jsontext.Value(p.sent())
		if !p.checked {
			shown = g.guards.impersonal(shown)
		}
		if shown != nil {
			r.Arguments = g.showable(shown)
		}
	}
	return r
}

// conclude adds the outcome of the call.
func conclude(r *journal.Record, p *inflight, stopped *call.Refusal) {
	r.DurationUS = p.result.Duration.Microseconds()
	defer func() {
		if p.result.Log != "" {
			r.Detail = strings.TrimPrefix(r.Detail+"; "+p.result.Log, "; ")
		}
	}()
	if stopped != nil {
		r.Decision = journal.Deny
		if stopped.Effect == call.EffectUnknown {
			r.Decision = journal.Unknown
		}
		r.Code, r.Stage = string(stopped.Code), stopped.Stage
		r.Effect, r.Detail = string(stopped.Effect), clip(stopped.Message)
		return
	}
	sum := sha256.Sum256(p.result.Raw)
	r.Decision, r.ResultHash, r.ResultSize = journal.Allow, hex.EncodeToString(sum[:]), len(p.result.Raw)
	r.ToolError, r.Replay, r.Detail = p.result.IsError, p.replayed, strings.Join(p.notes, "; ")
}

const (
	deleteUnknown = `DELETE FROM calls WHERE id = $1 AND state = 'unknown'`
	deleteCall    = `DELETE FROM calls WHERE id = $1`
	leaveUnknown  = `UPDATE calls SET state = 'unknown', sealed = NULL, owner = '' WHERE id = $1`
	keepAnswer    = `UPDATE answers SET sealed = $1, done = $2 WHERE agent = $3 AND principal = $4 AND idem = $5 AND call = $6`
	dropClaim     = `DELETE FROM answers WHERE agent = $1 AND principal = $2 AND idem = $3 AND call = $4`
)

// settleRow settles the row of an intended call.
func (g *Gateway) settleRow(tx state.Tx, p *inflight, stopped *call.Refusal) (err error) {
	switch {
	case stopped == nil:
		if _, err = tx.Exec(deleteCall, p.ID); err == nil && p.IdempotencyKey != "" {
			sealed := g.sealAnswer(p)
			_, err = tx.Exec(keepAnswer, sealed, time.Now().UnixMicro(), g.name, p.Principal, p.IdempotencyKey, p.ID)
		}
	case stopped.Effect == call.NoEffect:
		// A read that was sent counts; a continued call was counted when it began.
		if _, err = tx.Exec(deleteCall, p.ID); err == nil && stopped.Unsent && p.Continues == "" {
			err = limit.GiveBack(tx, g.meter(p))
		}
		if err == nil && p.IdempotencyKey != "" {
			_, err = tx.Exec(dropClaim, g.name, p.Principal, p.IdempotencyKey, p.ID)
		}
	case stopped.Effect == call.EffectDone:
		// The call was carried out, and its answer was withheld.
		if _, err = tx.Exec(deleteCall, p.ID); err == nil && p.IdempotencyKey != "" {
			_, err = tx.Exec(keepAnswer, nil, time.Now().UnixMicro(), g.name, p.Principal, p.IdempotencyKey, p.ID)
		}
	default:
		_, err = tx.Exec(leaveUnknown, p.ID)
	}
	return err
}

// hearLate settles a call whose answer came after its timeout.
func (g *Gateway) hearLate(p *inflight) {
	o := <-p.late
	stopped := p.sure(o.Refusal)
	if stopped != nil && stopped.Effect == call.EffectUnknown {
		return // the call stays unknown
	}
	p.late, p.wasUnknown, p.result = nil, true, o.Result
	p.result.Duration = time.Since(p.start)
	if stopped == nil {
		stopped = guardOut(g, context.Background(), p)
	}
	// A failure leaves the call unknown, for a person to settle.
	_ = g.record(p, stopped)
}

// clip bounds the texts of callers and servers.
func clip(s string) string {
	if len(s) > 300 {
		return diag.Cut(s, 300) + "…"
	}
	return s
}
