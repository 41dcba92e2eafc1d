package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	stageRemember = "remember"
	stageClosed   = "shut"
	// maxKey is the maximum length of an idempotency key in bytes.
	maxKey = 256
)

// needsIntent reports whether the call needs an intent, a row that is stored before sending.
func (p *inflight) needsIntent() bool {
	policy := p.tool.Policy
	return p.tool.SideEffect != agent.Read || p.IdempotencyKey != "" ||
		policy.Rate != nil || policy.Spend != nil || policy.HumanApproval || p.approval != ""
}

// keyMAC returns a MAC of the call's tool and arguments, to compare calls with the same idempotency key.
func (g *Gateway) keyMAC(p *inflight) []byte {
	mac := g.store.Keys.MAC(keyPurpose(p), p.canonical)
	return mac[:]
}

func keyPurpose(p *inflight) string { return "idempotency " + nameOf(p.tool) }

// earlierCall is an earlier call with the same idempotency key.
type earlierCall struct {
	call  string
	same  bool   // whether the tool and the arguments are the same as in the new call
	done  bool   // whether the earlier call was carried out
	sent  []byte // the sealed answer, or nil if unknown
	state string // the state of the earlier call; not used if done is true
	owner string
}

const selectEarlier = `SELECT a.call, a.mac, a.sealed, a.done, c.state, c.owner FROM answers a
LEFT JOIN calls c ON c.id = a.call
WHERE a.agent = $1 AND a.principal = $2 AND a.idem = $3`

func (g *Gateway) findEarlier(tx state.Tx, p *inflight) (*earlierCall, error) {
	var found *earlierCall
	err := tx.Query(selectEarlier, []any{g.name, p.Principal, p.IdempotencyKey}, func(row state.Row) error {
		var e earlierCall
		var had []byte
		var done int64
		err := row.Scan(&e.call, &had, &e.sent, &done, &e.state, &e.owner)
		e.same, e.done = g.store.Keys.SameMAC(keyPurpose(p), p.canonical, had), done != 0
		found = &e
		return err
	})
	return found, err
}

// remember looks for an earlier call with the same idempotency key and returns that call's answer to the caller. If the
// earlier call is still running, remember waits for it.
func remember(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if p.IdempotencyKey == "" {
		return nil
	}
	if len(p.IdempotencyKey) > maxKey || strings.ContainsFunc(p.IdempotencyKey,
		func(r rune) bool { return !unicode.IsPrint(r) }) {
		return call.Refuse(stageRemember, call.InputInvalid,
			"an idempotency key must be at most %d bytes long and contain only printable characters", maxKey)
	}
	// Wait for the earlier call, but not longer than the timeout of this call.
	waiting, cancel := context.WithTimeout(ctx, g.timeout(p))
	defer cancel()
	for {
		var e *earlierCall
		err := g.store.DB.Read(ctx, func(tx state.Tx) (err error) {
			e, err = g.findEarlier(tx, p)
			return err
		})
		if err != nil {
			return StoreFailed(ctx, stageRemember, err)
		}
		again, stopped := g.compareEarlier(ctx, p, e)
		if !again {
			return stopped
		}
		g.waitForChange(waiting)
		if waiting.Err() != nil {
			return call.Refuse(stageRemember, call.TimedOut,
				"call %s with the same idempotency key is still running", e.call).Again()
		}
	}
}

// changeWait is the maximum time to wait for a change in the store. The limit is needed because a change goes
// unnoticed if it happens just before the wait begins.
const changeWait = time.Second

// waitForChange waits until the store changes, but at most one second.
func (g *Gateway) waitForChange(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	// The error can be ignored, because the caller reads the store again in any case.
	_ = g.store.DB.Changed(ctx)
}

// compareEarlier compares a call with the earlier call e that has the same idempotency key. If e is nil, the call can
// continue. If the first result is true, the caller must wait for a change in the store and then compare again.
func (g *Gateway) compareEarlier(ctx context.Context, p *inflight, e *earlierCall) (again bool, stopped *call.Refusal) {
	switch {
	case e == nil:
		return false, nil
	case !e.same:
		return false, call.Refuse(stageRemember, call.InputInvalid,
			"call %s used the same idempotency key with a different tool or different arguments", e.call)
	case e.done && e.sent == nil:
		return false, call.Refuse(stageRemember, call.OutcomeUnknown,
			"call %s with the same idempotency key was carried out, but its answer is unknown", e.call)
	case e.done:
		// The earlier answer may be new to this caller, so record the read.
		if stopped = markRead(g, ctx, p); stopped == nil {
			stopped = g.replay(p, e)
		}
		return false, stopped
	case e.state == stateUnknown:
		return false, unsettled(e.call)
	}
	alive, err := g.store.DB.Alive(ctx, e.owner)
	if err != nil {
		return false, StoreFailed(ctx, stageRemember, err)
	}
	if !alive {
		// The earlier call belongs to a dead process, so this process recovers it.
		if err := errors.Join(g.Recover(ctx), g.store.Journal.HandedOver()); err != nil {
			return false, StoreFailed(ctx, stageRemember, err)
		}
	}
	return true, nil
}

