package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	// tendEvery is how often cancelled intents are looked for, and tidyEvery how
	// often those that dead processes left.
	tendEvery = 250 * time.Millisecond
	tidyEvery = 2 * time.Second
	// maxAttempts is how many workers may die of one intent.
	maxAttempts = 5
	// keepFor is how long an intent is remembered after its end.
	keepFor     = 7 * 24 * time.Hour
	forgetEvery = time.Hour
)

// tend looks after intents while the desk is open.
func (d *Queue) tend() {
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	var tidied, aged time.Time
	for {
		if d.shared != nil && time.Since(aged) >= d.options.Step/4 {
			if err := d.shared.age(d.open); err != nil && d.open.Err() == nil {
				d.options.Log("what waits cannot be lifted: %v", err)
			}
			aged = time.Now()
		}
		if time.Since(tidied) >= tidyEvery {
			if err := d.tidy(d.open); err != nil && d.open.Err() == nil {
				d.options.Log("intents of ended processes cannot be looked for: %v", err)
			}
			tidied = time.Now()
		}
		select {
		case <-d.open.Done():
			return
		case <-ticker.C:
		}
		if err := d.heed(d.open); err != nil && d.open.Err() == nil {
			d.options.Log("cancelled intents cannot be looked for: %v", err)
		}
	}
}

// heed stops what somebody elsewhere has cancelled.
func (d *Queue) heed(ctx context.Context) error {
	d.mu.Lock()
	busy := len(d.running) > 0
	d.mu.Unlock()
	if !busy {
		return nil
	}
	var ids []string
	err := d.books.DB.Read(ctx, func(tx state.Tx) error {
		ids = nil
		return tx.Query(`SELECT id FROM intents WHERE ended = 0 AND state = 'running' AND owner = $1 AND cancel = 1`,
			[]any{d.books.DB.Owner()}, func(row state.Row) error {
				var id string
				err := row.Scan(&id)
				ids = append(ids, id)
				return err
			})
	})
	for _, id := range ids {
		d.stop(id)
	}
	return err
}

// tidy takes over what dead owners left, and forgets what is long over.
func (d *Queue) tidy(ctx context.Context) error {
	err := d.books.DB.Read(ctx, d.books.Journal.InForce)
	if errors.Is(err, journal.ErrHandedOver) {
		return d.retire(ctx, err)
	}
	if err != nil {
		return err
	}
	if d.shared != nil {
		if err := d.shared.reload(ctx); err != nil {
			return err
		}
	}
	left, err := d.left(ctx)
	if err != nil {
		return err
	}
	for _, i := range left {
		if err := d.takeOver(ctx, i); err != nil {
			return err
		}
	}
	if time.Since(d.forgot) < forgetEvery {
		return nil
	}
	d.forgot = time.Now()
	old := d.forgot.Add(-keepFor).UnixMicro()
	return d.books.DB.Write(ctx, func(tx state.Tx) error {
		_, err := tx.Exec(`DELETE FROM intents WHERE asked < $1 AND ended > 0 AND ended < $2`, old, old)
		return err
	})
}

// retire takes nothing any more, and says why, once. What dead owners left is for
// those who have the new key.
func (d *Queue) retire(ctx context.Context, why error) error {
	if !d.retired {
		d.retired = true
		d.options.Log("%v; until then every call is refused", why)
	}
	return d.Reload(ctx)
}

// left are the intents whose owner is dead, or that nobody has: in process also
// those that are this owner's and could not be done when their turn came.
func (d *Queue) left(ctx context.Context) ([]*Intent, error) {
	var open []*Intent
	err := d.books.DB.Read(ctx, func(tx state.Tx) error {
		open = nil
		collect := func(row state.Row) error {
			i, err := scan(row)
			open = append(open, i)
			return err
		}
		query := `SELECT ` + columns + ` FROM intents WHERE ended = 0 AND state = 'running'`
		if err := tx.Query(query, nil, collect); err != nil || d.shared != nil {
			return err
		}
		return tx.Query(`SELECT `+columns+` FROM intents WHERE ended = 0 AND state = 'queued'`, nil, collect)
	})
	if err != nil {
		return nil, err
	}
	if d.shared != nil {
		lost, err := d.shared.lost(ctx)
		if err != nil {
			return nil, err
		}
		open = append(open, lost...)
	}
	alive := map[string]bool{}
	var left []*Intent
	for _, i := range open {
		if d.shared == nil && i.State == Queued && i.owner == d.books.DB.Owner() {
			if !d.inHand(i.ID) {
				left = append(left, i)
			}
			continue
		}
		is, known := alive[i.owner]
		if !known {
			if is, err = d.books.DB.Alive(ctx, i.owner); err != nil {
				return nil, err
			}
			alive[i.owner] = is
		}
		if !is {
			left = append(left, i)
		}
	}
	return left, nil
}

