package daemon

import (
	"context"
	"sync"
	"time"
)

const (
	storeDown = "the store is unavailable, so every call is refused"
	// storeTimeout is the maximum duration of a check of the store. The result of a check is used again until
	// it is storeAge old, because a client without a key can request /readyz as often as it wants.
	storeTimeout = 2 * time.Second
	storeAge     = time.Second
)

// storeHealth is the result of the last check of the store.
type storeHealth struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// storeProblem returns an error if the daemon cannot use the store, because the store is unavailable or because its
// root key was rotated.
func (d *Daemon) storeProblem() error {
	if err := d.options.Journal.HandedOver(); err != nil {
		return err
	}
	if d.options.CheckStore == nil {
		return nil
	}
	s := &d.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) >= storeAge {
		// Do not use the context of the request, because other requests use the result too.
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		s.err = d.options.CheckStore(ctx)
		s.at = time.Now()
	}
	return s.err
}

// within returns the card for an agent whose store has the given problem. If there is a problem, an agent cannot be
// ready. If the problem is nil, the card stays the same.
func (c Card) within(storeProblem error) Card {
	if storeProblem != nil && c.State == Ready {
		c.State, c.Error = Failed, storeDown
	}
	return c
}
