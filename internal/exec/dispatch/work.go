package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// reserve records that this process will run an intent. A new intent must be reserved before it is written, because a
// queued intent without a reservation is treated as an orphan (see [Queue.orphans]). reserve returns two functions, and
// the caller must call one of them. The function start runs the intent as soon as the intent gets a turn. The function
// release cancels the reservation.
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
			done, err := q.turns.wait(waiting, i.effectivePriority().level(), i.Asked)
			if err != nil {
				return // the intent was cancelled, or another process will take it over
			}
			defer done()
			if err := q.run(i.ID, i.Digest); err != nil {
				q.options.Log("intent %s stays in the queue: %v", UUID(i.ID), err)
			}
		})
	}
	return start, release
}

func (q *Queue) isReserved(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reserved[id] != nil
}

var errNotServed = errors.New("this process no longer serves the agent")

// run claims an intent and makes its call. If another process has already claimed the intent, run does nothing. The
// only possible error is errNotServed.
func (q *Queue) run(id, digest string) error {
	gateway, release, ok := q.gateway(digest)
	if !ok {
		return errNotServed
	}
	defer release()
	ctx, cancel := context.WithCancel(context.WithValue(q.ctx, hasTurn{}, true))
	defer cancel()
	// Set q.cancels before the intent is claimed, so that every running intent can be stopped. River can deliver a job
	// to one process twice. The map q.running prevents the second run. Otherwise, the gateway would refuse that run,
	// and q.conclude would store the refusal as the answer to the intent.
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
	c, asked, err := q.readCall(id, digest)
	if c == nil || err != nil {
		if err != nil {
			q.options.Log("intent %s cannot be read: %v", UUID(id), err)
		}
		return nil
	}
	c.Tool, c.Waited = gateway.Agent().Tools[0].Name, true
	ctx = call.WithStanding(ctx, func(ctx context.Context) error { return q.checkAccess(ctx, asked) })
	result, err := gateway.Call(ctx, c)
	if err := q.conclude(id, result, err); err != nil {
		q.options.Log("the outcome of intent %s could not be stored: %v", UUID(id), err)
	}
	return nil
}

const selectAsked = `SELECT parent, sealed FROM intents WHERE id = $1 AND state = 'queued'`

var errOtherAgent = errors.New("the task was submitted for another agent, and its row in the store was changed")

// readCall returns the call of an intent, or nil if the intent is no longer queued. It does not claim the intent: the
// gateway claims the intent when the call begins (see [participant.Begin]). The digest identifies the manifest of the
// agent that would run the intent. The digest comes from the store, so readCall compares it with the sealed request.
func (q *Queue) readCall(id, digest string) (*call.Call, *sealedRequest, error) {
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
	if err == nil && asked.Digest != "" && asked.Digest != digest {
		err = errOtherAgent
	}
	if err != nil {
		refusal := call.Refuse(stage, call.StoreUnavailable,
			"the task cannot be read: %v", err)
		return nil, nil, errors.Join(err, q.settleNow(ctx, id, call.Outcome{Refusal: refusal}))
	}
	c.Principal, c.By, c.Arguments = asked.Principal, asked.By, jsontext.Value(asked.Arguments)
	c.Attributes = asked.Attributes
	return c, &asked, nil
}

// checkAccess checks whether the caller of an intent still has access. If the caller has lost access, it returns a
// refusal. If the check itself fails, it returns another error.
func (q *Queue) checkAccess(ctx context.Context, a *sealedRequest) error {
	over, err := identity.CredentialExpired(ctx, identity.NewAPIKeys(q.store.Authority), a.Key, a.Until)
	if over == nil {
		return err
	}
	refusal := call.Refuse(stage, call.ApprovalDenied, "the intent was not run, because %v", over)
	refusal.Hint = "submit the task again with a valid key"
	return refusal
}

const openState = `SELECT state FROM intents
WHERE id = $1 AND state IN ('queued', 'running') AND (owner = $2 OR state = 'queued' AND $3 = 1)`

