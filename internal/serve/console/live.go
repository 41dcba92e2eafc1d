package console

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// beat is how often a silent stream shows that it is alive.
	beat = 20 * time.Second
	// calm is the least time between two events.
	calm = 300 * time.Millisecond
	// maxWatching bounds how many pages are kept live at the same time.
	maxWatching = 200
)

// live tells a page that something may have changed, as an event stream.
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
	// The time for a request to arrive is over long before the stream is.
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
	last, mark := time.Now(), c.o.House.Mark(ctx)
	for {
		wait, stop := context.WithTimeout(ctx, beat)
		err := c.o.House.Changed(wait)
		stop()
		// A session that ends takes its stream along. While that cannot be told the
		// stream goes on: it says no more than that something has changed.
		over, _ := c.over(ctx, s)
		switch {
		case over, ctx.Err() != nil:
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
		now := c.o.House.Mark(ctx)
		if now == mark {
			continue
		}
		mark = now
		if !send("event: change\ndata: 1\n\n") {
			return
		}
	}
}
