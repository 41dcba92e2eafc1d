package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/journal"
	"github.com/ambit-run/ambit/internal/state"
)

// orphan is a call under way whose owner may be dead.
type orphan struct {
	id, agent, digest, tool, principal, state, owner, idem string
	sealed, record                                         []byte
}

const selectOrphans = `SELECT id, agent, digest, tool, principal, state, owner, idem, sealed, record FROM calls
WHERE state IN ('sending', 'resending')`

// Recover takes over the calls that dead processes left under way. Those of
// idempotent tools of this very manifest are sent once more; any other becomes
// unknown, unless it waits for its own agent to be served again.
func (g *Gateway) Recover(ctx context.Context) error {
	var found []orphan
	err := g.books.DB.Read(ctx, func(tx state.Tx) error {
		found = nil
		if err := g.books.Journal.InForce(tx); err != nil {
			return err
		}
		return tx.Query(selectOrphans, nil, func(row state.Row) error {
			var o orphan
			err := row.Scan(&o.id, &o.agent, &o.digest, &o.tool, &o.principal, &o.state, &o.owner, &o.idem, &o.sealed, &o.record)
			found = append(found, o)
			return err
		})
	})
	if errors.Is(err, journal.ErrHandedOver) {
		return nil // it is left to those who have the new key; every call is told
	}
	if err != nil {
		return err
	}
	dead := map[string]bool{}
	for i := range found {
		o := &found[i]
		if _, known := dead[o.owner]; !known {
			alive, err := g.books.DB.Alive(ctx, o.owner)
			if err != nil {
				return err
			}
			dead[o.owner] = !alive
		}
		if !dead[o.owner] {
			continue
		}
		if err := g.takeOver(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (g *Gateway) takeOver(ctx context.Context, o *orphan) error {
	resendable := o.state == stateSending && o.sealed != nil
	switch {
	case !resendable:
		return giveUp(ctx, g.books, o)
	case o.agent == g.name && o.digest == g.agent.Digest:
		return g.resend(ctx, o)
	}
	return nil // its own agent may come back
}

const (
	takeCall   = `UPDATE calls SET state = 'resending', owner = $1 WHERE id = $2 AND owner = $3 AND state = 'sending'`
	giveUpCall = `UPDATE calls SET state = 'unknown', sealed = NULL, owner = '' WHERE id = $1 AND owner = $2 AND state = $3`
	giveUpOwn  = `UPDATE calls SET state = 'unknown', sealed = NULL, owner = '' WHERE id = $1 AND owner = $2 AND state IN ('sending', 'resending')`
)

// giveUp makes a call unknown, for a person to settle. If somebody else has
// moved it on meanwhile, nothing happens.
func giveUp(ctx context.Context, b *books.Books, o *orphan) error {
	err := b.DB.Write(ctx, func(tx state.Tx) error {
		n, err := tx.Exec(giveUpCall, o.id, o.owner, o.state)
		if err != nil || n == 0 {
			return errors.Join(err, errStopped)
		}
		r := o.draft()
		r.Decision, r.Code, r.Stage, r.Effect = journal.Unknown, string(call.OutcomeUnknown), stageAct, string(call.EffectUnknown)
		r.Detail = "the process that made the call ended before its answer was recorded"
		_, err = b.Journal.Append(tx, &r)
		return err
	})
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// draft is the record that was written with the intent.
func (o *orphan) draft() journal.Record {
	var r journal.Record
	if json.Unmarshal(o.record, &r) != nil {
		r = journal.Record{Call: o.id, Agent: o.agent, Digest: o.digest, Principal: o.principal, Tool: o.tool}
	}
	r.Time = time.Now()
	return r
}

// resend sends an idempotent call once more, under the same id and key.
func (g *Gateway) resend(ctx context.Context, o *orphan) error {
	arguments, err := g.books.Keys.OpenKept(sealArguments+o.id, o.sealed)
	if err != nil || g.begin != nil { // what is an intent too is begun again by its desk
		return giveUp(ctx, g.books, o)
	}
	p := &passing{
		Call:  &call.Call{ID: o.id, Tool: o.tool, Arguments: arguments, Principal: o.principal, IdempotencyKey: o.idem},
		start: time.Now(), intended: true, resent: true,
	}
	if admit(g, ctx, p) != nil || resolveStage(g, ctx, p) != nil || gateStage(g, ctx, p) != nil {
		return giveUp(ctx, g.books, o)
	}
	var taken int64
	err = g.books.DB.Write(ctx, func(tx state.Tx) (err error) {
		if err = g.books.Journal.InForce(tx); err != nil {
			return err
		}
		taken, err = tx.Exec(takeCall, g.books.DB.Owner(), o.id, o.owner)
		return err
	})
	if err != nil || taken == 0 {
		return err
	}
	// What became of it is in the journal, whoever asked for it.
	outcome := p.sure(act(g, ctx, p))
	if outcome == nil {
		outcome = guardOut(g, ctx, p)
	}
	if stopped := g.record(p, outcome); stopped != nil && stopped.Code == call.StoreUnavailable {
		return stopped
	}
	return nil
}

// sure is what is known of a call that was stopped at the act: that it was not
// sent again says nothing about the first time.
func (p *passing) sure(stopped *call.Refusal) *call.Refusal {
	if stopped == nil || !p.resent || stopped.Effect != call.NoEffect {
		return stopped
	}
	unsure := *stopped
	unsure.Effect = call.EffectUnknown
	return &unsure
}

// ErrNotUnknown says that a call cannot be settled, since it is not unknown.
var ErrNotUnknown = errors.New("there is no call of that id whose outcome is unknown")

const selectUnknown = `SELECT id, agent, digest, tool, principal, state, owner, idem, sealed, record FROM calls
WHERE id = $1 AND state = 'unknown'`

// Settle lets a person say what became of a call whose outcome is unknown.
func Settle(ctx context.Context, b *books.Books, id string, done bool, who string) error {
	err := b.DB.Write(ctx, func(tx state.Tx) error {
		var o *orphan
		err := tx.Query(selectUnknown, []any{id}, func(row state.Row) error {
			o = &orphan{}
			return row.Scan(&o.id, &o.agent, &o.digest, &o.tool, &o.principal, &o.state, &o.owner, &o.idem, &o.sealed, &o.record)
		})
		if err != nil {
			return err
		}
		if o == nil {
			return ErrNotUnknown
		}
		if _, err := tx.Exec(deleteCall, id); err != nil {
			return err
		}
		r := o.draft()
		r.Decision, r.Effect, r.Stage = journal.Allow, string(call.EffectDone), stageRecord
		r.Detail = fmt.Sprintf("%s says that it was carried out", who)
		claim := `UPDATE answers SET done = $1 WHERE agent = $2 AND principal = $3 AND idem = $4 AND call = $5`
		args := []any{time.Now().UnixMicro(), o.agent, o.principal, o.idem, o.id}
		if !done {
			r.Decision, r.Effect = journal.Deny, string(call.NoEffect)
			r.Detail = fmt.Sprintf("%s says that it was not carried out", who)
			claim, args = dropClaim, args[1:]
		}
		if _, err := tx.Exec(claim, args...); err != nil {
			return err
		}
		_, err = b.Journal.Append(tx, &r)
		return err
	})
	return err
}