// writeTimeout is the time limit for store operations that callers cannot cancel.
const writeTimeout = 30 * time.Second

// conclude stores the answer to an intent that ran in this process. It does nothing if the gateway has already stored
// the answer together with the record of the call.
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
	// If the store is unavailable to this process, leave the intent to other workers. But if the root key was rotated, no
	// worker can run the intent, so refuse it.
	others := q.shared != nil && q.store.Journal.HandedOver() == nil
	if State(is) == Queued &&
		(stopped == nil || stopped.Effect != call.NoEffect || others && stopped.Code == call.StoreUnavailable) {
		return nil // the intent stays queued, so that another worker can run it
	}
	return q.settleNow(ctx, id, call.Outcome{Result: result, Refusal: stopped, Begun: State(is) == Running})
}

func (q *Queue) settleNow(ctx context.Context, id string, o call.Outcome) error {
	return q.store.DB.Write(ctx, func(tx state.Tx) error { return settle(tx, q.store, id, o) })
}

const (
	cancelQueued = `UPDATE intents SET state = 'cancelled', cancel = 1, ended = $1, answer = $2, sealed = NULL
WHERE id = $3 AND state = 'queued'`
	cancelRunning = `UPDATE intents SET cancel = 1 WHERE id = $1 AND state = 'running'`
)

// Cancel cancels an intent. A queued intent ends immediately. A running intent ends when its process notices the
// cancellation. An intent that has already ended does not change.
func (q *Queue) Cancel(ctx context.Context, id string) error {
	refusal := call.Refuse(stage, call.TimedOut, "the intent was cancelled before it began")
	err := q.store.DB.Write(ctx, func(tx state.Tx) error {
		sealed, err := storedAnswer{Refusal: refusal}.seal(tx, q.store, id)
		if err != nil || sealed == nil {
			return err
		}
		n, err := tx.Exec(cancelQueued, time.Now().UnixMicro(), sealed, id)
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

// stop cancels an intent that is running or reserved in this process.
func (q *Queue) stop(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if cancel := q.cancels[id]; cancel != nil {
		cancel()
	}
}

// turnQueue limits how many calls run in this process at the same time. A free turn goes to the waiter with the lowest
// level (see [waiter.levelAt]).
type turnQueue struct {
	step time.Duration

	mu      sync.Mutex
	free    int
	waiting []*waiter
}

type waiter struct {
	level int64
	since time.Time
	turn  chan struct{} // closed when the waiter gets its turn
}

// wait waits until the caller gets a turn or ctx is canceled. The caller must call the returned function at the end of
// its turn.
func (t *turnQueue) wait(ctx context.Context, level int64, since time.Time) (done func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &waiter{level: level, since: since, turn: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.assign()
	t.mu.Unlock()
	select {
	case <-w.turn:
		return t.done, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := slices.Index(t.waiting, w); at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
		return nil, ctx.Err()
	}
	t.free++ // the waiter got its turn at the moment when ctx was canceled
	t.assign()
	return nil, ctx.Err()
}

func (t *turnQueue) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.assign()
}

// assign gives the free turns to the waiters with the lowest level. Within a level, the waiter that has waited longest
// comes first. The caller must hold the mutex.
func (t *turnQueue) assign() {
	now := time.Now()
	for t.free > 0 && len(t.waiting) > 0 {
		next := slices.MinFunc(t.waiting, func(a, b *waiter) int {
			return cmp.Or(cmp.Compare(a.levelAt(now, t.step), b.levelAt(now, t.step)), a.since.Compare(b.since))
		})
		at := slices.Index(t.waiting, next)
		t.waiting = slices.Delete(t.waiting, at, at+1)
		t.free--
		close(next.turn)
	}
}

// levelAt returns the level of a waiter at the given time. The level decreases by one after each step of waiting, down
// to level 1. Lower levels are served first.
func (w *waiter) levelAt(now time.Time, step time.Duration) int64 {
	return max(1, w.level-int64(now.Sub(w.since)/step))
}
