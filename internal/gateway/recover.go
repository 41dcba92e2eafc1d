package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// orphan is a call without a recorded outcome, read from the table calls. The process that made the call may be dead.
type orphan struct {
	id, agent, digest, tool, principal, state, owner, idem string
	resendable                                             int64 // 1 if the sealed arguments are stored
	record, mac                                            []byte
}

// content returns one string with all values of the row that never change.
func (o *orphan) content() string {
	return fmt.Sprintf("%q", []string{o.id, o.agent, o.digest, o.tool, o.principal, o.idem, string(o.record)})
}

// purpose returns the purpose string with which the arguments are encrypted. If one of the values in content
// is changed, the arguments cannot be decrypted, and the call is not sent again.
func (o *orphan) purpose() string { return "arguments of call " + o.content() }

// macPurpose is the purpose of the MAC with which the gateway proves that it wrote the row.
const macPurpose = "unfinished call"

// These queries do not read the arguments, because arguments can be large. The condition "settled IS NULL" is always
// true, but lets the database use the index of open calls.
const (
	selectOwners = `SELECT DISTINCT owner, agent FROM calls WHERE state IN ('sending', 'resending') AND settled IS NULL`
	columns      = `SELECT id, agent, digest, tool, principal, state, owner, idem,
	CASE WHEN sealed IS NULL THEN 0 ELSE 1 END, record, mac FROM calls `
	selectOrphans = columns + `WHERE state IN ('sending', 'resending') AND settled IS NULL AND owner = $1`
	selectUnknown = columns + `WHERE id = $1 AND state = 'unknown'`
	selectSealed  = `SELECT sealed FROM calls WHERE id = $1`
)

func orphans(tx state.Tx, query, arg string) (found []orphan, err error) {
	err = tx.Query(query, []any{arg}, func(row state.Row) error {
		var o orphan
		err := row.Scan(&o.id, &o.agent, &o.digest, &o.tool, &o.principal, &o.state, &o.owner, &o.idem,
			&o.resendable, &o.record, &o.mac)
		found = append(found, o)
		return err
	})
	return found, err
}

// Recover takes over the unfinished calls of dead processes. A call of an idempotent tool can be sent again, but only
// by a gateway with the same agent and manifest, so other gateways leave such a call alone. If a call cannot be sent
// again, Recover marks its outcome as unknown.
func (g *Gateway) Recover(ctx context.Context) (err error) {
	defer g.contain(func() { err = errors.New("ambit itself failed; its log contains the details") })
	dead, err := deadOwners(ctx, g.store)
	if err != nil {
		return err
	}
	var broken error
	for owner := range dead {
		err := g.inherit(ctx, owner)
		if errors.Is(err, errBroken) {
			broken = errors.Join(broken, err)
		} else if err != nil {
			return err
		}
	}
	return broken
}

// Abandoned returns the names of the agents with unfinished calls of dead processes. A process with many agents calls
// Abandoned once for all of them, and then [Gateway.Recover] for each of the returned agents.
func Abandoned(ctx context.Context, b *store.Store) (agents []string, err error) {
	dead, err := deadOwners(ctx, b)
	for _, of := range dead {
		agents = append(agents, of...)
	}
	slices.Sort(agents)
	return slices.Compact(agents), err
}

// deadOwners returns the dead processes with unfinished calls. The map contains the names of the agents of these calls
// for each process.
func deadOwners(ctx context.Context, b *store.Store) (map[string][]string, error) {
	var owners map[string][]string
	err := b.DB.Read(ctx, func(tx state.Tx) error {
		owners = map[string][]string{}
		if err := b.Journal.InForce(tx); err != nil {
			return err
		}
		return tx.Query(selectOwners, nil, func(row state.Row) error {
			var owner, agent string
			err := row.Scan(&owner, &agent)
			owners[owner] = append(owners[owner], agent)
			return err
		})
	})
	if errors.Is(err, journal.ErrHandedOver) {
		return nil, nil // the root key has changed; a process that uses the new key will recover the calls
	}
	if err != nil {
		return nil, err
	}
	for owner := range owners {
		alive, err := b.DB.Alive(ctx, owner)
		if err != nil {
			return nil, err
		}
		if alive {
			delete(owners, owner)
		}
	}
	return owners, nil
}

