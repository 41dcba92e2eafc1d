package console

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// beat is how often a silent stream sends a comment.
	beat = 20 * time.Second
	// calm is the minimum time between two events.
	calm = 300 * time.Millisecond
	// maxWatching bounds how many pages are live at the same time.
	maxWatching = 200
)

// live is an event stream that reports that something may have changed.
func (c *Console) live(w http.ResponseWriter, r *http.Request, s *session) {
	if c.activity.watching.Add(1) > maxWatching {
		c.activity.watching.Add(-1)
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer c.activity.watching.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	// The read deadline of requests would end the stream.
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
	last, mark := time.Now(), c.o.Backend.Mark(ctx)
	for {
		wait, stop := context.WithTimeout(ctx, beat)
		err := c.o.Backend.Changed(wait)
		stop()
		// A stream ends with its session. If the check fails, the stream stays open: it only
		// reports that something has changed.
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
		if rest := calm - time.Since(last); rest > 0 {
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
