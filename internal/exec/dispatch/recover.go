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
	// cancelInterval is the pause between two looks for cancelled intents, and
	// cleanUpInterval that for the intents of dead processes.
	cancelInterval  = 250 * time.Millisecond
	cleanUpInterval = 2 * time.Second
	// maxAttempts is how many workers may die while they run one intent.
	maxAttempts = 5
	// retention is how long an intent is stored after its end.
	retention      = 7 * 24 * time.Hour
	deleteInterval = time.Hour
)

// maintain ages waiting intents, takes over orphans and stops cancelled intents
// while the queue is open.
func (q *Queue) maintain() {
	ticker := time.NewTicker(cancelInterval)
	defer ticker.Stop()
	try := func(what string, do func(context.Context) error) {
		if err := do(q.accepting); err != nil && q.accepting.Err() == nil {
			q.options.Log("%s: %v", what, err)
		}
	}
	var cleaned, aged time.Time
	for {
		if q.shared != nil && time.Since(aged) >= q.options.Step/4 {
			try("the priority of waiting intents cannot be raised", q.shared.age)
			aged = time.Now()
		}
		if time.Since(cleaned) >= cleanUpInterval {
			try("intents of ended processes cannot be taken over", q.cleanUp)
			cleaned = time.Now()
		}
		select {
		case <-q.accepting.Done():
			return
		case <-ticker.C:
		}
		try("cancelled intents cannot be read", q.stopCancelled)
	}
}

// stopCancelled stops the running intents that another process has cancelled.
func (q *Queue) stopCancelled(ctx context.Context) error {
	q.mu.Lock()
	busy := len(q.cancels) > 0
	q.mu.Unlock()
	if !busy {
		return nil
	}
	var ids []string
	err := q.store.DB.Read(ctx, func(tx state.Tx) error {
		ids = nil
		return tx.Query(`SELECT id FROM intents WHERE ended = 0 AND state = 'running' AND owner = $1 AND cancel = 1`,
			[]any{q.store.DB.Owner()}, collectText(&ids))
	})
	for _, id := range ids {
		q.stop(id)
	}
	return err
}

// cleanUp takes over the intents of dead owners and deletes old intents.
func (q *Queue) cleanUp(ctx context.Context) error {
	err := q.store.DB.Read(ctx, q.store.Journal.InForce)
	if errors.Is(err, journal.ErrHandedOver) {
		return q.retire(ctx, err)
	}
	if err != nil {
		return err
	}
	if q.shared != nil {
		if err := q.shared.reload(ctx); err != nil {
			return err
		}
	}
	orphans, err := q.orphans(ctx)
	if err != nil {
		return err
	}
	for _, i := range orphans {
		if err := q.takeOver(ctx, i); err != nil {
			return err
		}
	}
	if time.Since(q.lastDeleted) < deleteInterval {
		return nil
	}
	q.lastDeleted = time.Now()
	old := q.lastDeleted.Add(-retention).UnixMicro()
	return q.store.DB.Write(ctx, func(tx state.Tx) error {
		_, err := tx.Exec(`DELETE FROM intents WHERE asked < $1 AND ended > 0 AND ended < $2`, old, old)
		return err
	})
}

// retire accepts no more intents and logs the reason once. Processes with the new
// key take over the orphans.
func (q *Queue) retire(ctx context.Context, why error) error {
	if !q.retired {
		q.retired = true
		q.options.Log("%v; until then every call is refused", why)
	}
	return q.Reload(ctx)
}

// orphans returns the intents whose owner is dead. In process these include this
// owner's queued intents that are not reserved: they could not run in their turn.
func (q *Queue) orphans(ctx context.Context) ([]*Intent, error) {
	var open []*Intent
	query := `SELECT ` + columns + ` FROM intents WHERE ended = 0 AND state = `
	err := q.store.DB.Read(ctx, func(tx state.Tx) error {
		open = nil
		if err := tx.Query(query+`'running'`, nil, collect(&open)); err != nil || q.shared != nil {
			return err
		}
		return tx.Query(query+`'queued'`, nil, collect(&open))
	})
	if err != nil {
		return nil, err
	}
	if q.shared != nil {
		lost, err := q.shared.lost(ctx)
		if err != nil {
			return nil, err
		}
		open = append(open, lost...)
	}
	alive := map[string]bool{}
	var orphans []*Intent
	for _, i := range open {
		if q.shared == nil && i.State == Queued && i.owner == q.store.DB.Owner() {
			if !q.isReserved(i.ID) {
				orphans = append(orphans, i)
			}
			continue
		}
		if _, known := alive[i.owner]; !known {
			if alive[i.owner], err = q.store.DB.Alive(ctx, i.owner); err != nil {
				return nil, err
			}
		}
		if !alive[i.owner] {
			orphans = append(orphans, i)
		}
	}
	return orphans, nil
}

