package front

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxMessage bounds one message from a client.
	maxMessage = 32 << 20
	// maxCalls bounds the calls of a client that run at the same time.
	maxCalls = 256
	// lastAnswers is how long calls may go on after the client's input has ended.
	lastAnswers = 10 * time.Second
)

// errTooLong ends a session: where the next message begins cannot be trusted
// any more.
var errTooLong = errors.New("the message is larger than 32 MiB")

// message is what a client sends.
type message struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Method  string         `json:"method"`
	Params  jsontext.Value `json:"params"`
}

// session is one client on stdio.
type session struct {
	agent *Agent
	out   io.Writer

	writing sync.Mutex
	mu      sync.Mutex
	running map[string]context.CancelFunc // by request id
}

// ServeStdio serves a client that speaks one JSON-RPC message a line, until its
// input ends or ctx does. It returns when every call has ended. A read of the
// input that is under way when ctx ends is left behind.
func ServeStdio(ctx context.Context, a *Agent, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{agent: a, out: out, running: map[string]context.CancelFunc{}}
	lines, ended := make(chan []byte), make(chan error, 1)
	go func() { ended <- readLines(ctx, in, lines) }()
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line := <-lines:
			s.take(ctx, line, &calls)
		case err := <-ended:
			if errors.Is(err, errTooLong) {
				s.reply(nil, nil, &rpcError{Code: invalidRequest, Message: err.Error()})
			}
			// What was asked for before the input ended is still answered.
			timer := time.AfterFunc(lastAnswers, cancel)
			defer timer.Stop()
			calls.Wait()
			return err
		}
	}
}

// readLines hands on every line of the input, to its end.
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

// parse reads one message.
func parse(line []byte) (message, *rpcError) {
	var m message
	err := jsonv2.Unmarshal(line, &m, lenient)
	switch {
	case err != nil && !jsontext.Value(line).IsValid(lenient):
		return message{}, &rpcError{Code: parseError, Message: "the line is not JSON"}
	case err != nil || m.JSONRPC != "2.0":
		return message{}, &rpcError{Code: invalidRequest, Message: "the line is not one JSON-RPC 2.0 message"}
	case m.Method != "" && m.ID != nil && m.ID.Kind() != '"' && m.ID.Kind() != '0':
		return message{}, &rpcError{Code: invalidRequest, Message: "the id is neither a string nor a number"}
	}
	return m, nil
}

// take deals with one line of input.
func (s *session) take(ctx context.Context, line []byte, calls *sync.WaitGroup) {
	m, problem := parse(line)
	switch {
	case problem != nil:
		s.reply(nil, nil, problem)
	case m.Method == "notifications/cancelled":
		s.cancel(m.Params)
	case m.ID == nil || m.Method == "":
		// A notification of no interest, or an answer to what we never asked.
	default:
		// From here on it can be cancelled.
		ctx, problem := s.enter(ctx, m.ID)
		switch {
		case problem != nil:
			s.reply(m.ID, nil, problem)
		case m.Method == "tools/call":
			calls.Go(func() { s.serve(ctx, m) })
		default:
			s.serve(ctx, m)
		}
	}
}

// enter makes the context of a request.
func (s *session) enter(ctx context.Context, id jsontext.Value) (context.Context, *rpcError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.running[string(id)] != nil:
		return nil, &rpcError{Code: invalidRequest, Message: "a request of this id is still running"}
	case len(s.running) >= maxCalls:
		return nil, &rpcError{Code: internalError, Message: "too many calls at once"}
	}
	ctx, cancel := context.WithCancel(ctx)
	s.running[string(id)] = cancel
	return ctx, nil
}

func (s *session) serve(ctx context.Context, m message) {
	result, err := s.agent.handle(ctx, m.Method, m.Params, s.notify)
	s.mu.Lock()
	cancelled := ctx.Err() != nil
	s.running[string(m.ID)]()
	delete(s.running, string(m.ID))
	s.mu.Unlock()
	if !cancelled { // otherwise the client wants no answer any more
		s.reply(m.ID, result, err)
	}
}

func (s *session) cancel(params jsontext.Value) {
	var p struct {
		RequestID jsontext.Value `json:"requestId"`
	}
	if jsonv2.Unmarshal(params, &p, lenient) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stop := s.running[string(p.RequestID)]; stop != nil {
		stop()
	}
}

func (s *session) notify(method string, params jsontext.Value) {
	if len(params) == 0 {
		params = jsontext.Value("{}")
	}
	s.write(`{"jsonrpc":"2.0","method":`, marshal(method), `,"params":`, params)
}

// reply answers a request; without an id, whoever sent something that is none.
func (s *session) reply(id, result jsontext.Value, err *rpcError) {
	if id == nil {
		id = jsontext.Value("null")
	}
	if err != nil {
		s.write(`{"jsonrpc":"2.0","id":`, id, `,"error":`, marshal(err))
		return
	}
	s.write(`{"jsonrpc":"2.0","id":`, id, `,"result":`, result)
}

// write sends one message, whose values are sent as they are.
func (s *session) write(head string, first jsontext.Value, middle string, second jsontext.Value) {
	b := make([]byte, 0, len(head)+len(first)+len(middle)+len(second)+2)
	b = append(append(append(append(b, head...), first...), middle...), second...)
	oneLine(b)
	b = append(b, '}', '\n')
	s.writing.Lock()
	defer s.writing.Unlock()
	// A client that is gone ends its input too, which ends the session.
	_, _ = s.out.Write(b)
}
