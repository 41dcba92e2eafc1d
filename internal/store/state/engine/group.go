package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/ambit-run/ambit/internal/store/state"
)

// A commit waits for the disk, so one commit for all who wait is worth more
// than any other saving. Whoever comes while nobody else writes makes a batch by
// himself, and takes along those who come while he is at it: between goroutines
// that would be several handovers for each commit. Then the first of those who
// came too late makes the next. Where another process has to be waited for, one
// goroutine does that and makes the batch, so that members can leave. The function
// of each member runs in the member's own goroutine either way. So a panic, or
// the end of a goroutine, meets the one who caused it, and the batch goes on
// without him.
//
// A member may leave while it waits for its turn. Once its function has run it
// stays until the commit, because only then is it known what happened.

// A Batch is a transaction that members take turns in.
type Batch interface {
	// Do runs f for one member. An error undoes what this member did, and only
	// that. Panics pass through, and are undone too.
	Do(ctx context.Context, f func(state.Tx) error) error
	// Lost is the reason why the whole batch cannot be committed, if it cannot.
	Lost() error
	// End commits the batch, or rolls it back if it is lost or without
	// members, and lets others write. Its error says that nothing was committed.
	End(members int) error
}

// ErrAgain in the chain of an error of a whole batch says that its members are
// to run again.
var ErrAgain = errors.New("the transaction met another one")

const (
	// maxMembers bounds how long others wait for this process.
	maxMembers = 64
	// maxRuns bounds how often a member runs before it gets the batch's error.
	maxRuns = 10
)

// Group is a line of members waiting for their turns.
type Group struct {
	begin func() (Batch, error)
	try   func() (Batch, error)
	wake  chan struct{} // holds one token when there may be work
	gone  chan struct{} // closed when the committing goroutine has ended

	mu     sync.Mutex
	line   []*member
	busy   bool // somebody makes a batch
	closed bool
}

type member struct {
	turn chan Batch // gets the batch when it is this member's turn; nil if it is to make one
	ran  chan bool  // whether its part of the batch stands
	done chan error // what became of the batch
	runs int
}

// New starts a group. begin waits until this process may write. try does not:
// it returns no batch where begin would wait. It may be nil.
func New(begin, try func() (Batch, error)) *Group {
	g := &Group{begin: begin, try: try, wake: make(chan struct{}, 1), gone: make(chan struct{})}
	go g.commit()
	return g
}

// Write runs f as a member of a batch.
func (g *Group) Write(ctx context.Context, f func(state.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.take() {
		if led, err := g.lead(ctx, f); led {
			return err
		}
	}
	m := &member{turn: make(chan Batch, 1), ran: make(chan bool, 1), done: make(chan error, 1)}
	if !g.join(m) {
		return state.ErrClosed
	}
	for {
		select {
		case batch := <-m.turn:
			if batch == nil {
				if led, err := g.lead(ctx, f); led {
					return err
				}
				if !g.join(m) {
					return state.ErrClosed
				}
				continue
			}
			err := m.run(ctx, batch, f)
			if err == nil {
				err = <-m.done
			}
			if !errors.Is(err, ErrAgain) || m.runs >= maxRuns {
				return err
			}
			if !g.join(m) {
				return state.ErrClosed
			}
		case err := <-m.done: // the batch did not begin
			return err
		case <-ctx.Done():
			if g.leave(m) {
				return ctx.Err()
			}
			// Its turn, or its end, is on the way.
			select {
			case batch := <-m.turn:
				if batch == nil {
					g.pass()
				} else {
					m.ran <- false
				}
				return ctx.Err()
			case err := <-m.done:
				return err
			}
		}
	}
}

// lead makes a batch of f and whoever came in the meantime, if that can be begun
// without waiting. It is for the one who makes batches, and hands that on.
func (g *Group) lead(ctx context.Context, f func(state.Tx) error) (led bool, err error) {
	batch, err := g.try()
	if batch == nil {
		g.rest() // the committing goroutine can wait
		return err != nil, err
	}
	defer g.pass()
	stood := 0
	var members []*member
	defer func() { // also when f does not return
		ended := batch.End(stood + len(members))
		if stood > 0 {
			err = ended
		}
		for _, m := range members {
			m.done <- ended
		}
	}()
	if err = batch.Do(ctx, f); err == nil {
		stood = 1
	}
	if batch.Lost() == nil {
		members = g.turns(batch, maxMembers-1)
	}
	return true, err
}

// take makes the caller the one who makes batches, if nobody is and nobody
// waits.
func (g *Group) take() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.try == nil || g.busy || g.closed || len(g.line) > 0 {
		return false
	}
	g.busy = true
	return true
}

// pass makes the first in line the one who makes batches.
func (g *Group) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.line) == 0 {
		g.idle()
		return
	}
	m := g.line[0]
	g.line[0] = nil
	g.line = g.line[1:]
	m.turn <- nil
}

// rest leaves the making of batches to whoever comes next.
func (g *Group) rest() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle()
}

func (g *Group) idle() {
	g.busy = false
	if len(g.line) > 0 || g.closed {
		g.poke()
	}
}

// run reports to the one who makes the batch however f ends.
func (m *member) run(ctx context.Context, batch Batch, f func(state.Tx) error) (err error) {
	stands := false
	defer func() { m.ran <- stands }()
	m.runs++
	err = batch.Do(ctx, f)
	stands = err == nil
	return err
}

func (g *Group) join(m *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.line = append(g.line, m)
	if !g.busy { // or whoever is will look for him
		g.poke()
	}
	return true
}

// poke leaves a token for the committing goroutine.
func (g *Group) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *Group) leave(m *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.line {
		if other == m {
			g.line = append(g.line[:i], g.line[i+1:]...)
			return true
		}
	}
	return false
}

func (g *Group) next() *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.line) == 0 {
		return nil
	}
	m := g.line[0]
	g.line[0] = nil
	g.line = g.line[1:]
	return m
}

// over reports whether nothing will come any more.
func (g *Group) over() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed && !g.busy && len(g.line) == 0
}

// takeLine makes the committing goroutine the one who makes batches, if nobody
// is and somebody waits.
func (g *Group) takeLine() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy || len(g.line) == 0 {
		return false
	}
	g.busy = true
	return true
}

func (g *Group) commit() {
	defer close(g.gone)
	for range g.wake {
		for g.takeLine() {
			g.batch()
			g.rest()
		}
		if g.over() {
			return
		}
	}
}

// batch runs members until nobody waits or there are enough.
func (g *Group) batch() {
	batch, err := g.begin()
	if err != nil {
		g.Fail(err)
		return
	}
	members := g.turns(batch, maxMembers)
	err = batch.End(len(members))
	for _, m := range members {
		m.done <- err
	}
}

// turns runs those who wait, and returns whose part stands.
func (g *Group) turns(batch Batch, most int) (members []*member) {
	for range most {
		m := g.next()
		if m == nil {
			break
		}
		m.turn <- batch
		if <-m.ran {
			members = append(members, m)
		}
		if batch.Lost() != nil {
			break
		}
	}
	return members
}

// Fail ends everybody who waits. It may be called while begin waits, by somebody
// who knows that this takes too long.
func (g *Group) Fail(err error) {
	for m := g.next(); m != nil; m = g.next() {
		m.done <- err
	}
}

// Close lets nobody in any more and fails those who wait. It returns a channel
// that is closed when the last batch has ended.
func (g *Group) Close() <-chan struct{} {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.Fail(state.ErrClosed)
	g.poke()
	return g.gone
}
