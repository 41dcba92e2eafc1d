package gateway

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	stageRemember = "remember"
	stageShut     = "shut"
	// maxKey bounds an idempotency key.
	maxKey = 256
)

// needsIntent reports whether an intent must be stored before the call is made.
func (p *inflight) needsIntent() bool {
	policy := p.tool.Policy
	return p.tool.SideEffect != agent.Read || p.IdempotencyKey != "" ||
		policy.Rate != nil || policy.Spend != nil || policy.HumanApproval
}

// keyMAC authenticates the tool and the arguments that a key was used with.
func (g *Gateway) keyMAC(p *inflight) []byte {
	mac := g.store.Keys.MAC(keyPurpose(p), p.canonical)
	return mac[:]
}

func keyPurpose(p *inflight) string { return "idempotency " + nameOf(p.tool) }

// earlier is an earlier call with the same key.
type earlier struct {
	call  string
	same  bool   // it had the same tool and arguments
	done  bool   // it was answered
	sent  []byte // its sealed answer
	state string // of a call that was not answered
	owner string
}

const selectEarlier = `SELECT a.call, a.mac, a.sealed, a.done, c.state, c.owner FROM answers a LEFT JOIN calls c ON c.id = a.call
WHERE a.agent = $1 AND a.principal = $2 AND a.idem = $3`

func (g *Gateway) findEarlier(tx state.Tx, p *inflight) (*earlier, error) {
	var found *earlier
	err := tx.Query(selectEarlier, []any{g.name, p.Principal, p.IdempotencyKey}, func(row state.Row) error {
		var e earlier
		var had []byte
		var done int64
		err := row.Scan(&e.call, &had, &e.sent, &done, &e.state, &e.owner)
		e.same, e.done = g.store.Keys.SameMAC(keyPurpose(p), p.canonical, had), done != 0
		found = &e
		return err
	})
	return found, err
}

// remember answers a call whose idempotency key was used before.
func remember(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if p.IdempotencyKey == "" {
		return nil
	}
	if len(p.IdempotencyKey) > maxKey || strings.ContainsFunc(p.IdempotencyKey, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return call.Refuse(stageRemember, call.InputInvalid,
			"an idempotency key must have at most %d bytes, all printable", maxKey)
	}
	// The earlier call may take as long as this one.
	waiting, cancel := context.WithTimeout(ctx, g.timeout(p))
	defer cancel()
	for {
		var e *earlier
		err := g.store.DB.Read(ctx, func(tx state.Tx) (err error) {
			e, err = g.findEarlier(tx, p)
			return err
		})
		if err != nil {
			return StoreFailed(stageRemember, err)
		}
		again, stopped := g.judge(ctx, p, e)
		if !again {
			return stopped
		}
		g.waitForChange(waiting)
		if waiting.Err() != nil {
			return call.Refuse(stageRemember, call.TimedOut, "call %s of the same key is still running", e.call).Again()
		}
	}
}

// missed bounds the wait for a change, which may have come before the wait began.
const missed = time.Second

// waitForChange returns when something may have changed in the store.
func (g *Gateway) waitForChange(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, missed)
	defer cancel()
	// The caller reads the store again in any case.
	_ = g.store.DB.Changed(ctx)
}

// judge decides a call by an earlier one with the same key; again means that the call
// has to wait for it.
func (g *Gateway) judge(ctx context.Context, p *inflight, e *earlier) (again bool, stopped *call.Refusal) {
	switch {
	case e == nil:
		return false, nil
	case !e.same:
		return false, call.Refuse(stageRemember, call.InputInvalid,
			"the idempotency key was used before, by call %s, with another tool or other arguments", e.call)
	case e.done && e.sent == nil:
		return false, call.Refuse(stageRemember, call.OutcomeUnknown,
			"call %s of the same key was carried out, and its answer is unknown", e.call)
	case e.done:
		return false, g.replay(p, e)
	case e.state == stateUnknown:
		return false, unsettled(e.call)
	}
	alive, err := g.store.DB.Alive(ctx, e.owner)
	if err != nil {
		return false, StoreFailed(stageRemember, err)
	}
	if !alive {
		// Its process is dead, so this one recovers its calls.
		if err := errors.Join(g.Recover(ctx), g.store.Journal.HandedOver()); err != nil {
			return false, StoreFailed(stageRemember, err)
		}
	}
	return true, nil
}

func unsettled(id string) *call.Refusal {
	return call.Refuse(stageRemember, call.OutcomeUnknown,
		"call %s of the same key was sent, and whether it was carried out is unknown", id)
}

func (g *Gateway) replay(p *inflight, e *earlier) *call.Refusal {
	raw, err := g.store.Keys.OpenKept(sealAnswer+e.call, e.sent)
	if err != nil || len(raw) == 0 {
		return call.Refuse(stageRemember, call.OutcomeUnknown,
			"call %s of the same key was carried out, and its answer cannot be read", e.call)
	}
	p.result = call.Result{Raw: raw[1:], IsError: raw[0] == failedAnswer}
	p.replayed = e.call
	return nil
}

// The purposes of sealed values.
const (
	sealAnswer    = "answer of call "
	sealArguments = "arguments of call "
)

// The first byte of a stored answer.
const (
	goodAnswer   = '+'
	failedAnswer = '-'
)

func (g *Gateway) sealAnswer(p *inflight) []byte {
	mark := byte(goodAnswer)
	if p.result.IsError {
		mark = failedAnswer
	}
	return g.store.Keys.Seal(sealAnswer+p.ID, append([]byte{mark}, p.result.Raw...))
}

// StoreFailed returns the refusal of a call that did nothing because the store failed.
// After a handover to another key, the process must be restarted.
func StoreFailed(stage string, err error) *call.Refusal {
	r := call.Refuse(stage, call.StoreUnavailable, "the store cannot be used: %v", err)
	if errors.Is(err, journal.ErrHandedOver) {
		r.Hint = "restart the daemon, or the client that started this process: until then every call is refused"
		return r
	}
	return r.Again()
}
