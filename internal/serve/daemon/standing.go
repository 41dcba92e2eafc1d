package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Keys are checked at each request. Streams and calls that wait for a person last longer, so their
// keys are checked again: a revoked or expired key ends what it opened.

// lookAgain is how often the keys of open streams are checked.
const lookAgain = time.Second

// mayEnd reports whether a principal's key or token can end before the daemon does.
func mayEnd(p *identity.Principal) bool { return p.Kind == identity.ByKey || !p.Until.IsZero() }

// standing returns a refusal if a principal would be rejected now, and another error if that cannot
// be checked.
func (d *Daemon) standing(ctx context.Context, p *identity.Principal) error {
	key := ""
	if p.Kind == identity.ByKey { // the daemon's own key is in no store
		key = p.KeyID
	}
	over, err := identity.Over(ctx, d.options.APIKeys, key, p.Until)
	if over == nil {
		return err
	}
	refusal := call.Refuse("approve", call.ApprovalDenied, "%v while the call waited for a person; the call was not made", over)
	refusal.Hint = "call again with a valid key"
	return refusal
}

// streams are the open streams of principals whose keys may end.
type streams struct {
	daemon *Daemon

	mu   sync.Mutex
	open map[*identity.Principal]context.CancelFunc
	last chan struct{} // closed when the last stream has ended
}

// hold returns a context that also ends with the principal's key.
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
	s.open[p] = cancel // each request has its own principal
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[p] == nil {
			return // already released
		}
		if delete(s.open, p); len(s.open) == 0 {
			close(s.last)
		}
	}
}

// watch checks the keys while a stream is open.
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

// look ends the streams of a key that is no longer valid. If the check fails, they stay open: they
// were requested with a valid key.
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