// errBroken is the error for a call that ambit could not take over because of a panic.
var errBroken = errors.New("ambit itself failed while it took over an unfinished call")

// inherit takes over the calls of a dead process. A panic affects only one call.
func (g *Gateway) inherit(ctx context.Context, owner string) error {
	var found []orphan
	err := g.store.DB.Read(ctx, func(tx state.Tx) (err error) {
		found, err = orphans(tx, selectOrphans, owner)
		return err
	})
	var broken error
	for i := 0; err == nil && i < len(found); i++ {
		if err = g.takeOver(ctx, &found[i]); errors.Is(err, errBroken) {
			broken, err = errors.Join(broken, err), nil
		}
	}
	return errors.Join(broken, err)
}

// takeOver takes over one call. If it panics, the outcome of the call becomes unknown.
func (g *Gateway) takeOver(ctx context.Context, o *orphan) (err error) {
	defer g.contain(func() {
		defer g.contain(func() { err = fmt.Errorf("%w: %s", errBroken, diag.Quote(o.id)) })
		err = giveUp(ctx, g.store, o, "ambit itself failed while it took over the call; its log contains the details")
	})
	switch {
	case o.state != stateSending || o.resendable == 0:
		return giveUp(ctx, g.store, o, ended)
	case o.agent == g.name && o.digest == g.agent.Digest:
		return g.resend(ctx, o)
	}
	return nil // leave the call for a gateway that serves its agent
}

const (
	takeCall   = `UPDATE calls SET state = 'resending', owner = $1 WHERE id = $2 AND owner = $3 AND state = 'sending'`
	giveUpCall = `UPDATE calls SET state = 'unknown', sealed = NULL, owner = ''
	WHERE id = $1 AND owner = $2 AND state IN ('sending', 'resending')`
)

// ended is the usual reason why ambit gives up a call.
const ended = "the process that made the call ended before its answer was recorded"

