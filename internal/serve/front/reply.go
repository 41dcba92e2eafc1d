package front

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// reply is the answer to one HTTP request. Several messages are sent as an event stream. A single message is normally
// sent as JSON.
type reply struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stream  bool // whether the client accepts a stream
	now     bool // whether even a single message is sent as a stream

	session  *httpSession // nil in the newer protocol
	stopBeat func()       // nil if the stream needs no heartbeat

	mu      sync.Mutex
	started bool // whether the stream has been started
	done    bool
}

// event sends a message on the stream and reports whether that succeeded. The first message starts the stream.
func (s *reply) event(m message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.done && s.stream && s.write("event: message\ndata: ", m)
}

// write writes head, the message and an empty line to the stream. The parameter head contains the lines before the
// message. The caller must hold the mutex.
func (s *reply) write(head string, m message) bool {
	s.begin()
	// Because of the deadline, a client that does not read is disconnected.
	_ = s.control.SetWriteDeadline(time.Now().Add(ioTimeout))
	_, err := io.WriteString(s.w, head)
	if err == nil {
		err = m.write(s.w)
	}
	if err == nil {
		_, err = io.WriteString(s.w, "\n\n")
	}
	if err != nil {
		return false
	}
	err = s.control.Flush()
	if !s.done {
		// Remove the deadline. When a write deadline expires, the HTTP/2 server resets the stream, even if nothing is
		// being written at that time.
		_ = s.control.SetWriteDeadline(time.Time{})
	}
	return err == nil
}

func (s *reply) begin() {
	if s.started {
		return
	}
	s.started = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
}

func (s *reply) notify(method string, params jsontext.Value) { s.event(notification(method, params)) }

var contentJSON = []string{"application/json"}

// finish sends the last message. The status is used only if no stream has been started.
func (s *reply) finish(status int, m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return
	}
	s.done = true
	if s.started || s.now && status == http.StatusOK {
		s.write("event: message\ndata: ", m)
		return
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(ioTimeout))
	h := s.w.Header()
	h["Content-Type"] = contentJSON
	h["Content-Length"] = []string{strconv.Itoa(m.size())}
	s.w.WriteHeader(status)
	_ = m.write(s.w) // the write fails only if the client has disconnected
}

// answer completes a request. It sends the result if the client is still waiting for it.
func (s *reply) answer(ctx context.Context, req *request, result jsontext.Value, problem *rpcError) {
	message, problem, release := hold(ctx, req.ID, result, problem)
	defer release()
	if p := s.session; p != nil {
		p.close(s)
		if p.peer.leave(ctx, req.ID) {
			s.finish(http.StatusOK, message)
		} else {
			s.accepted() // the client has cancelled the request
		}
		return
	}
	status := http.StatusOK
	if problem != nil {
		status = statusOf(problem)
	}
	if ctx.Err() == nil {
		s.finish(status, message)
	}
}

// release stops the heartbeat and records that the request no longer uses the session.
func (s *reply) release() {
	if s.stopBeat != nil {
		s.stopBeat()
	}
	if s.session != nil {
		s.session.release()
	}
}

func (s *reply) fail(status int, id jsontext.Value, problem *rpcError) {
	s.finish(status, answer(id, nil, problem))
}

// accepted sends the status 202 for a message that has no result.
func (s *reply) accepted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done && !s.started {
		s.w.WriteHeader(http.StatusAccepted)
	}
	s.done = true
}

// beat sends heartbeats until ctx is done or the returned function is called.
func (s *reply) beat(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.mu.Lock()
				if s.started && !s.done {
					s.write(":", nil)
				}
				s.mu.Unlock()
			}
		}
	}()
	return func() { cancel(); <-done }
}
