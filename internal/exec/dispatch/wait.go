package dispatch

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	// recheckInterval is how often a waiting caller reads its intent again: workers
	// appear and disappear without a commit.
	recheckInterval = time.Second
	// batchDelay collects several commits before the next poll.
	batchDelay = 2 * time.Millisecond
	// maxBatch is how many intents one query reads.
	maxBatch = 500
)

// watched is an intent that callers wait for. All callers of a process share one
// poller: separate ones would each query the store at every commit.
type watched struct {
	ended chan struct{}
	users int
}

// Wait returns an intent when it has ended, or ctx's error. onChange, if not nil, is
// called when the state changes before.
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
			ended = nil // the intent may have returned to the queue instead
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// watch returns a channel that is closed when an intent may have ended.
func (q *Queue) watch(id string) (ended <-chan struct{}, unwatch func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if released := q.reserved[id]; released != nil {
		return released, func() {}
	}
	w := q.watched[id]
	if w == nil {
		w = &watched{ended: make(chan struct{})}
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

// pollWatched reads the watched intents after every commit, until none is left.
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
			q.notify(q.ended(batch))
		}
		pause := batchDelay
		if q.store.DB.Changed(q.ctx) != nil {
			pause = recheckInterval // until the store is reachable again
		}
		select {
		case <-q.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// ended returns those of some intents that have ended. If the read fails, it returns
// none; the next poll reads again.
func (q *Queue) ended(ids []string) (ended []string) {
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

// notify wakes the callers that wait for these intents.
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
