package front

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// reply is the answer to one HTTP request: one JSON message, or a stream of events if there are
// several.
type reply struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stream  bool // the client accepts a stream
	now     bool // it must be a stream from the start

	session  *httpSession // nil in the newer generation
	stopBeat func()       // nil if the stream needs no heartbeat

	mu      sync.Mutex
	started bool // the stream has begun
	done    bool
}

// event sends a message on the stream, which begins with the first event. It reports success.
func (s *reply) event(message []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.done && s.stream && s.write("event: message\ndata: ", message)
}

// write sends a piece of the stream. The caller holds the lock.
func (s *reply) write(head string, message []byte) bool {
	s.begin()
	// A client that does not read is disconnected.
	_ = s.control.SetWriteDeadline(time.Now().Add(ioTimeout))
	b := make([]byte, 0, len(head)+len(message)+2)
	b = append(append(append(b, head...), message...), "\n\n"...)
	if _, err := s.w.Write(b); err != nil {
		return false
	}
	return s.control.Flush() == nil
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

// finish sends the last message.
func (s *reply) finish(status int, message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return
	}
	s.done = true
	if s.started || s.now && status == http.StatusOK {
		s.write("event: message\ndata: ", message)
		return
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(ioTimeout))
	h := s.w.Header()
	h["Content-Type"] = contentJSON
	h["Content-Length"] = []string{strconv.Itoa(len(message))}
	s.w.WriteHeader(status)
	_, _ = s.w.Write(message) // the client may be gone
}

// answer ends a request with its result, unless the client no longer waits.
func (s *reply) answer(ctx context.Context, req *request, result jsontext.Value, problem *rpcError) {
	if p := s.session; p != nil {
		p.close(s)
		if p.peer.leave(ctx, req.ID) {
			s.finish(http.StatusOK, answer(req.ID, result, problem))
		} else {
			s.accepted() // the client has cancelled it
		}
		return
	}
	status := http.StatusOK
	if problem != nil {
		status = statusOf(problem)
	}
	if ctx.Err() == nil {
		s.finish(status, answer(req.ID, result, problem))
	}
}

// release releases the request's session and heartbeat.
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

// accepted answers a message that needs no answer.
func (s *reply) accepted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done && !s.started {
		s.w.WriteHeader(http.StatusAccepted)
	}
	s.done = true
}

// beat sends heartbeats until ctx ends or stop is called.
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