func unsettled(id string) *call.Refusal {
	return call.Refuse(stageRemember, call.OutcomeUnknown,
		"call %s with the same idempotency key was sent, but it is unknown whether it was carried out", id)
}

func (g *Gateway) replay(p *inflight, e *earlierCall) *call.Refusal {
	raw, err := g.store.Keys.OpenKept(g.answerPurpose(p, e.call), e.sent)
	if err != nil || len(raw) == 0 {
		return call.Refuse(stageRemember, call.OutcomeUnknown,
			"call %s with the same idempotency key was carried out, but its answer cannot be read", e.call)
	}
	p.result = call.Result{Raw: raw[1:], IsError: raw[0] == failedAnswer}
	p.replayed = e.call
	return nil
}

// answerPurpose returns the purpose string with which a stored answer is encrypted. If the answer is copied to the row
// of another caller, it cannot be decrypted there.
func (g *Gateway) answerPurpose(p *inflight, id string) string {
	return fmt.Sprintf("answer of call %q", []string{id, g.name, p.Principal, p.IdempotencyKey})
}

// The first byte of a stored answer specifies whether the tool reported a failure.
const (
	goodAnswer   = '+'
	failedAnswer = '-'
)

func (g *Gateway) sealAnswer(p *inflight) []byte {
	mark := byte(goodAnswer)
	if p.result.IsError {
		mark = failedAnswer
	}
	return g.store.Keys.Seal(g.answerPurpose(p, p.ID), append([]byte{mark}, p.result.Raw...))
}

// StoreFailed returns the refusal for a call that failed because of a store error. If the root key has changed, the
// refusal asks for a restart of the process. Otherwise, if the caller cancelled the call, the refusal reports the
// cancellation, because cancelling also ends the requests to the store.
func StoreFailed(ctx context.Context, stage string, err error) *call.Refusal {
	if ctx.Err() != nil && !errors.Is(err, journal.ErrHandedOver) {
		return call.Refuse(stage, call.TimedOut, "the call was cancelled before it was made")
	}
	r := call.Refuse(stage, call.StoreUnavailable, "the store cannot be used: %v", err)
	if errors.Is(err, journal.ErrHandedOver) {
		r.Hint = "restart the daemon, or the client that started this process; until then every call is refused"
		return r
	}
	return r.Again()
}

// AnswersKept is how long ambit remembers an idempotency key after the call was answered. After that, a call with the
// same key is a new call.
const AnswersKept = 30 * 24 * time.Hour

// ForgetAnswers deletes answers that are older than [AnswersKept], but never the keys of unanswered calls. The
// parameter batch is the maximum number of answers to delete. The result is the actual number.
func ForgetAnswers(ctx context.Context, b *store.Store, now time.Time, batch int) (n int, err error) {
	before := now.Add(-AnswersKept).UnixMicro()
	type key struct{ agent, principal, idem string }
	var keys []key
	// First find the answers in a read transaction, so that the search does not block writers.
	err = b.DB.Read(ctx, func(tx state.Tx) error {
		keys = nil
		return tx.Query(`SELECT agent, principal, idem FROM answers WHERE done > 0 AND done < $1 LIMIT $2`,
			[]any{before, int64(batch)}, func(row state.Row) error {
				var k key
				err := row.Scan(&k.agent, &k.principal, &k.idem)
				keys = append(keys, k)
				return err
			})
	})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	err = b.DB.Write(ctx, func(tx state.Tx) error {
		n = 0
		for _, k := range keys {
			gone, err := tx.Exec(`DELETE FROM answers WHERE agent = $1 AND principal = $2 AND idem = $3
AND done > 0 AND done < $4`,
				k.agent, k.principal, k.idem, before)
			if err != nil {
				return err
			}
			n += int(gone)
		}
		return nil
	})
	return n, err
}
