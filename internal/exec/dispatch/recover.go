package dispatch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	// cancelInterval is how often the queue searches for cancelled intents.
	cancelInterval = 250 * time.Millisecond
	// cleanUpInterval is how often the queue searches for intents of dead processes.
	cleanUpInterval = 2 * time.Second
	// maxAttempts is the maximum number of attempts to run an intent whose workers die. After that many attempts, the
	// intent does not run again.
	maxAttempts = 5
	// retention is how long an intent is stored after it has ended.
	retention      = 7 * 24 * time.Hour
	deleteInterval = time.Hour
)

// maintain runs while the queue accepts intents. It raises the priority of waiting intents, takes over the intents of
// dead processes, and stops cancelled intents.
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
		if time.Since(cleaned) >= cleanUpInterval {
			q.checkStore()
			if q.down.IsZero() {
				try("cannot take over the intents of dead processes", q.cleanUp)
			}
			cleaned = time.Now()
		}
		if q.down.IsZero() && q.shared != nil && time.Since(aged) >= q.options.Step/4 {
			try("cannot raise the priority of waiting intents", q.shared.raisePriorities)
			aged = time.Now()
		}
		select {
		case <-q.accepting.Done():
			return
		case <-ticker.C:
		}
		if q.down.IsZero() {
			try("cannot search for cancelled intents", q.stopCancelled)
		}
	}
}

// checkStore logs when the store becomes unavailable, and when it becomes available again.
func (q *Queue) checkStore() {
	err := q.store.DB.Read(q.accepting, func(state.Tx) error { return nil })
	switch {
	case q.accepting.Err() != nil:
	case err != nil && q.down.IsZero():
		q.down = time.Now()
		q.options.Log("the store is unavailable, so no call can be made: %v", err)
	case err == nil && !q.down.IsZero():
		q.options.Log("the store is available again, after %v", time.Since(q.down).Round(time.Second))
		q.down = time.Time{}
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

// cleanUp takes over the intents of dead processes and deletes old intents.
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

// retire stops accepting jobs on PostgreSQL after the root key was rotated. The first call also logs the rotation.
// From then on, only processes with the new root key take over the intents of dead processes.
func (q *Queue) retire(ctx context.Context, why error) error {
	if !q.retired {
		q.retired = true
		q.options.Log("%v; until then every call is refused", why)
	}
	return q.Reload(ctx)
}

// orphans returns the intents that no process will run, because their owner is dead or not set. On SQLite, it also
// returns this process's queued intents without a reservation. An intent loses its reservation when an attempt to run
// it fails.
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
		lost, err := q.shared.withoutJob(ctx)
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

// servedLocal reports whether a process on this machine will run an unreserved intent. This is the case if this process
// serves the agent, or if another live process owns the intent.
func (q *Queue) servedLocal(ctx context.Context, i *Intent) (bool, error) {
	if q.options.Gateways != nil && slices.Contains(q.options.Gateways.Digests(), i.Digest) {
		return true, nil
	}
	if i.owner == q.store.DB.Owner() {
		return false, nil
	}
	return q.store.DB.Alive(ctx, i.owner)
}

var errChanged = errors.New("the intent has changed since it was read")

const (
	selectUnchanged = `SELECT cancel FROM intents WHERE id = $1 AND state = $2 AND owner = $3 AND job = $4`
	selectCall      = `SELECT state FROM calls WHERE id = $1`
	deleteCall      = `DELETE FROM calls WHERE id = $1`
	requeue         = `UPDATE intents SET state = 'queued', owner = $1, started = 0 WHERE id = $2`
	endIntent       = `UPDATE intents SET state = $1, ended = $2, answer = $3, sealed = NULL WHERE id = $4`
)

// takeOver returns an orphaned intent to the queue. If the intent was cancelled or cannot be repeated, takeOver ends it
// instead.
func (q *Queue) takeOver(ctx context.Context, i *Intent) error {
	_, release, served := q.gateway(i.Digest)
	if served {
		release()
	}
	if q.shared == nil && i.State == Queued && !served {
		return nil // another process may serve the agent at a later time
	}
	again := false
	err := q.store.DB.Write(ctx, func(tx state.Tx) error {
		again = false
		var cancel int64
		found := false
		owner := i.owner
		if q.shared != nil && i.State == Queued {
			owner = "" // the row has no owner yet, and i.owner is the worker that fetched the job
		}
		err := tx.Query(selectUnchanged, []any{i.ID, string(i.State), owner, i.job}, func(row state.Row) error {
			found = true
			return row.Scan(&cancel)
		})
		if err == nil && !found {
			err = errChanged
		}
		if err != nil {
			return err
		}
		begun, err := exists(tx, selectCall, i.ID)
		if err != nil {
			return err
		}
		switch {
		case begun && (!i.repeatable || i.Attempts >= maxAttempts):
			return q.end(tx, i, Unknown, call.Uncertain(stage, call.OutcomeUnknown,
				"the worker process died during attempt %d to run the program; it is unknown whether the task was done",
				i.Attempts))
		case cancel != 0:
			if _, err := tx.Exec(deleteCall, i.ID); err != nil {
				return err
			}
			return q.end(tx, i, Cancelled, call.Refuse(stage, call.TimedOut, "the intent was cancelled"))
		}
		again = true
		return q.requeueIntent(tx, i, served)
	})
	if err == nil {
		q.options.Log("took over intent %s from process %s, which ended while the intent was %s",
			UUID(i.ID), i.owner, i.State)
	}
	switch {
	case errors.Is(err, errChanged):
		return nil
	case err == nil && again && served && q.shared == nil:
		start, _ := q.reserve(i)
		start()
	}
	return err
}

// requeueIntent returns an intent to the queue as if its call had never begun. On SQLite, this process becomes the
// owner of the intent if served is true.
func (q *Queue) requeueIntent(tx state.Tx, i *Intent, served bool) error {
	if _, err := tx.Exec(deleteCall, i.ID); err != nil {
		return err
	}
	owner := ""
	if q.shared == nil && served {
		owner = q.store.DB.Owner()
	}
	if _, err := tx.Exec(requeue, owner, i.ID); err != nil || q.shared == nil {
		return err
	}
	return insertJob(tx, i)
}

func (q *Queue) end(tx state.Tx, i *Intent, s State, r *call.Refusal) error {
	sealed, err := storedAnswer{Refusal: r}.seal(tx, q.store, i.ID)
	if err == nil {
		_, err = tx.Exec(endIntent, string(s), time.Now().UnixMicro(), sealed, i.ID)
	}
	return err
}

// requeueRunning puts the running intents of this process back into the queue, if they are repeatable.
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
		q.options.Log("cannot return running intents to the queue: %v", err)
	}
}

