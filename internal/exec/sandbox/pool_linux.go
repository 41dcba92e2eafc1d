//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Pool holds prepared sandboxes, so that a run need not wait for one.
//
// A sandbox has a shape: its mounts, sizes and limits, and whether it has network. It is
// prepared by the same code as without a pool. Program, environment, input and network
// policy are set when a run takes it. Each sandbox is used once. After a run, another
// sandbox of its shape is made. A full pool replaces its oldest sandbox.
//
// With interpreters, python3 and node are prestarted. They wait in one of ambit's
// scripts, so no file of the program is read before its run.
type Pool struct {
	size         int
	interpreters bool

	mu     sync.Mutex
	spare  []*running // oldest first
	making int
	made   sync.Cond // signalled when making decreases
	closed bool
	work   sync.WaitGroup
}

// NewPool makes a pool of at most size sandboxes. The caller closes it.
func NewPool(size int, interpreters bool) *Pool {
	p := &Pool{size: size, interpreters: interpreters}
	p.made.L = &p.mu
	return p
}

var (
	errClosed = errors.New("the pool is closed")
	errEnded  = errors.New("the sandbox ended before it was used")
)

// Prepare makes a sandbox for a run like this one, if the pool is not full, and returns
// when one is ready. Runs at the tier strong or with a writable folder are not pooled.
func (p *Pool) Prepare(ctx context.Context, s Spec) error {
	s.defaults()
	if !p.accepts(&s) {
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
		return unavailable(s.Tier, []Missing{missing(f)})
	}
	if err != nil || r == nil {
		return err
	}
	select {
	case <-r.idle:
		return nil
	case <-r.exited:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// last waits until no sandbox is being made, and returns the newest one of a shape.
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

// Waiting returns the number of prepared sandboxes.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.spare)
}

// Close ends all prepared sandboxes and makes no more. Current runs continue.
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

// accepts reports whether sandboxes for such runs are pooled. Writable folders are not,
// because their owner is changed when the sandbox is made.
func (p *Pool) accepts(s *Spec) bool {
	return p != nil && s.Tier == Standard && !slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Write })
}

// shape returns the shape of a sandbox for this run.
func (p *Pool) shape(s *Spec) shape {
	sh := shapeOf(s)
	if p.interpreters {
		sh.prestart(s)
	}
	return sh
}

// run executes one run, in a prepared sandbox if there is one.
func (p *Pool) run(ctx context.Context, m *machine, s *Spec) (Outcome, error) {
	begun := time.Now()
	sh := p.shape(s)
	defer p.refill(m, sh)
	if r := p.take(sh.key()); r != nil {
		o := order(s, "")
		if sh.interpreter != "" {
			o = nil // already sent
		}
		out, _, err := r.execute(ctx, s, o, begun)
		// A sandbox that died was never ready, so the program has not run.
		if _, died := errors.AsType[*setupError](err); !died {
			return out, err
		}
	}
	out, _, err := m.run(ctx, s, "")
	return out, err
}

// take removes a sandbox from the pool: an idle one, or else one that is starting.
func (p *Pool) take(key string) *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found *running
	p.spare = slices.DeleteFunc(p.spare, func(r *running) bool {
		if r.shape.key() != key {
			return false
		}
		if r.hasExited() || !r.unchanged() {
			p.work.Go(func() { r.end() })
			return true
		}
		if found == nil || !found.isIdle() && r.isIdle() {
			found = r
		}
		return false
	})
	p.spare = slices.DeleteFunc(p.spare, func(r *running) bool { return r == found })
	return found
}

// refill makes a sandbox of the same shape.
func (p *Pool) refill(m *machine, s shape) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Go(func() { p.make(m, s) }) // the next run reports the error
	}
}

// make adds a sandbox, unless the pool is full of the same shape.
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
	p.work.Add(1) // Close waits for this
	defer p.work.Done()
	p.mu.Unlock()
	if out != nil {
		out.end()
	}
	r, err := m.prepare(s)
	if err == nil && s.interpreter != "" {
		err = r.command(s.prestartOrder())
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
