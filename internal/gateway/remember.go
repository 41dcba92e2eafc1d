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

// needsIntent reports whether a call may be made only after it was written down
// that it will be.
func (p *passing) needsIntent() bool {
	policy := p.tool.Policy
	return p.tool.SideEffect != agent.Read || p.IdempotencyKey != "" ||
		policy.Rate != nil || policy.Spend != nil || policy.HumanApproval
}

// keyMAC stands for the tool and the arguments that a key was used with.
func (g *Gateway) keyMAC(p *passing) []byte {
	mac := g.books.Keys.MAC(keyPurpose(p), p.canonical)
	return mac[:]
}

func keyPurpose(p *passing) string { return "idempotency " + nameOf(p.tool) }

// earlier is what the store knows of an earlier call of the same key.
type earlier struct {
	call  string
	same  bool   // it had the same tool and arguments
	done  bool   // it was answered
	sent  []byte // its answer, sealed
	state string // of a call that was not answered
	owner string
}

const selectEarlier = `SELECT a.call, a.mac, a.sealed, a.done, c.state, c.owner FROM answers a LEFT JOIN calls c ON c.id = a.call
WHERE a.agent = $1 AND a.principal = $2 AND a.idem = $3`

func (g *Gateway) findEarlier(tx state.Tx, p *passing) (*earlier, error) {
	var found *earlier
	err := tx.Query(selectEarlier, []any{g.name, p.Principal, p.IdempotencyKey}, func(row state.Row) error {
		var e earlier
		var had []byte
		var done int64
		err := row.Scan(&e.call, &had, &e.sent, &done, &e.state, &e.owner)
		e.same, e.done = g.books.Keys.SameMAC(keyPurpose(p), p.canonical, had), done != 0
		found = &e
		return err
	})
	return found, err
}

// remember answers a call whose key was used before.
func remember(g *Gateway, ctx context.Context, p *passing) *call.Refusal {
	if p.IdempotencyKey == "" {
		return nil
	}
	if len(p.IdempotencyKey) > maxKey || strings.ContainsFunc(p.IdempotencyKey, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return call.Refuse(stageRemember, call.InputInvalid,
			"an idempotency key has at most %d bytes, all of them printable", maxKey)
	}
	// An earlier call may take as long as this one might.
	waiting, cancel := context.WithTimeout(ctx, g.timeout(p))
	defer cancel()
	for {
		var e *earlier
		err := g.books.DB.Read(ctx, func(tx state.Tx) (err error) {
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
			return call.Refuse(stageRemember, call.TimedOut, "the call %s of the same key is still under way", e.call).Again()
		}
	}
}

// missed is how long a change that came before one waited for it goes unseen.
const missed = time.Second

// waitForChange returns when something may have changed in the store.
func (g *Gateway) waitForChange(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, missed)
	defer cancel()
	// Whatever it was, the reader looks again.
	_ = g.books.DB.Changed(ctx)
}

// judge decides by an earlier call of the same key, or returns that this one has
// to wait for it.
func (g *Gateway) judge(ctx context.Context, p *passing, e *earlier) (again bool, stopped *call.Refusal) {
	switch {
	case e == nil:
		return false, nil
	case !e.same:
		return false, call.Refuse(stageRemember, call.InputInvalid,
			"the idempotency key was used before, by call %s, with another tool or other arguments", e.call)
	case e.done && e.sent == nil:
		return false, call.Refuse(stageRemember, call.OutcomeUnknown,
			"call %s of the same key was carried out, and its answer is not known", e.call)
	case e.done:
		return false, g.replay(p, e)
	case e.state == stateUnknown:
		return false, unsettled(e.call)
	}
	alive, err := g.books.DB.Alive(ctx, e.owner)
	if err != nil {
		return false, StoreFailed(stageRemember, err)
	}
	if !alive {
		// Its process is dead, so recovery has to take it over.
		if err := errors.Join(g.Recover(ctx), g.books.Journal.HandedOver()); err != nil {
			return false, StoreFailed(stageRemember, err)
		}
	}
	return true, nil
}

func unsettled(id string) *call.Refusal {
	return call.Refuse(stageRemember, call.OutcomeUnknown,
		"call %s of the same key was sent, and whether it was carried out is not known", id)
}

func (g *Gateway) replay(p *passing, e *earlier) *call.Refusal {
	raw, err := g.books.Keys.OpenKept(sealAnswer+e.call, e.sent)
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

func (g *Gateway) sealAnswer(p *passing) []byte {
	mark := byte(goodAnswer)
	if p.result.IsError {
		mark = failedAnswer
	}
	return g.books.Keys.Seal(sealAnswer+p.ID, append([]byte{mark}, p.result.Raw...))
}

// StoreFailed is the refusal of a call that did nothing because the store failed.
// After a handover to another key only a restart helps.
func StoreFailed(stage string, err error) *call.Refusal {
	r := call.Refuse(stage, call.StoreUnavailable, "the store cannot be used: %v", err)
	if errors.Is(err, journal.ErrHandedOver) {
		r.Hint = "restart the daemon, or the client that started this process: until then every call is refused"
		return r
	}
	return r.Again()
}