// giveUp marks the call's outcome as unknown, for the given reason. A person must then settle the call. If another
// process has settled the call, giveUp does nothing.
func giveUp(ctx context.Context, b *store.Store, o *orphan, why string) error {
	err := b.DB.Write(ctx, func(tx state.Tx) error {
		n, err := tx.Exec(giveUpCall, o.id, o.owner)
		if err != nil || n == 0 {
			return errors.Join(err, errStopped)
		}
		r := o.draft(b)
		r.Decision, r.Code = journal.Unknown, string(call.OutcomeUnknown)
		r.Stage, r.Effect = stageAct, string(call.EffectUnknown)
		r.Detail = strings.TrimPrefix(r.Detail+"; "+why, "; ")
		_, err = b.Journal.Append(tx, &r)
		return err
	})
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// draft returns the journal record that was stored in the row before the call was sent. The journal signs every record,
// so draft must not return values that something other than ambit wrote to the row. For such a row, it returns a record
// with only the id of the call and a warning.
func (o *orphan) draft(b *store.Store) journal.Record {
	var r journal.Record
	if !b.Keys.SameMAC(macPurpose, []byte(o.content()), o.mac) || json.Unmarshal(o.record, &r) != nil {
		r = journal.Record{Call: o.id, Detail: fmt.Sprintf("something other than ambit wrote or "+
			"changed the row of this call in the store; the row says that %s called the tool %s of the agent %s",
			diag.Quote(o.principal), diag.Quote(o.tool), diag.Quote(o.agent))}
	}
	r.Time = time.Now()
	return r
}

// resend sends an idempotent call again with the same id and idempotency key.
func (g *Gateway) resend(ctx context.Context, o *orphan) error {
	var sealed []byte
	err := g.store.DB.Read(ctx, func(tx state.Tx) error {
		sealed = nil
		return tx.Query(selectSealed, []any{o.id}, func(row state.Row) error { return row.Scan(&sealed) })
	})
	if err != nil {
		return err
	}
	arguments, err := g.store.Keys.OpenKept(o.purpose(), sealed)
	if err != nil || len(g.options.Participants) > 0 { // the queue of intents repeats its calls itself
		return giveUp(ctx, g.store, o, ended)
	}
	draft := o.draft(g.store)
	p := &inflight{
		Call: &call.Call{
			ID: o.id, Tool: o.tool, Arguments: arguments, Principal: o.principal, AttributesLost: true,
			By: draft.By, Parent: draft.Parent, IdempotencyKey: o.idem,
		},
		start: time.Now(), intended: true, draft: draft, resent: true,
	}
	if admit(g, ctx, p) != nil || resolveStage(g, ctx, p) != nil || !p.tool.Policy.Idempotent ||
		gateStage(g, ctx, p) != nil {
		return giveUp(ctx, g.store, o, ended)
	}
	var taken int64
	err = g.store.DB.Write(ctx, func(tx state.Tx) (err error) {
		if err = g.store.Journal.InForce(tx); err != nil {
			return err
		}
		taken, err = tx.Exec(takeCall, g.store.DB.Owner(), o.id, o.owner)
		return err
	})
	if err != nil || taken == 0 {
		return err
	}
	o.owner = g.store.DB.Owner()
	// No caller waits for the answer. Only the journal receives the outcome.
	outcome := p.afterResend(act(g, ctx, p))
	if outcome == nil {
		outcome = guardOut(g, ctx, p)
	}
	if stopped := g.record(p, outcome); stopped != nil && stopped.Code == call.StoreUnavailable {
		return stopped
	}
	return nil
}

// afterResend returns the given refusal. If the call was resent, the effect NoEffect becomes EffectUnknown, because the
// first attempt may have had an effect.
func (p *inflight) afterResend(stopped *call.Refusal) *call.Refusal {
	if stopped == nil || !p.resent || stopped.Effect != call.NoEffect {
		return stopped
	}
	unsure := *stopped
	unsure.Effect = call.EffectUnknown
	return &unsure
}

// ErrNotUnknown means that the call is not in the list of calls with an unknown outcome.
var ErrNotUnknown = errors.New("the call is not in the list of calls with an unknown outcome")

// Settle records a person's finding about a call with an unknown outcome: whether the call was carried out.
func Settle(ctx context.Context, b *store.Store, id string, done bool, who string) error {
	return b.DB.Write(ctx, func(tx state.Tx) error {
		found, err := orphans(tx, selectUnknown, id)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return ErrNotUnknown
		}
		o := &found[0]
		if _, err := tx.Exec(deleteCall, id); err != nil {
			return err
		}
		r := o.draft(b)
		unproven := r.Detail
		r.Decision, r.Effect, r.Stage = journal.Allow, string(call.EffectDone), stageRecord
		r.Detail = fmt.Sprintf("%s reported that the call was carried out", who)
		claim := `UPDATE answers SET done = $1 WHERE agent = $2 AND principal = $3 AND idem = $4 AND call = $5`
		args := []any{time.Now().UnixMicro(), o.agent, o.principal, o.idem, o.id}
		if !done {
			r.Decision, r.Effect = journal.Deny, string(call.NoEffect)
			r.Detail = fmt.Sprintf("%s reported that the call was not carried out", who)
			claim, args = dropClaim, args[1:]
		}
		if _, err := tx.Exec(claim, args...); err != nil {
			return err
		}
		r.Detail = strings.TrimPrefix(unproven+"; "+r.Detail, "; ")
		_, err = b.Journal.Append(tx, &r)
		return err
	})
}
