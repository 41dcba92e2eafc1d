package dispatch

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	// lookAgain is how often a waiting caller reads its intent again: whether there
	// is a worker changes without a commit.
	lookAgain = time.Second
	// gather lets several commits come together before they are looked at.
	gather = 2 * time.Millisecond
	// atOnce is how many intents are looked at with one question.
	atOnce = 500
)

// watched is an intent that is waited for. All who wait in a process share one
// look at the store: each for himself would read everything at every commit.
type watched struct {
	ended chan struct{}
	users int
}

// Wait returns when an intent has ended, or with ctx's error. told hears of it
// when its state changes before.
func (d *Queue) Wait(ctx context.Context, id string, told func(*Intent)) (*Intent, error) {
	ended, leave := d.watch(id)
	defer leave()
	timer := time.NewTicker(lookAgain)
	defer timer.Stop()
	last := Queued
	for {
		i, err := d.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if i.State.Ended() {
			return i, nil
		}
		if i.State != last && told != nil {
			told(i)
		}
		last = i.State
		select {
		case <-ended:
			ended = nil // it may be back in the queue all the same
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// watch returns what is closed when an intent may have ended.
func (d *Queue) watch(id string) (ended <-chan struct{}, leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if here := d.settled[id]; here != nil {
		return here, func() {}
	}
	w := d.watched[id]
	if w == nil {
		w = &watched{ended: make(chan struct{})}
		d.watched[id] = w
		if !d.looking {
			d.looking = true
			go d.look()
		}
	}
	w.users++
	return w.ended, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if w.users--; w.users == 0 && d.watched[id] == w {
			delete(d.watched, id)
		}
	}
}

// look looks at what is waited for, while there is any, whenever something was
// committed.
func (d *Queue) look() {
	for {
		d.mu.Lock()
		ids := make([]string, 0, len(d.watched))
		for id := range d.watched {
			ids = append(ids, id)
		}
		looking := len(ids) > 0 && d.ctx.Err() == nil
		d.looking = looking
		d.mu.Unlock()
		if !looking {
			return
		}
		for len(ids) > 0 {
			some := ids[:min(len(ids), atOnce)]
			ids = ids[len(some):]
			d.release(d.ended(some))
		}
		pause := gather
		if d.books.DB.Changed(d.ctx) != nil {
			pause = lookAgain // the store may be back then
		}
		select {
		case <-d.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// ended are those of some intents that have ended. What cannot be read is looked
// at again.
func (d *Queue) ended(ids []string) (ended []string) {
	marks, args := make([]string, len(ids)), make([]any, len(ids))
	for n, id := range ids {
		marks[n], args[n] = "$"+strconv.Itoa(n+1), id
	}
	err := d.books.DB.Read(d.ctx, func(tx state.Tx) error {
		ended = nil
		return tx.Query(`SELECT id FROM intents WHERE id IN (`+strings.Join(marks, ", ")+`) AND ended > 0`,
			args, func(row state.Row) error {
				var id string
				err := row.Scan(&id)
				ended = append(ended, id)
				return err
			})
	})
	if err != nil {
		return nil
	}
	return ended
}

func (d *Queue) release(ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if w := d.watched[id]; w != nil {
			close(w.ended)
			delete(d.watched, id)
		}
	}
}