// nobodyHere marks an intent that no process of this machine takes: it is in
// nobody's hand, and its agent is not served.
func (d *Queue) nobodyHere(ctx context.Context, i *Intent) error {
	if d.options.Gateways != nil && slices.Contains(d.options.Gateways.Digests(), i.Digest) {
		return nil
	}
	if i.owner != d.books.DB.Owner() {
		if alive, err := d.books.DB.Alive(ctx, i.owner); err != nil || alive {
			return err
		}
	}
	i.State = NoWorker
	return nil
}

// errMoved says that an intent is no longer as it was read.
var errMoved = errors.New("the intent has moved on")

const (
	stillSo    = `SELECT cancel FROM intents WHERE id = $1 AND state = $2 AND owner = $3 AND job = $4`
	hasBegun   = `SELECT state FROM calls WHERE id = $1`
	forgetCall = `DELETE FROM calls WHERE id = $1`
	requeue    = `UPDATE intents SET state = 'queued', owner = $1, started = 0 WHERE id = $2`
	giveUp     = `UPDATE intents SET state = $1, ended = $2, answer = $3, sealed = NULL WHERE id = $4`
)

// takeOver decides what becomes of an intent that was left.
func (d *Queue) takeOver(ctx context.Context, i *Intent) error {
	_, leave, here := d.door(i.Digest)
	if here {
		leave()
	}
	if d.shared == nil && i.State == Queued && !here {
		return nil // its agent may be served again
	}
	again := false
	err := d.books.DB.Write(ctx, func(tx state.Tx) error {
		again = false
		var cancel int64
		found, begun := false, false
		owner := i.owner
		if d.shared != nil && i.State == Queued {
			owner = "" // i.owner is who had fetched its job
		}
		err := tx.Query(stillSo, []any{i.ID, string(i.State), owner, i.job}, func(row state.Row) error {
			found = true
			return row.Scan(&cancel)
		})
		if err == nil && !found {
			err = errMoved
		}
		if err == nil {
			err = tx.Query(hasBegun, []any{i.ID}, func(state.Row) error { begun = true; return nil })
		}
		if err != nil {
			return err
		}
		switch {
		case begun && (!i.repeatable || i.Attempts >= maxAttempts):
			return d.end(tx, i, Unknown, call.Uncertain(stage, call.OutcomeUnknown,
				"the worker that ran the program died, at the %s; whether it was carried out is not known", ordinal(i.Attempts)))
		case cancel != 0:
			if _, err := tx.Exec(forgetCall, i.ID); err != nil {
				return err
			}
			return d.end(tx, i, Cancelled, call.Refuse(stage, call.TimedOut, "the intent was cancelled"))
		}
		again = true
		return d.putBack(tx, i, here)
	})
	if err == nil {
		d.options.Log("intent %s had been left by %s while it was %s; it was taken over", UUID(i.ID), i.owner, i.State)
	}
	switch {
	case errors.Is(err, errMoved):
		return nil
	case err == nil && again && here && d.shared == nil:
		start, _ := d.hold(i)
		start()
	}
	return err
}

func ordinal(attempts int) string {
	if attempts <= 1 {
		return "first attempt"
	}
	return "last of several attempts"
}

// putBack makes an intent wait again, as if its call had never begun.
func (d *Queue) putBack(tx state.Tx, i *Intent, here bool) error {
	if _, err := tx.Exec(forgetCall, i.ID); err != nil {
		return err
	}
	owner := ""
	if d.shared == nil && here {
		owner = d.books.DB.Owner()
	}
	if _, err := tx.Exec(requeue, owner, i.ID); err != nil || d.shared == nil {
		return err
	}
	return insertJob(tx, i)
}

func (d *Queue) end(tx state.Tx, i *Intent, s State, r *call.Refusal) error {
	text, err := json.Marshal(kept{Refusal: r})
	if err != nil {
		return err
	}
	_, err = tx.Exec(giveUp, string(s), time.Now().UnixMicro(), d.books.Keys.Seal(sealAnswer+i.ID, text), i.ID)
	return err
}

// putBackRunning gives what is under way here, and may be repeated, to others.
func (d *Queue) putBackRunning() {
	ctx, cancel := context.WithTimeout(context.Background(), claimTime)
	defer cancel()
	err := d.books.DB.Write(ctx, func(tx state.Tx) error {
		var mine []*Intent
		err := tx.Query(`SELECT `+columns+` FROM intents WHERE ended = 0 AND state = 'running' AND owner = $1 AND repeatable = 1 AND cancel = 0`,
			[]any{d.books.DB.Owner()}, func(row state.Row) error {
				i, err := scan(row)
				mine = append(mine, i)
				return err
			})
		for _, i := range mine {
			if err == nil {
				err = d.putBack(tx, i, false)
			}
		}
		return err
	})
	if err != nil {
		d.options.Log("what is under way could not be given back: %v", err)
	}
}
