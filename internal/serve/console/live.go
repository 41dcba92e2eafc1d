package console

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// keepAlive is the time after which an idle stream sends a comment to keep the connection open.
	keepAlive = 20 * time.Second
	// minInterval is the minimum time between two events.
	minInterval = 300 * time.Millisecond
	// maxWatching is the maximum number of open event streams.
	maxWatching = 200
)

// live serves an event stream. Each event means that the pages may have changed.
func (c *Console) live(w http.ResponseWriter, r *http.Request, s *session) {
	if c.activity.watching.Add(1) > maxWatching {
		c.activity.watching.Add(-1)
		http.Error(w, "too many console pages are open", http.StatusServiceUnavailable)
		return
	}
	defer c.activity.watching.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	// Remove the request's read deadline, because it would close the stream.
	_ = control.SetReadDeadline(time.Time{})
	send := func(text string) bool {
		if _, err := fmt.Fprint(w, text); err != nil {
			return false
		}
		return control.Flush() == nil
	}
	if !send("retry: 2000\n\n") {
		return
	}
	ctx, cancel := context.WithDeadline(r.Context(), time.Unix(s.Until, 0))
	defer cancel()
	defer context.AfterFunc(c.o.Context, cancel)() // an open stream would delay the daemon's shutdown
	last, mark := time.Now(), c.o.Backend.Mark(ctx)
	for {
		wait, stop := context.WithTimeout(ctx, keepAlive)
		err := c.o.Backend.Changed(wait)
		stop()
		// The stream is closed when its session ends. It stays open if the session cannot be checked, because an event
		// reveals only that something has changed.
		ended, _ := c.ended(ctx, s)
		switch {
		case ended, ctx.Err() != nil:
			return
		case err != nil:
			if !send(":\n\n") {
				return
			}
			continue
		}
		if rest := minInterval - time.Since(last); rest > 0 {
			select {
			case <-time.After(rest):
			case <-ctx.Done():
				return
			}
		}
		last = time.Now()
		now := c.o.Backend.Mark(ctx)
		if now == mark {
			continue
		}
		mark = now
		if !send("event: change\ndata: 1\n\n") {
			return
		}
	}
}
