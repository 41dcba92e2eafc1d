// Package engine contains the parts that both store engines share: group commit, the
// rules of a transaction, and waiting for commits.
//
// A commit waits for the disk, so one commit for all waiting writers saves more than any
// other optimisation. The first writer leads a batch; writers that arrive while it runs
// join it. The first writer that arrives too late leads the next batch. Leading in the
// writer's own goroutine avoids several goroutine switches per commit. Only when another
// process holds the lock does a background goroutine wait for it and lead the batch, so
// that waiting writers can cancel.
//
// Each member's function runs in the member's own goroutine. A panic or Goexit therefore
// affects only the member that caused it; the batch continues without that member. A
// member can leave while it waits for its turn. After its function has run, the member
// waits for the commit, because its outcome is unknown until then.
package engine

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/ambit-run/ambit/internal/store/state"
)

// A Batch is a transaction that several members share, one after the other.
type Batch interface {
	// Do runs f for one member. If f fails or panics, Do undoes the changes of this
	// member only. Panics propagate.
	Do(ctx context.Context, f func(state.Tx) error) error
	// Lost returns the reason why the whole batch cannot be committed, or nil.
	Lost() error
	// End commits the batch and releases the lock. It rolls back a batch that is lost or
	// has no members. An error means that nothing was committed.
	End(members int) error
}

// ErrAgain in the chain of a batch's error means that its members should run again.
var ErrAgain = errors.New("the transaction conflicted with another one")

const (
	// maxMembers bounds how long other processes wait for this one.
	maxMembers = 64
	// maxRuns bounds how often a member runs before it gets the batch's error.
	maxRuns = 10
)

// Group queues members and commits them in batches.
type Group struct {
	begin func() (Batch, error)
	try   func() (Batch, error)
	wake  chan struct{} // holds one token when there may be work
	gone  chan struct{} // closed when the committing goroutine has ended

	mu     sync.Mutex
	line   []*member
	busy   bool // a goroutine leads a batch
	closed bool
}

type member struct {
	turn chan Batch // receives the batch at this member's turn; nil asks it to lead one
	ran  chan bool  // reports whether the member's part is in the batch
	done chan error // receives the outcome of the batch
	runs int
}

// New starts a group. begin waits until this process may write. try returns no batch
// where begin would wait; try may be nil.
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
	if g.claimIdle() {
		if led, err := g.lead(ctx, f); led {
			return err
		}
	}
	m := &member{turn: make(chan Batch, 1), ran: make(chan bool, 1), done: make(chan error, 1)}
	for g.join(m) {
		select {
		case batch := <-m.turn:
			if batch == nil {
				if led, err := g.lead(ctx, f); led {
					return err
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
		case err := <-m.done: // the batch did not begin
			return err
		case <-ctx.Done():
			if g.leave(m) {
				return ctx.Err()
			}
			// The member was already taken from the line: its turn or its outcome follows.
			select {
			case batch := <-m.turn:
				if batch == nil {
					g.handOver()
				} else {
					m.ran <- false
				}
				return ctx.Err()
			case err := <-m.done:
				return err
			}
		}
	}
	return state.ErrClosed
}

// lead runs a batch of f and the members that are waiting by then, if a batch can begin
// without waiting. The caller has claimed the leadership; lead hands it over.
func (g *Group) lead(ctx context.Context, f func(state.Tx) error) (led bool, err error) {
	batch, err := g.try()
	if batch == nil {
		g.release() // the committing goroutine waits instead
		return err != nil, err
	}
	defer g.handOver()
	own := 0
	var members []*member
	defer func() { // even if f does not return
		ended := batch.End(own + len(members))
		if own > 0 {
			err = ended
		}
		for _, m := range members {
			m.done <- ended
		}
	}()
	if err = batch.Do(ctx, f); err == nil {
		own = 1
	}
	if batch.Lost() == nil {
		members = g.turns(batch, maxMembers-1)
	}
	return true, err
}

// claimIdle makes the caller the leader if the group is idle and leading needs no wait.
func (g *Group) claimIdle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.try == nil || g.busy || g.closed || len(g.line) > 0 {
		return false
	}
	g.busy = true
	return true
}

// claimLine makes the committing goroutine the leader if members wait without one.
func (g *Group) claimLine() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy || len(g.line) == 0 {
		return false
	}
	g.busy = true
	return true
}

// handOver makes the first member in line the leader.
func (g *Group) handOver() {
	if m := g.next(); m != nil {
		m.turn <- nil
	} else {
		g.release()
	}
}

// release leaves the group without a leader.
func (g *Group) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy = false
	if len(g.line) > 0 || g.closed {
		g.poke()
	}
}

// run reports to the leader however f ends.
func (m *member) run(ctx context.Context, batch Batch, f func(state.Tx) error) (err error) {
	ok := false
	defer func() { m.ran <- ok }()
	m.runs++
	err = batch.Do(ctx, f)
	ok = err == nil
	return err
}

func (g *Group) join(m *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.line = append(g.line, m)
	if !g.busy { // a leader would find the member itself
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
	i := slices.Index(g.line, m)
	if i >= 0 {
		g.line = slices.Delete(g.line, i, i+1)
	}
	return i >= 0
}

// next takes the first member from the line. It returns nil if the line is empty.
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

// over reports whether the group is closed and its last batch has ended.
func (g *Group) over() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed && !g.busy && len(g.line) == 0
}

func (g *Group) commit() {
	defer close(g.gone)
	for range g.wake {
		for g.claimLine() {
			g.batch()
			g.release()
		}
		if g.over() {
			return
		}
	}
}

// batch runs members until the line is empty or the batch is full.
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

// turns runs waiting members and returns those whose part is in the batch.
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

// Fail returns err to every member that waits now, and to no later one. It may be called
// while begin waits.
func (g *Group) Fail(err error) {
	g.mu.Lock()
	line := g.line
	g.line = nil
	g.mu.Unlock()
	for _, m := range line {
		m.done <- err
	}
}

// Close refuses new members and fails those that wait. The returned channel is closed
// when the last batch has ended.
func (g *Group) Close() <-chan struct{} {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.Fail(state.ErrClosed)
	g.poke()
	return g.gone
}