// servedLocal reports whether a process on this machine will run an intent that is
// not reserved here: its agent is served here, or its owner is alive elsewhere.
func (q *Queue) servedLocal(ctx context.Context, i *Intent) (bool, error) {
	if q.options.Gateways != nil && slices.Contains(q.options.Gateways.Digests(), i.Digest) {
		return true, nil
	}
	if i.owner == q.store.DB.Owner() {
		return false, nil
	}
	return q.store.DB.Alive(ctx, i.owner)
}

// errChanged means that an intent has changed since it was read.
var errChanged = errors.New("the intent has changed")

const (
	selectUnchanged = `SELECT cancel FROM intents WHERE id = $1 AND state = $2 AND owner = $3 AND job = $4`
	selectCall      = `SELECT state FROM calls WHERE id = $1`
	deleteCall      = `DELETE FROM calls WHERE id = $1`
	requeue         = `UPDATE intents SET state = 'queued', owner = $1, started = 0 WHERE id = $2`
	endIntent       = `UPDATE intents SET state = $1, ended = $2, answer = $3, sealed = NULL WHERE id = $4`
)

// takeOver runs an orphan again, or ends it.
func (q *Queue) takeOver(ctx context.Context, i *Intent) error {
	_, release, here := q.gateway(i.Digest)
	if here {
		release()
	}
	if q.shared == nil && i.State == Queued && !here {
		return nil // its agent may be served again later
	}
	again := false
	err := q.store.DB.Write(ctx, func(tx state.Tx) error {
		again = false
		var cancel int64
		found, begun := false, false
		owner := i.owner
		if q.shared != nil && i.State == Queued {
			owner = "" // i.owner is the worker that fetched its job
		}
		err := tx.Query(selectUnchanged, []any{i.ID, string(i.State), owner, i.job}, func(row state.Row) error {
			found = true
			return row.Scan(&cancel)
		})
		if err == nil && !found {
			err = errChanged
		}
		if err == nil {
			err = tx.Query(selectCall, []any{i.ID}, func(state.Row) error { begun = true; return nil })
		}
		if err != nil {
			return err
		}
		switch {
		case begun && (!i.repeatable || i.Attempts >= maxAttempts):
			return q.end(tx, i, Unknown, call.Uncertain(stage, call.OutcomeUnknown,
				"the worker died while it ran the program, in attempt %d; it is not known whether the task was done", i.Attempts))
		case cancel != 0:
			if _, err := tx.Exec(deleteCall, i.ID); err != nil {
				return err
			}
			return q.end(tx, i, Cancelled, call.Refuse(stage, call.TimedOut, "the intent was cancelled"))
		}
		again = true
		return q.requeueIntent(tx, i, here)
	})
	if err == nil {
		q.options.Log("took over intent %s from %s, which ended while the intent was %s", UUID(i.ID), i.owner, i.State)
	}
	switch {
	case errors.Is(err, errChanged):
		return nil
	case err == nil && again && here && q.shared == nil:
		start, _ := q.reserve(i)
		start()
	}
	return err
}

// requeueIntent returns an intent to the queue, as if its call had never begun.
func (q *Queue) requeueIntent(tx state.Tx, i *Intent, here bool) error {
	if _, err := tx.Exec(deleteCall, i.ID); err != nil {
		return err
	}
	owner := ""
	if q.shared == nil && here {
		owner = q.store.DB.Owner()
	}
	if _, err := tx.Exec(requeue, owner, i.ID); err != nil || q.shared == nil {
		return err
	}
	return insertJob(tx, i)
}

func (q *Queue) end(tx state.Tx, i *Intent, s State, r *call.Refusal) error {
	text, err := json.Marshal(storedAnswer{Refusal: r})
	if err != nil {
		return err
	}
	_, err = tx.Exec(endIntent, string(s), time.Now().UnixMicro(), q.store.Keys.Seal(sealAnswer+i.ID, text), i.ID)
	return err
}

// requeueRunning returns the intents that run here, and may be repeated, to the
// queue.
func (q *Queue) requeueRunning() {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	err := q.store.DB.Write(ctx, func(tx state.Tx) error {
		var own []*Intent
		err := tx.Query(`SELECT `+columns+` FROM intents
WHERE ended = 0 AND state = 'running' AND owner = $1 AND repeatable = 1 AND cancel = 0`,
			[]any{q.store.DB.Owner()}, collect(&own))
		for _, i := range own {
			if err == nil {
				err = q.requeueIntent(tx, i, false)
			}
		}
		return err
	})
	if err != nil {
		q.options.Log("running intents could not be returned to the queue: %v", err)
	}
}
