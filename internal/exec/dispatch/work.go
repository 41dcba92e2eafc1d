package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// reserve marks an intent as handled by this process. It is called before the
// intent is written, because a queued intent of this owner that is not reserved is
// an orphan, see [Queue.orphans]. start runs the intent in its turn; release drops
// the reservation.
func (q *Queue) reserve(i *Intent) (start, release func()) {
	released := make(chan struct{})
	waiting, cancel := context.WithCancel(q.accepting)
	q.mu.Lock()
	q.reserved[i.ID], q.cancels[i.ID] = released, cancel
	q.mu.Unlock()
	release = func() {
		cancel()
		q.mu.Lock()
		delete(q.reserved, i.ID)
		delete(q.cancels, i.ID)
		q.mu.Unlock()
		close(released)
	}
	start = func() {
		q.work.Go(func() {
			defer release()
			done, err := q.turns.wait(waiting, i.effective().level(), i.Asked)
			if err != nil {
				return // it was cancelled, or another process will take it over
			}
			defer done()
			if err := q.run(i.ID, i.Digest); err != nil {
				q.options.Log("intent %s waits: %v", UUID(i.ID), err)
			}
		})
	}
	return start, release
}

// isReserved reports whether this process has reserved an intent.
func (q *Queue) isReserved(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reserved[id] != nil
}

// errNotServed means that this process does not serve the agent.
var errNotServed = errors.New("the agent is no longer served here")

// run claims an intent and makes its call. If another process has claimed it, run
// does nothing. The only error is errNotServed.
func (q *Queue) run(id, digest string) error {
	gateway, release, ok := q.gateway(digest)
	if !ok {
		return errNotServed
	}
	defer release()
	ctx, cancel := context.WithCancel(context.WithValue(q.ctx, hasTurn{}, true))
	defer cancel()
	// Registered before the claim, so that a running intent can always be stopped.
	// A job that is delivered twice may reach one process twice, and the claim
	// distinguishes only processes.
	q.mu.Lock()
	if q.running[id] {
		q.mu.Unlock()
		return nil
	}
	q.running[id], q.cancels[id] = true, cancel
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		delete(q.running, id)
		delete(q.cancels, id)
		q.mu.Unlock()
	}()
	c, asked, err := q.read(id)
	if c == nil || err != nil {
		if err != nil {
			q.options.Log("intent %s cannot be read: %v", UUID(id), err)
		}
		return nil
	}
	c.Tool, c.Waited = gateway.Agent().Tools[0].Name, true
	ctx = call.WithStanding(ctx, func(ctx context.Context) error { return q.standing(ctx, asked) })
	result, err := gateway.Call(ctx, c)
	if err := q.conclude(id, result, err); err != nil {
		q.options.Log("the outcome of intent %s could not be stored: %v", UUID(id), err)
	}
	return nil
}

const selectAsked = `SELECT parent, sealed FROM intents WHERE id = $1 AND state = 'queued'`

// read returns the call of an intent, or nil if the intent is no longer queued. The
// intent is claimed when its gateway commits to the call, see [Participant].
func (q *Queue) read(id string) (*call.Call, *sealedRequest, error) {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	c := &call.Call{ID: id}
	var sealed []byte
	err := q.store.DB.Read(ctx, func(tx state.Tx) error {
		sealed = nil
		return tx.Query(selectAsked, []any{id}, func(row state.Row) error { return row.Scan(&c.Parent, &sealed) })
	})
	if err != nil || sealed == nil {
		return nil, nil, err
	}
	var asked sealedRequest
	text, err := q.store.Keys.OpenKept(sealAsked+id, sealed)
	if err == nil {
		err = json.Unmarshal(text, &asked)
	}
	if err != nil {
		refusal := call.Refuse(stage, call.StoreUnavailable, "the task cannot be decrypted: %v", err)
		return nil, nil, errors.Join(err, q.settleNow(ctx, id, call.Outcome{Refusal: refusal}))
	}
	c.Principal, c.By, c.Arguments = asked.Principal, asked.By, jsontext.Value(asked.Arguments)
	return c, &asked, nil
}

// standing returns why the caller of an intent would no longer be admitted: a
// refusal, or the error of the check.
func (q *Queue) standing(ctx context.Context, a *sealedRequest) error {
	over, err := identity.Over(ctx, identity.NewAPIKeys(q.store.DB), a.Key, a.Until)
	if over == nil {
		return err
	}
	refusal := call.Refuse(stage, call.ApprovalDenied, "%v while the intent waited, so it was not run", over)
	refusal.Hint = "submit the task again with a valid key"
	return refusal
}

const openState = `SELECT state FROM intents
WHERE id = $1 AND state IN ('queued', 'running') AND (owner = $2 OR state = 'queued' AND $3 = 1)`

// writeTimeout bounds writes that cannot be cancelled.
const writeTimeout = 30 * time.Second

// conclude stores the answer of an intent that ran here, if its gateway could not
// store it with the record of the call.
func (q *Queue) conclude(id string, result call.Result, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	is := ""
	readErr := q.store.DB.Read(ctx, func(tx state.Tx) error {
		is = ""
		return tx.Query(openState,
			[]any{id, q.store.DB.Owner(), toInt(q.shared != nil)}, func(row state.Row) error { return row.Scan(&is) })
	})
	if readErr != nil || is == "" {
		return readErr
	}
	var stopped *call.Refusal
	if err != nil {
		stopped = call.AsRefusal(stage, err)
	}
	// Another worker may reach the store, unless the key was handed over.
	others := q.shared != nil && q.store.Journal.HandedOver() == nil
	if State(is) == Queued &&
		(stopped == nil || stopped.Effect != call.NoEffect || others && stopped.Code == call.StoreUnavailable) {
		return nil // the intent waits for another worker
	}
	return q.settleNow(ctx, id, call.Outcome{Result: result, Refusal: stopped, Begun: State(is) == Running})
}

func (q *Queue) settleNow(ctx context.Context, id string, o call.Outcome) error {
	return q.store.DB.Write(ctx, func(tx state.Tx) error {
		_, err := settle(tx, q.store, id, o)
		return err
	})
}

const (
	cancelQueued = `UPDATE intents SET state = 'cancelled', cancel = 1, ended = $1, answer = $2, sealed = NULL
WHERE id = $3 AND state = 'queued'`
	cancelRunning = `UPDATE intents SET cancel = 1 WHERE id = $1 AND state = 'running'`
)

// Cancel ends an intent: at once if it has not begun, and otherwise when the process
// that runs it reads the cancellation. It has no effect on an ended intent.
func (q *Queue) Cancel(ctx context.Context, id string) error {
	text, err := json.Marshal(storedAnswer{Refusal: call.Refuse(stage, call.TimedOut, "the intent was cancelled before it began")})
	if err != nil {
		return err
	}
	err = q.store.DB.Write(ctx, func(tx state.Tx) error {
		n, err := tx.Exec(cancelQueued, time.Now().UnixMicro(), q.store.Keys.Seal(sealAnswer+id, text), id)
		if err != nil || n == 1 {
			return err
		}
		_, err = tx.Exec(cancelRunning, id)
		return err
	})
	if err == nil {
		q.stop(id)
	}
	return err
}

// stop cancels an intent that runs or is reserved in this process.
func (q *Queue) stop(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if cancel := q.cancels[id]; cancel != nil {
		cancel()
	}
}
