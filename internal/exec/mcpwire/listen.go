package mcpwire

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// listenWait bounds the wait for the stream of notifications at the start of a connection.
const listenWait = time.Second

// listener keeps the stream of notifications open that belong to no call: a GET stream of a legacy server
// over HTTP, or a subscription of a modern server. A legacy server on stdio sends them without a request.
type listener struct {
	mu     sync.Mutex
	id     int64              // of the subscription's request
	asked  bool               // sent and not acknowledged yet
	cancel context.CancelFunc // ends the stream of a lost session
	opened func()
}

func (l *listener) is(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id != 0 && l.id == id
}

// acknowledged handles the acknowledgement of a subscription, once for each request. Without an id it may
// belong to a subscription of the caller.
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

// listen opens the stream of notifications if a callback needs it and the server offers one. It waits a
// moment until no notification can be missed.
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
			// Without a session, a restart of the server goes unnoticed.
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
			return // it keeps ending; a server that is unreachable may come back
		}
	}
}

// subscription returns the filter for every list that the server may change.
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
