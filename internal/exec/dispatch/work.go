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

// hold takes an intent of this process's own in hand, before it is written: one
// that waits under this owner and is in nobody's hand was left, see [Queue.left].
// Then start has it done when its turn comes, or leave lets it go.
func (d *Queue) hold(i *Intent) (start, leave func()) {
	settled := make(chan struct{})
	waiting, cancel := context.WithCancel(d.open)
	d.mu.Lock()
	d.settled[i.ID], d.running[i.ID] = settled, cancel
	d.mu.Unlock()
	leave = func() {
		cancel()
		d.mu.Lock()
		delete(d.settled, i.ID)
		delete(d.running, i.ID)
		d.mu.Unlock()
		close(settled)
	}
	start = func() {
		d.work.Go(func() {
			defer leave()
			done, err := d.line.wait(waiting, i.effective().level(), i.Asked)
			if err != nil {
				return // it was cancelled, or another process will find it
			}
			defer done()
			if err := d.do(i.ID, i.Digest); err != nil {
				d.options.Log("intent %s waits: %v", UUID(i.ID), err)
			}
		})
	}
	return start, leave
}

// inHand reports whether this process has an intent to do.
func (d *Queue) inHand(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settled[id] != nil
}

// errNoDoor means that an agent is not served here.
var errNoDoor = errors.New("the agent is no longer served here")

// do claims an intent and makes its call. A second process finds the intent taken
// and leaves it. It fails with errNoDoor only.
func (d *Queue) do(id, digest string) error {
	door, leave, ok := d.door(digest)
	if !ok {
		return errNoDoor
	}
	defer leave()
	ctx, cancel := context.WithCancel(context.WithValue(d.ctx, turnTaken{}, true))
	defer cancel()
	// Before the claim, so that a running intent can be stopped. A job that is
	// delivered twice may reach one desk twice, and a claim distinguishes only desks.
	d.mu.Lock()
	if d.doing[id] {
		d.mu.Unlock()
		return nil
	}
	d.doing[id], d.running[id] = true, cancel
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.doing, id)
		delete(d.running, id)
		d.mu.Unlock()
	}()
	c, asked, err := d.read(id)
	if c == nil || err != nil {
		if err != nil {
			d.options.Log("intent %s cannot be read: %v", UUID(id), err)
		}
		return nil
	}
	c.Tool, c.Waited = door.Agent().Tools[0].Name, true
	ctx = call.WithStanding(ctx, func(ctx context.Context) error { return d.standing(ctx, asked) })
	result, err := door.Call(ctx, c)
	if err := d.conclude(id, result, err); err != nil {
		d.options.Log("what became of intent %s could not be kept: %v", UUID(id), err)
	}
	return nil
}

const selectAsked = `SELECT parent, sealed FROM intents WHERE id = $1 AND state = 'queued'`

// read makes the call of an intent; nil if another process has it, or it is no longer
// needed. It is claimed when its gateway commits to the call, see [Participant].
func (d *Queue) read(id string) (*call.Call, *asking, error) {
	ctx, cancel := context.WithTimeout(context.Background(), claimTime)
	defer cancel()
	c := &call.Call{ID: id}
	var sealed []byte
	err := d.books.DB.Read(ctx, func(tx state.Tx) error {
		sealed = nil
		return tx.Query(selectAsked, []any{id}, func(row state.Row) error { return row.Scan(&c.Parent, &sealed) })
	})
	if err != nil || sealed == nil {
		return nil, nil, err
	}
	var asked asking
	text, err := d.books.Keys.OpenKept(sealAsked+id, sealed)
	if err == nil {
		err = json.Unmarshal(text, &asked)
	}
	if err != nil {
		unread := call.Refuse(stage, call.StoreUnavailable, "what was asked cannot be read: %v", err)
		return nil, nil, errors.Join(err, d.settleNow(ctx, id, call.Outcome{Refusal: unread}))
	}
	c.Principal, c.By, c.Arguments = asked.Principal, asked.By, jsontext.Value(asked.Arguments)
	return c, &asked, nil
}

// standing returns why the caller of an intent would no longer be admitted: a
// refusal, or the error of the check.
func (d *Queue) standing(ctx context.Context, a *asking) error {
	over, err := identity.Over(ctx, identity.NewAPIKeys(d.books.DB), a.Key, a.Until)
	if over == nil {
		return err
	}
	refusal := call.Refuse(stage, call.ApprovalDenied, "%v while the intent waited, so it is not done", over)
	refusal.Hint = "ask again with a key that is good"
	return refusal
}

const openState = `SELECT state FROM intents WHERE id = $1 AND state IN ('queued', 'running') AND (owner = $2 OR state = 'queued' AND $3 = 1)`

// claimTime bounds writes that cannot be cancelled.
const claimTime = 30 * time.Second

// conclude makes sure that an intent that was done here has an answer. Its gateway
// has kept it with the record of the call, unless that failed.
func (d *Queue) conclude(id string, result call.Result, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), claimTime)
	defer cancel()
	is := ""
	readErr := d.books.DB.Read(ctx, func(tx state.Tx) error {
		is = ""
		return tx.Query(openState,
			[]any{id, d.books.DB.Owner(), number(d.shared != nil)}, func(row state.Row) error { return row.Scan(&is) })
	})
	if readErr != nil || is == "" {
		return readErr
	}
	var stopped *call.Refusal
	if err != nil {
		stopped = call.AsRefusal(stage, err)
	}
	// Another worker may reach the store, but with a key that was handed over none.
	others := d.shared != nil && d.books.Journal.HandedOver() == nil
	if State(is) == Queued && (stopped == nil || stopped.Effect != call.NoEffect || others && stopped.Code == call.StoreUnavailable) {
		return nil // it is waiting for somebody again
	}
	return d.settleNow(ctx, id, call.Outcome{Result: result, Refusal: stopped, Begun: State(is) == Running})
}

func (d *Queue) settleNow(ctx context.Context, id string, o call.Outcome) error {
	return d.books.DB.Write(ctx, func(tx state.Tx) error {
		_, err := settle(tx, d.books, id, o)
		return err
	})
}

const (
	cancelQueued  = `UPDATE intents SET state = 'cancelled', cancel = 1, ended = $1, answer = $2, sealed = NULL WHERE id = $3 AND state = 'queued'`
	cancelRunning = `UPDATE intents SET cancel = 1 WHERE id = $1 AND state = 'running'`
)

// Cancel ends an intent: at once if it has not begun, and otherwise as soon as
// whoever does it hears of it. One that has ended stays as it is.
func (d *Queue) Cancel(ctx context.Context, id string) error {
	text, err := json.Marshal(kept{Refusal: call.Refuse(stage, call.TimedOut, "the intent was cancelled before it began")})
	if err != nil {
		return err
	}
	err = d.books.DB.Write(ctx, func(tx state.Tx) error {
		n, err := tx.Exec(cancelQueued, time.Now().UnixMicro(), d.books.Keys.Seal(sealAnswer+id, text), id)
		if err != nil || n == 1 {
			return err
		}
		_, err = tx.Exec(cancelRunning, id)
		return err
	})
	if err == nil {
		d.stop(id)
	}
	return err
}

// stop ends what this process has under way, or waits to begin.
func (d *Queue) stop(id string) {
	d.mu.Lock()
	cancel := d.running[id]
	d.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}
