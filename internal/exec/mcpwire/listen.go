package mcpwire

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// listenWait is how long a connection waits for its stream of notifications
// before it goes on without knowing whether it has one.
const listenWait = time.Second

// listener keeps the notifications coming that belong to no call: by a GET
// stream from a legacy server over HTTP, by a subscription from a modern one.
// A legacy server on stdio needs no asking.
type listener struct {
	mu     sync.Mutex
	id     int64              // of the subscription's request
	asked  bool               // and it is not acknowledged yet
	cancel context.CancelFunc // ends the stream of a session that was lost
	opened func()
}

func (l *listener) is(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id != 0 && l.id == id
}

// acknowledged takes the news that a subscription is open: once for each that was
// asked for. A server that does not say which one may mean somebody else's.
func (l *listener) acknowledged(id int64, said bool) {
	l.mu.Lock()
	ours := l.asked && (!said || l.id == id)
	if ours {
		l.asked = false
	}
	opened := l.opened
	l.mu.Unlock()
	if ours {
		opened()
	}
}

// listen begins to listen, if somebody wants to hear and the server has
// something to say. It waits a little until it is sure to miss nothing.
func (c *Conn) listen(ctx context.Context, s *Server) {
	var run func(ctx context.Context, opened func())
	switch filter := subscription(s.Capabilities()); {
	case c.opts.OnNotification == nil && (s.Modern || c.opts.OnRequest == nil):
		return
	case s.Modern && filter == "", !s.Modern && c.http == nil:
		return
	case s.Modern:
		run = func(ctx context.Context, _ func()) { c.subscribe(ctx, filter) }
	default:
		run = func(ctx context.Context, opened func()) { c.http.listen(ctx, s.Version, opened) }
	}

	lctx, cancel := context.WithCancel(c.ctx)
	ready, over := make(chan struct{}), make(chan struct{})
	var once sync.Once
	opened := func() {
		again := true
		once.Do(func() { again = false; close(ready) })
		if again && c.opts.OnGap != nil {
			// Without a session nothing tells a server that was started again.
			c.opts.OnGap(!s.Modern && c.http.session.Load() == nil)
		}
	}
	c.listener.mu.Lock()
	if c.listener.cancel != nil {
		c.listener.cancel()
	}
	c.listener.cancel, c.listener.opened = cancel, opened
	c.listener.mu.Unlock()
	go func() {
		defer close(over)
		defer cancel()
		run(lctx, opened)
	}()

	timer := time.NewTimer(listenWait)
	defer timer.Stop()
	select {
	case <-ready:
	case <-over:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// subscribe keeps a subscription open until the server refuses it.
func (c *Conn) subscribe(ctx context.Context, filter string) {
	for tries := 0; ctx.Err() == nil; tries++ {
		if tries > 0 && pause(ctx, 0, tries-1) != nil {
			return
		}
		id := c.ids.Add(1)
		c.listener.mu.Lock()
		c.listener.id, c.listener.asked = id, true
		c.listener.mu.Unlock()

		b := append(appendHead(nil, id, methodListen), `{"notifications":`...)
		b = append(append(b, filter...), `,"_meta":`...)
		b = append(c.appendMeta(b, nil, c.ownMeta, nil), '}', '}')
		began := time.Now()
		_, err := c.exchange(ctx, outgoing{body: b, id: id, method: methodListen, version: modernVersion}, nil, nil)
		switch {
		case refused(err) || errors.Is(err, ErrClosed):
			return
		case time.Since(began) > maxPause:
			tries = 0
		case tries >= maxResumes && !errors.Is(err, ErrNotSent):
			return // it ends as often as it is opened; one that is away may come back
		}
	}
}

// subscription is the filter for every list that the server may change.
func subscription(capabilities []byte) string {
	filter := ""
	for _, list := range []string{"tools", "prompts", "resources"} {
		if string(rawjson.Lookup(capabilities, list, "listChanged")) == "true" {
			filter += `,"` + list + `ListChanged":true`
		}
	}
	if filter == "" {
		return ""
	}
	return "{" + filter[1:] + "}"
}
