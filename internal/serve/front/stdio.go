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
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/limit"
)

const (
	// maxMessage is the maximum size of a client's message in bytes.
	maxMessage = 32 << 20
	// maxCalls is the maximum number of open requests of one client.
	maxCalls = 256
	// lastAnswers is how long running calls are allowed to continue after the end of the client's input. A call may first
	// have to start its server.
	lastAnswers = 30 * time.Second
)

// After errTooLong, the session is closed, because the start of the next message is unknown.
var errTooLong = errors.New("the message is larger than 32 MiB")

// stdioKey is the key of the client on stdio.
const stdioKey = "stdio"

// session is the connection to the client on stdio.
type session struct {
	agent   *Agent
	peer    *peer
	out     io.Writer
	writing sync.Mutex
	greeted sync.Once
	bytes   *limit.Bytes // counts the bytes of the requests in progress

	listening context.Context // a context that ends with the client's input
}

// ServeStdio serves a client that sends one JSON-RPC message per line. When the input has ended or ctx is done, it
// waits for the running calls and returns. If ctx is done first, a goroutine may still be blocked reading the input.
func ServeStdio(ctx context.Context, a *Agent, principal string, in io.Reader, out io.Writer) error {
	return serveLines(ctx, newPeer(a, stdioKey, principal, nil), in, out)
}

// ServeJoined is like ServeStdio, but for one of several clients that share the agent.
func ServeJoined(ctx context.Context, a *Agent, principal string, in io.Reader, out io.Writer) error {
	p := newPeer(a, gateway.NewID(), principal, nil)
	// When this session is lost, another process continues to serve the client. The client's late answers must not look
	// like answers to the questions of that process.
	p.questionPrefix += p.key + "-"
	return serveLines(ctx, p, in, out)
}

func serveLines(ctx context.Context, p *peer, in io.Reader, out io.Writer) error {
	a, principal := p.agent, p.principal
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := limit.NewAnswerBytes()
	ctx = WithAnswers(ctx, func(size int64) (func(), error) { return answers.Take(principal, size) })
	s := &session{agent: a, peer: p, out: out, bytes: limit.NewBytes()}
	p.send = s.send
	defer s.peer.cleanUp()
	// Subscriptions are closed when the input ends. Running calls are allowed to continue for a while.
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
			s.greet(&request{}) // does nothing if a request has already been greeted
			// Requests that arrived before the end of the input are still answered. Their time limit starts when the
			// servers are ready.
			if s.peer.busy() {
				_ = a.Ready(ctx) // Ready's error is ignored, because each answer will contain it
			}
			timer := time.AfterFunc(lastAnswers, cancel)
			defer timer.Stop()
			calls.Wait()
			return err
		}
	}
}

// readLines sends every nonempty line of the input to a channel.
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
		// All other notifications of the client are ignored.
	default:
		s.serve(ctx, m, calls)
	}
}

// serve answers a request. A request that can take long is answered in a new goroutine, which is added to the wait
// group.
func (s *session) serve(ctx context.Context, m mcpwire.Message, calls *sync.WaitGroup) {
	r := newRequest(m)
	r.principal, r.peer, r.notify = s.peer.principal, s.peer, s.notify
	if m.Method == "subscriptions/listen" {
		ctx = s.listening
	}
	release, err := s.bytes.Take(s.peer.principal, int64(len(m.Params)))
	if err != nil {
		s.reply(m.ID, nil, &rpcError{Code: internalError, Message: err.Error()})
		return
	}
	ctx, problem := s.peer.enter(ctx, m.ID) // from now on, the client can cancel the request
	if problem != nil {
		release()
		s.reply(m.ID, nil, problem)
		return
	}
	work := func() {
		defer release()
		var result jsontext.Value
		err := r.check()
		if err == nil {
			result, err = r.method()(s.agent, ctx, r)
		}
		s.greet(r)                   // Greet is called before the answer is sent, so that the client misses no notification.
		if s.peer.leave(ctx, m.ID) { // leave returns false if the client has cancelled the request
			message, _, sent := hold(ctx, m.ID, result, err)
			defer sent()
			s.send(message)
		}
	}
	switch m.Method {
	case "initialize", "ping", "server/discover":
		work()
	default:
		s.greet(r)
		calls.Go(work)
	}
}

// greet handles the first request that is not a ping. It calls [Agent.Greeted]. In the older protocol, it also starts
// to forward notifications to the client. For pings and for later requests, greet does nothing.
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
			events := s.agent.addSubscriber(s.peer.caller)
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

// reply answers the request with this id. The id is nil if the request was not a valid message.
func (s *session) reply(id, result jsontext.Value, err *rpcError) { s.send(answer(id, result, err)) }

func (s *session) send(m message) bool {
	s.writing.Lock()
	defer s.writing.Unlock()
	// A failed write does not close the session. The session is closed when the client's input ends.
	last := len(m) - 1
	m[last] = append(m[last], '\n')
	return m.write(s.out) == nil
}