const (
	// recheckInterval is how often a waiting caller reads its intent again. Waiting for commits is not enough,
	// because workers can start and die without a commit.
	recheckInterval = time.Second
	// batchDelay is the pause between two polls. During the pause, several commits can happen, and one poll covers
	// them all.
	batchDelay = 2 * time.Millisecond
	// maxBatch is the maximum number of intents that one query reads.
	maxBatch = 500
)

// watchedIntent is an intent that callers wait for. All callers in a process share one poller, because separate pollers
// would all query the store after every commit.
type watchedIntent struct {
	ended chan struct{}
	users int
}

// Wait waits until an intent has ended, and returns it. If ctx is canceled first, Wait returns the error of ctx. If
// onChange is not nil, it is called after each change of state until the intent ends.
func (q *Queue) Wait(ctx context.Context, id string, onChange func(*Intent)) (*Intent, error) {
	ended, unwatch := q.watch(id)
	defer unwatch()
	timer := time.NewTicker(recheckInterval)
	defer timer.Stop()
	last := Queued
	for {
		i, err := q.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if i.State.Ended() {
			return i, nil
		}
		if i.State != last && onChange != nil {
			onChange(i)
		}
		last = i.State
		select {
		case <-ended:
			ended = nil // a closed channel is always ready, so wait only for the ticker from now on
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// watch returns a channel that is closed when an intent may have ended. When the caller stops waiting, it must call
// unwatch.
func (q *Queue) watch(id string) (ended <-chan struct{}, unwatch func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if released := q.reserved[id]; released != nil {
		return released, func() {}
	}
	w := q.watched[id]
	if w == nil {
		w = &watchedIntent{ended: make(chan struct{})}
		q.watched[id] = w
		if !q.polling {
			q.polling = true
			go q.pollWatched()
		}
	}
	w.users++
	return w.ended, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if w.users--; w.users == 0 && q.watched[id] == w {
			delete(q.watched, id)
		}
	}
}

// pollWatched reads the watched intents after every commit. It returns when no more intents are watched.
func (q *Queue) pollWatched() {
	for {
		q.mu.Lock()
		ids := slices.Collect(maps.Keys(q.watched))
		polling := len(ids) > 0 && q.ctx.Err() == nil
		q.polling = polling
		q.mu.Unlock()
		if !polling {
			return
		}
		for batch := range slices.Chunk(ids, maxBatch) {
			q.notify(q.endedAmong(batch))
		}
		pause := batchDelay
		if q.store.DB.Changed(q.ctx) != nil {
			pause = recheckInterval // the store cannot be read at the moment
		}
		select {
		case <-q.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// endedAmong checks which of the given intents have ended, and returns their ids. If reading fails, it returns nil, and
// the next poll tries again.
func (q *Queue) endedAmong(ids []string) (ended []string) {
	marks, args := make([]string, len(ids)), make([]any, len(ids))
	for n, id := range ids {
		marks[n], args[n] = "$"+strconv.Itoa(n+1), id
	}
	err := q.store.DB.Read(q.ctx, func(tx state.Tx) error {
		ended = nil
		return tx.Query(`SELECT id FROM intents WHERE id IN (`+strings.Join(marks, ", ")+`) AND ended > 0`,
			args, collectText(&ended))
	})
	if err != nil {
		return nil
	}
	return ended
}

// notify wakes up the callers that wait for these intents.
func (q *Queue) notify(ids []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		if w := q.watched[id]; w != nil {
			close(w.ended)
			delete(q.watched, id)
		}
	}
}
