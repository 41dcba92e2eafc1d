package front

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// maxMessage bounds one message from a client.
const maxMessage = 32 << 20

// lastAnswers is how long calls may go on after the client's input has ended.
const lastAnswers = 10 * time.Second

// message is what a client sends.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  jsontext.Value  `json:"params"`
}

// session is one client on stdio.
type session struct {
	agent *Agent
	out   io.Writer

	writing sync.Mutex
	mu      sync.Mutex
	running map[string]context.CancelFunc // by request id
}

// ServeStdio serves a client that speaks one JSON-RPC message a line, until
// its input ends. It returns when every call has ended.
func ServeStdio(ctx context.Context, a *Agent, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{agent: a, out: out, running: map[string]context.CancelFunc{}}
	var calls sync.WaitGroup
	defer func() {
		// What was asked for before the input ended is still answered.
		timer := time.AfterFunc(lastAnswers, cancel)
		calls.Wait()
		timer.Stop()
		cancel()
	}()
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxMessage)
	for lines.Scan() {
		line := append([]byte(nil), lines.Bytes()...)
		if len(line) == 0 {
			continue
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			s.reply(json.RawMessage("null"), nil, &rpcError{parseError, "the line is not a JSON-RPC message"})
			continue
		}
		switch {
		case m.Method == "notifications/cancelled":
			s.cancel(m.Params)
		case m.ID == nil || m.Method == "":
			// A notification of no interest, or an answer to what we never asked.
		case m.Method == "tools/call":
			calls.Go(func() { s.serve(ctx, m) })
		default:
			s.serve(ctx, m)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		s.reply(json.RawMessage("null"), nil, &rpcError{invalidRequest, "the message is larger than 32 MiB"})
	}
	return lines.Err()
}

func (s *session) serve(ctx context.Context, m message) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id := string(m.ID)
	s.mu.Lock()
	s.running[id] = cancel
	s.mu.Unlock()
	result, err := s.agent.handle(ctx, m.Method, m.Params, s.notify)
	s.mu.Lock()
	delete(s.running, id)
	s.mu.Unlock()
	if ctx.Err() != nil {
		return // cancelled: the client wants no answer any more
	}
	s.reply(m.ID, result, err)
}

func (s *session) cancel(params jsontext.Value) {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stop := s.running[string(p.RequestID)]; stop != nil {
		stop()
	}
}

func (s *session) notify(method string, params jsontext.Value) {
	s.write(map[string]any{"jsonrpc": "2.0", "method": method, "params": json.RawMessage(params)})
}

func (s *session) reply(id json.RawMessage, result any, err *rpcError) {
	m := map[string]any{"jsonrpc": "2.0", "id": id}
	if err != nil {
		m["error"] = err
	} else {
		m["result"] = result
	}
	s.write(m)
}

func (s *session) write(m any) {
	b, err := json.Marshal(m)
	if err != nil {
		return // of values that were JSON before
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	// A client that is gone ends its input too, which ends the session.
	_, _ = s.out.Write(append(b, '\n'))
}
