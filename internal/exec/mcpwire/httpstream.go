package mcpwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	firstPause = 500 * time.Millisecond // before a broken stream is opened again
	maxPause   = 30 * time.Second
	maxResumes = 5 // of a call's stream without anything new on it
)

// readAnswer reads the stream of a request up to the answer and returns the rest
// of the stream. A legacy server may break the stream off; if its events had ids,
// the client resumes it.
func (t *httpTransport) readAnswer(ctx context.Context, body io.ReadCloser, m outgoing) (io.ReadCloser, error) {
	for idle, last := 0, ""; ; {
		answered, at, err := t.readEvents(body, m.id)
		if answered {
			return body, nil
		}
		body.Close()
		if !isBroken(err) {
			return nil, err
		}
		if at.lastID == last {
			idle++
		} else {
			idle, last = 0, at.lastID
		}
		if last == "" || idle >= maxResumes || m.version == modernVersion || ctx.Err() != nil {
			return nil, unanswered(err)
		}
		if err := pause(ctx, at.retry, idle); err != nil {
			return nil, err
		}
		resp, err := t.get(ctx, m.version, last)
		if err != nil {
			return nil, unanswered(err)
		}
		body = resp.Body
	}
}

// unanswered returns the error of a call that was sent and whose stream then
// ended. It does not wrap the reason: an [ErrNotSent] there concerns the attempt to
// resume, not the call.
func unanswered(reason error) error {
	if reason == io.EOF {
		return ErrNoAnswer
	}
	return fmt.Errorf("%w: %v", ErrNoAnswer, reason)
}

// streamEnd records how far a stream was read.
type streamEnd struct {
	lastID string
	retry  time.Duration
	events int
}

// readEvents delivers the messages of a stream until its call is answered or the
// stream ends.
func (t *httpTransport) readEvents(body io.Reader, stream int64) (answered bool, at streamEnd, err error) {
	events := newEventReader(body, t.conn.opts.MaxMessage)
	defer events.release()
	for {
		e, err := events.next()
		if err != nil {
			at.lastID, at.retry = events.lastID, events.retry
			return false, at, err
		}
		at.events++
		if e.name != "" && e.name != "message" {
			continue
		}
		answered, err := t.conn.deliver(e.data, e.owned, stream)
		if err != nil && stream == sideStream {
			t.conn.reportNoise(e.data)
			continue
		}
		if answered || err != nil {
			return answered, at, err
		}
	}
}

// isBroken reports whether a stream was cut off, rather than malformed.
func isBroken(err error) bool {
	_, large := errors.AsType[*TooLargeError](err)
	_, bad := errors.AsType[*MalformedError](err)
	return !large && !bad
}

// get opens the stream of a legacy server's own messages, or resumes a stream
// after an event.
func (t *httpTransport) get(ctx context.Context, version, after string) (*http.Response, error) {
	req, session, err := t.newRequest(ctx, http.MethodGet, outgoing{version: version})
	if err != nil {
		return nil, err
	}
	if after != "" {
		req.Header["Last-Event-Id"] = []string{after}
	}
	resp, err := t.trip(req, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, t.refusal(resp, session, outgoing{})
	}
	if mediaType(resp.Header) != "text/event-stream" {
		resp.Body.Close()
		return nil, errNoStream
	}
	return resp, nil
}

var errNoStream = errors.New("the server offers no stream")

// listen keeps a legacy server's stream of notifications open until the server
// refuses it. It calls opened each time the stream opens. If the session was lost,
// listen makes a new one, which starts another listener in its place.
func (t *httpTransport) listen(ctx context.Context, version string, opened func()) {
	after, retry, wasOpen := "", time.Duration(0), false
	for first := true; ctx.Err() == nil; first = false {
		if !first && pause(ctx, retry, int(t.reopened.Add(1))-1) != nil {
			return
		}
		resp, err := t.get(ctx, version, after)
		if lost, ok := err.(*sessionLost); ok && wasOpen {
			t.renew(ctx, lost.session)
			continue
		}
		if refused(err) {
			return
		}
		if err != nil {
			continue
		}
		opened()
		wasOpen = true
		_, at, _ := t.readEvents(resp.Body, sideStream)
		resp.Body.Close()
		after, retry = at.lastID, at.retry
		if at.events > 0 {
			t.reopened.Store(0)
		}
	}
}

// renew makes a new session for the listener. If that fails, the next attempt to
// open the stream finds the session lost again.
func (t *httpTransport) renew(ctx context.Context, lost string) {
	ctx, cancel := context.WithTimeout(ctx, maxPause)
	defer cancel()
	_ = t.conn.renew(ctx, lost)
}

// refused reports whether the server would refuse another attempt, too.
func refused(err error) bool {
	status, isStatus := errors.AsType[*HTTPError](err)
	_, redirect := errors.AsType[*RedirectError](err)
	_, rpc := errors.AsType[*RPCError](err)
	return isStatus && status.Status < 500 && status.Status != http.StatusTooManyRequests ||
		redirect || rpc || errors.Is(err, ErrSessionLost) || err == errNoStream
}

// pause waits before a stream is opened again: at least as long as the server
// asked for, and longer each time.
func pause(ctx context.Context, requested time.Duration, tries int) error {
	d := min(firstPause<<min(tries, 10), maxPause)
	d = max(d/2+rand.N(d/2), min(requested, maxPause))
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// speaksOnlySSE reports whether an address that refuses messages belongs to the
// HTTP+SSE transport, whose stream begins with the address for messages.
func (t *httpTransport) speaksOnlySSE(ctx context.Context, status int) bool {
	ctx, cancel := context.WithTimeout(ctx, t.conn.opts.ProbeTimeout)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	resp, err := t.get(ctx, "", "")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	events := newEventReader(resp.Body, maxErrorBody)
	defer events.release()
	e, err := events.next()
	if err != nil {
		return status == http.StatusMethodNotAllowed // a stream, and nothing else
	}
	return e.name == "endpoint"
}
