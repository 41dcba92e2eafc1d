// Package engine contains the code that the two store engines share: group commit, the rules of a transaction, and
// waiting for commits.
//
// A commit waits for the disk, so one commit for many writers saves a lot of time. Writers therefore commit in
// batches. The channel Group.baton lets one goroutine at a time lead a batch. The writer that sends to the channel
// leads a batch. The writers that are waiting at that time join the batch as members. Writers that arrive later wait
// for the next batch. The leader runs the batch in its own goroutine, which avoids several goroutine switches per
// commit.
//
// Sometimes a batch cannot begin at once, for example because another process holds a lock. A background goroutine
// then leads the batch and waits. The writers can still return when their contexts end.
//
// Each member's function runs in the member's own goroutine. A panic or Goexit affects only that member, and the
// batch continues. A member can leave while it waits for its turn. After its function has run, a member must wait for
// the commit, because the outcome is unknown until then.
package engine

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/ambit-run/ambit/internal/store/state"
)

// A Batch is a transaction that runs the functions of several members one after the other.
type Batch interface {
	// Do runs f for one member. If f fails or panics, only the changes of that member are undone. A panic is not
	// recovered.
	Do(ctx context.Context, f func(state.Tx) error) error
	// Lost returns the reason why the whole batch cannot be committed, or nil.
	Lost() error
	// End commits the batch and releases the lock. The argument is the number of members whose functions succeeded. End
	// rolls back the batch if Lost returns an error or this number is 0. If End fails, the batch may still have been
	// committed, for example because the connection was lost during the commit.
	End(members int) error
}

// ErrAgain means that a batch conflicted with another transaction. The methods of the batch return errors that wrap
// ErrAgain. Write then runs its function again.
var ErrAgain = errors.New("the transaction conflicted with another transaction")

const (
	// maxMembers is the maximum number of members in a batch. It limits how long other processes wait.
	maxMembers = 64
	// maxRuns is the maximum number of times that Write runs a function. If the last run conflicts too, Write returns
	// the error of the batch.
	maxRuns = 10
)

// Group commits the writes of concurrent callers in batches.
type Group struct {
	begin func() (Batch, error)
	try   func() (Batch, error)
	baton chan struct{} // a channel that contains a value while a goroutine leads a batch
	line  chan *member  // a channel that sends waiting members to the leader
	gone  chan struct{} // a channel that is closed when the last batch has finished

	mu      sync.Mutex
	waiting context.Context // a context whose cancellation rejects all waiting members
	refuse  context.CancelCauseFunc
	closed  bool
}

type member struct {
	turn chan Batch    // a channel that receives the batch when it is this member's turn
	left chan struct{} // a channel that is closed if the member no longer waits for its turn
	ran  chan bool     // a channel that receives true if the member's changes are in the batch
	done chan error    // a channel that receives the outcome of the batch
}

// New returns a group. To start a batch, the group first calls try(), which does not wait for the lock. If the lock is
// not free, try() returns a nil Batch and a nil error. The group then calls begin(), which can wait. If the argument
// try is nil, the group calls only begin().
func New(begin, try func() (Batch, error)) *Group {
	if try == nil {
		try = func() (Batch, error) { return nil, nil }
	}
	g := &Group{
		begin: begin, try: try,
		baton: make(chan struct{}, 1), line: make(chan *member), gone: make(chan struct{}),
	}
	g.waiting, g.refuse = context.WithCancelCause(context.Background())
	return g
}

// Write runs f as a member of a batch and returns after the batch was committed. If the batch conflicts with another
// transaction, Write runs f again, at most maxRuns times in total.
func (g *Group) Write(ctx context.Context, f func(state.Tx) error) (err error) {
	for range maxRuns {
		if err = g.write(ctx, f); !errors.Is(err, ErrAgain) {
			break
		}
	}
	return err
}

func (g *Group) write(ctx context.Context, f func(state.Tx) error) error {
	g.mu.Lock()
	waiting := g.waiting
	g.mu.Unlock()
	if err := cmp.Or(ctx.Err(), context.Cause(waiting)); err != nil {
		return err
	}
	m := &member{make(chan Batch), make(chan struct{}), make(chan bool, 1), make(chan error, 1)}
	select {
	case g.baton <- struct{}{}:
		batch, err := g.try()
		if batch != nil {
			return g.lead(ctx, batch, f)
		}
		if err != nil {
			g.release()
			return err
		}
		go g.await(m)
	case g.line <- m:
	case <-waiting.Done():
		return context.Cause(waiting)
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case batch := <-m.turn:
		if err := m.run(ctx, batch, f); err != nil {
			return err
		}
		return <-m.done
	case <-waiting.Done():
		close(m.left)
		return context.Cause(waiting)
	case <-ctx.Done():
		close(m.left)
		return ctx.Err()
	}
}

// lead runs f and the functions of waiting members in the batch. Then lead calls End and releases the baton.
func (g *Group) lead(ctx context.Context, batch Batch, f func(state.Tx) error) (err error) {
	defer g.release()
	own := 0
	var members []*member
	defer func() { // this function runs even if f panics
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
		members = g.runMembers(batch, nil, maxMembers-1)
	}
	return err
}

// await calls begin(), which can take a while. Then await runs the function of the given member and the functions of
// other waiting members. Finally, await calls End and releases the baton.
func (g *Group) await(first *member) {
	defer g.release()
	batch, err := g.begin()
	if err != nil {
		g.Fail(err)
		return
	}
	members := g.runMembers(batch, first, maxMembers)
	err = batch.End(len(members))
	for _, m := range members {
		m.done <- err
	}
}

func (g *Group) release() { <-g.baton }

// run runs f for this member. It reports the outcome to the leader even if f panics.
func (m *member) run(ctx context.Context, batch Batch, f func(state.Tx) error) (err error) {
	ok := false
	defer func() { m.ran <- ok }()
	err = batch.Do(ctx, f)
	ok = err == nil
	return err
}

// runMembers runs the functions of waiting members. The argument limit is the maximum number of members. If m is not
// nil, m is the first member. All other members come from g.line. The result contains the members whose changes are in
// the batch.
func (g *Group) runMembers(batch Batch, m *member, limit int) (members []*member) {
	for range limit {
		if m == nil {
			select {
			case m = <-g.line:
			default:
				return members
			}
		}
		select {
		case m.turn <- batch:
			if <-m.ran {
				members = append(members, m)
			}
		case <-m.left:
		}
		if batch.Lost() != nil {
			break
		}
		m = nil
	}
	return members
}

// Fail makes Write return err to every member that is waiting now. Later members are not affected. Fail can be called
// while a call of begin() waits.
func (g *Group) Fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse(err)
	if !g.closed {
		g.waiting, g.refuse = context.WithCancelCause(context.Background())
	}
}

// Close makes Write return ErrClosed to the waiting members and to all later callers. The returned channel is closed
// when the last batch has finished.
func (g *Group) Close() <-chan struct{} {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	g.mu.Unlock()
	if first {
		g.Fail(state.ErrClosed)
		go func() {
			g.baton <- struct{}{} // the baton is never released, so no further batch begins
			close(g.gone)
		}()
	}
	return g.gone
}
