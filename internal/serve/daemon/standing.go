package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// A key is checked when a request comes. Some requests go on for long: a stream,
// and a call that waits for a person. Both are looked at again, so that a key
// that was revoked or has expired ends what it has open.

// lookAgain is how often the keys of open streams are.
const lookAgain = time.Second

// mayEnd reports whether what a principal showed can end before the daemon does.
func mayEnd(p *identity.Principal) bool { return p.Kind == identity.ByKey || !p.Until.IsZero() }

// standing says why a principal that was let in would not be now: with a refusal,
// or with the error for which it cannot be told.
func (d *Daemon) standing(ctx context.Context, p *identity.Principal) error {
	key := ""
	if p.Kind == identity.ByKey { // the daemon's own is in no store
		key = p.KeyID
	}
	over, err := identity.Over(ctx, d.options.APIKeys, key, p.Until)
	if over == nil {
		return err
	}
	refusal := call.Refuse("approve", call.ApprovalDenied, "%v while the call waited for a person, so it is not made", over)
	refusal.Hint = "call again with a key that is good"
	return refusal
}

// streams are the open streams of principals whose keys may end.
type streams struct {
	daemon *Daemon

	mu   sync.Mutex
	open map[*identity.Principal]context.CancelFunc
	last chan struct{} // closed when the last of them has ended
}

// hold is a context that also ends when the principal's key does.
func (s *streams) hold(ctx context.Context, p *identity.Principal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if !mayEnd(p) {
		return ctx, cancel
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) == 0 {
		s.open, s.last = map[*identity.Principal]context.CancelFunc{}, make(chan struct{})
		go s.watch(s.last)
	}
	s.open[p] = cancel // each request has a principal of its own
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[p] == nil {
			return // it was released before
		}
		if delete(s.open, p); len(s.open) == 0 {
			close(s.last)
		}
	}
}

// watch looks at the keys for as long as a stream is open.
func (s *streams) watch(last <-chan struct{}) {
	tick := time.NewTicker(s.daemon.options.lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-last:
			return
		}
		s.mu.Lock()
		byKey := map[string][]*identity.Principal{}
		for p := range s.open {
			name := p.KeyID
			if p.Kind != identity.ByKey {
				name = p.Until.String()
			}
			byKey[name] = append(byKey[name], p)
		}
		s.mu.Unlock()
		for _, of := range byKey {
			s.look(of)
		}
	}
}

// look ends the streams of one key, if it is not good any more. While that cannot
// be told they go on: what comes by them was asked for when it was good.
func (s *streams) look(of []*identity.Principal) {
	ctx, cancel := context.WithTimeout(context.Background(), headerTime)
	defer cancel()
	if _, over := errors.AsType[*call.Refusal](s.daemon.standing(ctx, of[0])); !over {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range of {
		if end := s.open[p]; end != nil {
			end()
		}
	}
}
