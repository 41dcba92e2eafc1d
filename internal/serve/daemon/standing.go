package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// The daemon checks the key of a request when the request arrives. But a stream, or a call that waits for approval, can
// outlast its key. The daemon therefore checks these keys again. When a key is revoked or expires, its streams are
// closed and its waiting calls are refused.

// recheckEvery is the default interval between two checks of the same key.
const recheckEvery = time.Second

// canExpire reports whether the principal's key or token can become invalid while the daemon is running.
func canExpire(p *identity.Principal) bool { return p.Kind == identity.ByKey || !p.Until.IsZero() }

// standing returns nil if the principal's key or token is still valid. It returns a [*call.Refusal] if the key or token
// has become invalid. It returns a different error if the check fails.
func (d *Daemon) standing(ctx context.Context, p *identity.Principal) error {
	key := ""
	if p.Kind == identity.ByKey { // the daemon's temporary key is not in the store
		key = p.KeyID
	}
	over, err := identity.CredentialExpired(ctx, d.options.APIKeys, key, p.Until)
	if over == nil {
		return err
	}
	refusal := call.Refuse("approve", call.ApprovalDenied,
		"%v while the call waited for approval; the call was not made", over)
	refusal.Hint = "call again with a valid key"
	return refusal
}

// streams is the set of API keys that have open streams. It checks periodically whether each key is still valid, once
// for all streams of the key.
type streams struct {
	mu   sync.Mutex
	keys map[string]*watchedKey
}

type watchedKey struct {
	ctx   context.Context // canceled when the key becomes invalid or its last stream is closed
	end   context.CancelFunc
	users int
}

// hold returns a context for a stream of the principal. The context is canceled when the parent context is canceled or
// when the principal's key becomes invalid. The caller must call the returned function when the stream is closed.
func (d *Daemon) hold(ctx context.Context, p *identity.Principal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if !canExpire(p) {
		return ctx, cancel
	}
	name := p.KeyID
	if p.Kind != identity.ByKey {
		name = p.Until.String()
	}
	s := &d.streams
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[name]
	if k == nil {
		k = &watchedKey{}
		k.ctx, k.end = context.WithCancel(context.Background())
		s.keys[name] = k
		go d.watchKey(k, p)
	}
	k.users++
	stop := context.AfterFunc(k.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		if k.users--; k.users == 0 {
			k.end()
			delete(s.keys, name)
		}
	}
}

// watchKey checks a key periodically and closes its streams when the key becomes invalid. If the key cannot be checked,
// for example because the store is down, the streams stay open.
func (d *Daemon) watchKey(k *watchedKey, p *identity.Principal) {
	tick := time.NewTicker(d.options.recheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-k.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(k.ctx, headerTime)
		err := d.standing(ctx, p)
		cancel()
		if _, over := errors.AsType[*call.Refusal](err); over {
			k.end()
		}
	}
}
