package mcpwire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fake is the server's end of a connection. The script of a test uses it to act as the server.
type fake struct {
	t   *testing.T
	in  *bufio.Reader
	out io.Writer
	r   *io.PipeReader // the server's stdin
	w   *io.PipeWriter // the server's stdout
}

// message is a message that the fake server has read.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	line   string
}

// pair connects a client to a fake server.
func pair(t *testing.T, o Options) (*Conn, *fake) {
	clientIn, serverOut := io.Pipe()
	serverIn, clientOut := io.Pipe()
	c := New(Stdio(clientIn, clientOut), o)
	return c, &fake{t: t, in: bufio.NewReader(serverIn), out: serverOut, r: serverIn, w: serverOut}
}

// play runs the two functions as server and client of a connection, in a synctest bubble. The test fails if a
// goroutine is still running at the end.
func play(t *testing.T, o Options, server func(*fake), client func(*testing.T, *Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, f := pair(t, o)
		done := make(chan struct{})
		go func() {
			defer close(done)
			server(f)
		}()
		client(t, c)
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		<-c.Done()
		f.exit()
		<-done
	})
}

// recv reads the next message. It returns a zero message if the client has closed the connection.
func (f *fake) recv() message {
	line, err := f.in.ReadString('\n')
	if err != nil {
		return message{}
	}
	var m message
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		f.t.Errorf("the client sent %q: %v", line, err)
	}
	m.line = strings.TrimSuffix(line, "\n")
	return m
}

// expect reads the next message and checks its method.
func (f *fake) expect(method string) message {
	m := f.recv()
	if m.Method != method {
		f.t.Errorf("the client sent %q, want %s", m.line, method)
	}
	return m
}

// say writes one line. It ignores errors, because the client may have closed the connection.
func (f *fake) say(line string) { _, _ = io.WriteString(f.out, line+"\n") }

func (f *fake) answer(m message, result string) {
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

func (f *fake) refuse(m message, code int, text string) {
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, m.ID, code, text))
}

// exit closes both pipes, like a server process that exits.
func (f *fake) exit() {
	f.w.Close()
	f.r.Close()
}

// idle reads until the client closes the connection.
func (f *fake) idle() {
	for f.recv().line != "" {
	}
}

const (
	initializeResult = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}`
	discoverResult   = `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
)

// greetLegacy negotiates as a server that supports only initialize.
func (f *fake) greetLegacy() {
	m := f.recv()
	if m.Method == methodDiscover {
		f.refuse(m, -32601, "Method not found")
		m = f.recv()
	}
	if m.Method != methodInitialize {
		f.t.Errorf("the client sent %q, want initialize", m.line)
	}
	f.answer(m, initializeResult)
	if m := f.recv(); m.Method != methodInitialized && m.line != "" {
		f.t.Errorf("the client sent %q, want %s", m.line, methodInitialized)
	}
}

// legacy returns a script that negotiates as a legacy server and then runs the given script.
func legacy(server func(*fake)) func(*fake) {
	return func(f *fake) {
		f.greetLegacy()
		server(f)
	}
}

func modern(server func(*fake)) func(*fake) {
	return func(f *fake) {
		f.answer(f.expect(methodDiscover), discoverResult)
		server(f)
	}
}

func negotiate(t *testing.T, c *Conn) *Server {
	t.Helper()
	s, err := c.Negotiate(t.Context())
	if err != nil {
		t.Fatalf("Negotiate: %v", err)
	}
	return s
}

// callTool calls a tool with a deadline of a minute, much longer than a call needs.
func callTool(t *testing.T, c *Conn, name, arguments string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result, err := c.CallTool(ctx, ToolCall{Name: name, Arguments: []byte(arguments)})
	return string(result), err
}

func mustCall(t *testing.T, c *Conn, name, arguments, want string) {
	t.Helper()
	if got, err := callTool(t, c, name, arguments); err != nil || got != want {
		t.Errorf("CallTool(%s) = %s, %v; want %s", name, got, err, want)
	}
}

// wantError checks that err matches every target. It uses errors.Is for a target that is an error, and errors.As
// for a pointer to an error type.
func wantError(t *testing.T, err error, targets ...any) {
	t.Helper()
	for _, target := range targets {
		switch target := target.(type) {
		case error:
			if !errors.Is(err, target) {
				t.Errorf("error %v is not %v", err, target)
			}
		default:
			if !errors.As(err, target) {
				t.Errorf("error %v is not a %T", err, target)
			}
		}
	}
}

// diary records the texts that callbacks add to it.
type diary struct {
	mu      sync.Mutex
	entries []string
}

func (d *diary) write(entry string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, entry)
}

func (d *diary) want(t *testing.T, entries ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.entries, entries) {
		t.Errorf("recorded %q, want %q", d.entries, entries)
	}
}

// noLeaks fails the test if goroutines are still running at its end. It is for tests that use the network, which
// synctest does not support.
func noLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		deadline := time.Now().Add(time.Minute)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
				return
			}
			runtime.Gosched()
			time.Sleep(time.Millisecond) // poll until the deadline, because the goroutines may take a moment to end
		}
	})
}

// Stats are the counters of a connection.
type Stats struct{ Stray, Noise, Dropped int64 }

// Stats returns the counts so far.
func (c *Conn) Stats() Stats {
	return Stats{Stray: c.stray.Load(), Noise: c.noise.Load(), Dropped: c.dropped.Load()}
}
