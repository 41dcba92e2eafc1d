//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Pool keeps sandboxes that stand and wait, so that a run need not wait for one.
//
// A sandbox is made for a shape: the same mounts, sizes and bounds, and whether
// there is a way out. Everything about it is in place before it is taken, by the
// same code as without a pool; program, environment, input and the policy of the
// way out come when it is taken. It is taken once. When a run has ended, another
// sandbox of its shape is made for the next. The oldest make room where the pool
// is full.
//
// With interpreters, python3 and node are even started ahead. They wait in a
// script of ambit's own, so that nothing of a program is looked at before its
// run begins.
type Pool struct {
	size         int
	interpreters bool

	mu     sync.Mutex
	spare  []*running // the oldest first
	making int
	made   sync.Cond // making went down
	closed bool
	work   sync.WaitGroup
}

// NewPool makes a pool of at most size sandboxes that wait. Close must follow.
func NewPool(size int, interpreters bool) *Pool {
	p := &Pool{size: size, interpreters: interpreters}
	p.made.L = &p.mu
	return p
}

var (
	errClosed = errors.New("the pool is closed")
	errEnded  = errors.New("the sandbox ended before it could be taken")
)

// Prepare makes a sandbox for a run like this one, if there is room, and returns
// when one waits. None are kept of the tier strong, or with a writable folder.
func (p *Pool) Prepare(ctx context.Context, s Spec) error {
	s.defaults()
	if !p.keeps(&s) {
		return nil
	}
	m, err := ready(ctx, Standard, s.Proofs)
	if err != nil {
		return err
	}
	sh := p.shape(&s)
	r, err := p.make(m, sh)
	if r == nil && err == nil {
		r = p.last(sh.key())
	}
	if f, ok := errors.AsType[*setupError](err); ok {
		return lacks(s.Tier, []Missing{missing(f)})
	}
	if err != nil || r == nil {
		return err
	}
	select {
	case <-r.waits:
		return nil
	case <-r.exited:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// last is the youngest sandbox of a shape, once none is in the making.
func (p *Pool) last(key string) *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.making > 0 {
		p.made.Wait()
	}
	for _, r := range slices.Backward(p.spare) {
		if r.shape.key() == key {
			return r
		}
	}
	return nil
}

// Waiting is how many sandboxes there are to be taken.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.spare)
}

// Close ends every sandbox that waits, and makes no more. Runs go on.
func (p *Pool) Close() {
	p.mu.Lock()
	spare := p.spare
	p.spare, p.closed = nil, true
	p.mu.Unlock()
	for _, r := range spare {
		r.end()
	}
	p.work.Wait()
}

// keeps reports whether sandboxes for such runs are kept. A folder that is given
// away is given when the run begins.
func (p *Pool) keeps(s *Spec) bool {
	return p != nil && s.Tier == Standard && !slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Write })
}

// shape is what a sandbox for this run is made of.
func (p *Pool) shape(s *Spec) shape {
	sh := shapeOf(s)
	if p.interpreters {
		sh.hold(s)
	}
	return sh
}

// run carries out one run, in a sandbox that waits if there is one.
func (p *Pool) run(ctx context.Context, m *machine, s *Spec) (Outcome, error) {
	begun := time.Now()
	sh := p.shape(s)
	defer p.refill(m, sh)
	if r := p.take(sh.key()); r != nil {
		o := order(s, "")
		if sh.interpreter != "" {
			o = nil // it has been given
		}
		out, _, err := r.carryOut(ctx, s, o, begun)
		// One that had died was never ready, so nothing of the program ran.
		if _, died := errors.AsType[*setupError](err); !died {
			return out, err
		}
	}
	out, _, err := m.run(ctx, s, "")
	return out, err
}

// take takes a sandbox that stands, or else one that is about to.
func (p *Pool) take(key string) *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found *running
	p.spare = slices.DeleteFunc(p.spare, func(r *running) bool {
		if r.shape.key() != key {
			return false
		}
		if r.dead() || !r.fresh() {
			p.work.Go(func() { r.end() })
			return true
		}
		if found == nil || !found.waiting() && r.waiting() {
			found = r
		}
		return false
	})
	p.spare = slices.DeleteFunc(p.spare, func(r *running) bool { return r == found })
	return found
}

// refill makes a sandbox like the one that was used.
func (p *Pool) refill(m *machine, s shape) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Go(func() { p.make(m, s) }) // the next run tells what is wrong
	}
}

// make makes one more. Where the pool is full of the same shape, it makes none.
func (p *Pool) make(m *machine, s shape) (*running, error) {
	key := s.key()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	var out *running
	if len(p.spare)+p.making >= p.size {
		i := slices.IndexFunc(p.spare, func(r *running) bool { return r.shape.key() != key })
		if i < 0 {
			p.mu.Unlock()
			return nil, nil
		}
		out = p.spare[i]
		p.spare = slices.Delete(p.spare, i, i+1)
	}
	p.making++
	p.work.Add(1) // Close waits for it, whoever asked
	defer p.work.Done()
	p.mu.Unlock()
	if out != nil {
		out.end()
	}
	r, err := m.prepare(s)
	if err == nil && s.interpreter != "" {
		err = r.command(s.preorder())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.making--
	p.made.Broadcast()
	switch {
	case r == nil:
		return nil, err
	case err == nil && !p.closed:
		p.spare = append(p.spare, r)
		return r, nil
	case err == nil:
		err = errClosed
	}
	p.work.Go(func() { r.end() })
	return nil, err
}
