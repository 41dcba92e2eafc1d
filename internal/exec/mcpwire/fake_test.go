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

// fake is the server's end of a pipe, for a script to play the server on.
type fake struct {
	t   *testing.T
	in  *bufio.Reader
	out io.Writer
	r   *io.PipeReader // the server's stdin
	w   *io.PipeWriter // the server's stdout
}

// message is what a fake reads.
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

// play runs a script as the server of a connection, inside a bubble: a
// goroutine that is left behind there fails the test. The client's part comes
// after.
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
			t.Errorf("Close again: %v", err)
		}
		<-c.Done()
		f.exit()
		<-done
	})
}

// recv reads the next message; a zero one when the client has gone.
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

// expect reads the next message, which must be of this method.
func (f *fake) expect(method string) message {
	m := f.recv()
	if m.Method != method {
		f.t.Errorf("the client sent %q, want %s", m.line, method)
	}
	return m
}

// say writes one line. It does not matter if the client has gone.
func (f *fake) say(line string) { _, _ = io.WriteString(f.out, line+"\n") }

func (f *fake) answer(m message, result string) {
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

func (f *fake) refuse(m message, code int, text string) {
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, m.ID, code, text))
}

// exit is what a process does that ends.
func (f *fake) exit() {
	f.w.Close()
	f.r.Close()
}

// idle reads until the client goes.
func (f *fake) idle() {
	for f.recv().line != "" {
	}
}

const (
	initializeResult = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}`
	discoverResult   = `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
)

// greetLegacy plays a server that knows only initialize.
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

// legacy is a connection that has been negotiated, for tests of what comes then.
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

// callTool calls a tool with a deadline that nothing should need.
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

// wantError checks an error by errors.Is or, for a nil pointer of an error type
// in a pointer, by errors.As.
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

// diary is what callbacks write down.
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
		t.Errorf("heard %q, want %q", d.entries, entries)
	}
}

// noLeaks fails the test if goroutines are left when it is over. It is for tests
// that use the network, which a bubble cannot hold.
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
			time.Sleep(time.Millisecond) // between two looks, up to a deadline
		}
	})
}
