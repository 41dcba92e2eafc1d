package front

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
)

const (
	// maxMessage bounds one message from a client.
	maxMessage = 32 << 20
	// maxCalls bounds the open calls of a client.
	maxCalls = 256
	// lastAnswers is how long calls may continue after the client's input has ended.
	lastAnswers = 10 * time.Second
)

// errTooLong ends a session: the start of the next message is unknown.
var errTooLong = errors.New("the message is larger than 32 MiB")

// stdioKey is the key of the one client on stdio.
const stdioKey = "stdio"

// session is the one client on stdio.
type session struct {
	agent   *Agent
	peer    *peer
	out     io.Writer
	writing sync.Mutex
	greeted sync.Once

	listening context.Context // ends with the client's input
}

// ServeStdio serves a client that sends one JSON-RPC message a line, until its input or ctx ends.
// It returns when every call has ended. A pending read of the input is abandoned when ctx ends.
func ServeStdio(ctx context.Context, a *Agent, principal string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{agent: a, out: out}
	s.peer = newPeer(a, stdioKey, principal, s.send)
	defer s.peer.gone()
	// Subscriptions end with the input; calls may continue.
	var stopListening context.CancelFunc
	s.listening, stopListening = context.WithCancel(ctx)
	defer stopListening()
	lines, ended := make(chan []byte), make(chan error, 1)
	go func() { ended <- readLines(ctx, in, lines) }()
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line := <-lines:
			s.handle(ctx, line, &calls)
		case err := <-ended:
			if errors.Is(err, errTooLong) {
				s.reply(nil, nil, &rpcError{Code: invalidRequest, Message: err.Error()})
			}
			stopListening()
			s.greet(&request{}) // no greeting will come
			// Requests that came before the end of the input are still answered. The start of
			// servers does not count towards the time limit.
			if a.Ready != nil && s.peer.busy() {
				_ = a.Ready(ctx) // the requests report why not
			}
			timer := time.AfterFunc(lastAnswers, cancel)
			defer timer.Stop()
			calls.Wait()
			return err
		}
	}
}

// readLines sends every line of the input to lines.
func readLines(ctx context.Context, in io.Reader, lines chan<- []byte) error {
	scan := bufio.NewScanner(in)
	scan.Buffer(make([]byte, 64<<10), maxMessage)
	for scan.Scan() {
		line := bytes.TrimSpace(scan.Bytes())
		if len(line) == 0 {
			continue
		}
		select {
		case lines <- bytes.Clone(line):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if errors.Is(scan.Err(), bufio.ErrTooLong) {
		return errTooLong
	}
	return scan.Err()
}

// handle processes one line of input.
func (s *session) handle(ctx context.Context, line []byte, calls *sync.WaitGroup) {
	m, problem := parse(line)
	switch {
	case problem != nil:
		s.reply(nil, nil, problem)
	case m.Method == "notifications/cancelled":
		s.peer.cancel(m.Params)
	case m.Method == "":
		s.peer.answered(m)
	case m.ID == nil:
		// A notification that needs no action.
	default:
		s.serve(ctx, m, calls)
	}
}

// serve answers a request. Requests that may take long run in their own goroutine.
func (s *session) serve(ctx context.Context, m mcpwire.Message, calls *sync.WaitGroup) {
	r := newRequest(m)
	r.principal, r.peer, r.notify = s.peer.principal, s.peer, s.notify
	if m.Method == "subscriptions/listen" {
		ctx = s.listening
	}
	ctx, problem := s.peer.enter(ctx, m.ID) // from here on the client can cancel it
	if problem != nil {
		s.reply(m.ID, nil, problem)
		return
	}
	work := func() {
		var result jsontext.Value
		err := r.check()
		if err == nil {
			result, err = r.method()(s.agent, ctx, r)
		}
		if s.peer.leave(ctx, m.ID) { // otherwise the client has cancelled it
			s.reply(m.ID, result, err)
		}
	}
	switch m.Method {
	case "initialize", "ping", "server/discover":
		work()
		s.greet(r)
	default:
		s.greet(r)
		calls.Go(work)
	}
}

// greet reports the client as soon as its capabilities are known, and starts its notifications.
func (s *session) greet(r *request) {
	if r.Method == "ping" {
		return
	}
	s.greeted.Do(func() {
		if r.modern {
			s.peer.mu.Lock()
			s.peer.modern = true
			s.peer.mu.Unlock()
		} else if r.Method != "" {
			events := s.agent.addSubscriber()
			go func() {
				defer s.agent.removeSubscriber(events)
				s.peer.forward(s.listening, events)
			}()
		}
		if s.agent.Greeted != nil {
			s.agent.Greeted(s.peer.client())
		}
	})
}

func (s *session) notify(method string, params jsontext.Value) { s.send(notification(method, params)) }

// reply answers a request; without an id, an invalid message.
func (s *session) reply(id, result jsontext.Value, err *rpcError) { s.send(answer(id, result, err)) }

func (s *session) send(message []byte) bool {
	s.writing.Lock()
	defer s.writing.Unlock()
	// A client that has gone ends its input too, which ends the session.
	_, err := s.out.Write(append(message, '\n'))
	return err == nil
}
