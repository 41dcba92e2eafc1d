package mcpwire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// web is a server over HTTP, with the handshake done; tests say how it answers
// the rest.
type web struct {
	*httptest.Server
	t        *testing.T
	session  string // what session ids begin with; empty for none
	modern   bool
	tools    string                                                  // the result of tools/list
	call     func(w http.ResponseWriter, r *http.Request, m message) // every other request
	get      http.HandlerFunc
	reply    func(m message) // gets the client's answers
	log      diary           // every request, in short
	conns    atomic.Int64
	sessions atomic.Int64
}

func newWeb(t *testing.T) *web {
	s := &web{t: t, tools: `{"tools":[]}`}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		s.log.write(r.Method + " " + r.Header.Get("Mcp-Session-Id"))
		if r.Method == http.MethodGet && s.get != nil {
			s.get(w, r)
			return
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	m := message{line: string(body)}
	if err := json.Unmarshal(body, &m); err != nil {
		s.t.Errorf("the client sent %q: %v", body, err)
	}
	s.log.write(m.Method + " " + r.Header.Get("Mcp-Session-Id"))
	if got := r.Header.Get("Accept"); got != "application/json, text/event-stream" {
		s.t.Errorf("Accept: %s", got)
	}
	switch {
	case m.Method == methodDiscover && s.modern:
		answerJSON(w, m, discoverResult)
	case m.Method == methodDiscover:
		http.Error(w, "Bad Request: Server not initialized", http.StatusBadRequest)
	case m.Method == methodInitialize:
		if s.session != "" {
			w.Header().Set("Mcp-Session-Id", fmt.Sprint(s.session, s.sessions.Add(1)))
		}
		answerJSON(w, m, initializeResult)
	case m.Method == "" && s.reply != nil:
		s.reply(m)
		w.WriteHeader(http.StatusAccepted)
	case len(m.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == methodListTools:
		answerJSON(w, m, s.tools)
	default:
		s.call(w, r, m)
	}
}

func answerJSON(w http.ResponseWriter, m message, result string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// stream begins an event stream and returns how to write to it.
func stream(w http.ResponseWriter) func(format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	return func(format string, args ...any) {
		fmt.Fprintf(w, format, args...)
		w.(http.Flusher).Flush()
	}
}

func (s *web) connect(o Options, h HTTPOptions) *Conn {
	transport, err := HTTP(s.URL, h)
	if err != nil {
		s.t.Fatal(err)
	}
	c := New(transport, o)
	s.t.Cleanup(func() { c.Close() })
	return c
}

func TestHTTPAnswers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request, m message)
		limit  int
		want   string
		errors []any
	}{
		{
			name:   "JSON",
			answer: func(w http.ResponseWriter, _ *http.Request, m message) { answerJSON(w, m, odd) },
			want:   odd,
		},
		{
			name: "JSON in a batch",
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":%s,"result":{"b":1}}]`, m.ID)
			},
			want: `{"b":1}`,
		},
		{
			name: "JSON larger than a buffer, in pieces",
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":"`, m.ID)
				for range 5 {
					w.(http.Flusher).Flush()
					io.WriteString(w, strings.Repeat("x", readSize))
				}
				io.WriteString(w, `"}`)
			},
			want: `"` + strings.Repeat("x", 5*readSize) + `"`,
		},
		{
			name: "events, with all that may come between",
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				say := stream(w)
				say(": hello\r\n\r\nid: 0\r\ndata:\r\n\r\nevent: other\r\ndata: {\"x\"\r\n\r\n")
				say("event: message\rdata:{\"jsonrpc\":\"2.0\",\rdata: \"id\":%s,\r", m.ID)
				say("data:\"result\":{\"lines\":3}}\r\r")
			},
			want: `{"lines":3}`,
		},
		{
			name: "an event larger than a buffer",
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":\"%s\"}\n\n", m.ID, strings.Repeat("x", 3*readSize))
			},
			want: `"` + strings.Repeat("x", 3*readSize) + `"`,
		},
		{
			name: "an event stream that goes on for ever",
			answer: func(w http.ResponseWriter, r *http.Request, m message) {
				stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", m.ID)
				<-r.Context().Done()
			},
			want: `{}`,
		},
		{
			name: "an error with status 200",
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, m.ID)
			},
			errors: []any{new(*RPCError)},
		},
		{
			name: "an error with status 400",
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, m.ID)
			},
			errors: []any{new(*RPCError), new(*HTTPError)},
		},
		{
			name: "an error without an id",
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}`)
			},
			errors: []any{new(*RPCError)},
		},
		{
			name:   "status 500",
			answer: func(w http.ResponseWriter, _ *http.Request, _ message) { http.Error(w, "oops", 500) },
			errors: []any{new(*HTTPError)},
		},
		{
			name:   "accepted, and nothing else",
			answer: func(w http.ResponseWriter, _ *http.Request, _ message) { w.WriteHeader(202) },
			errors: []any{new(*MalformedError)},
		},
		{
			name: "a page for people",
			answer: func(w http.ResponseWriter, _ *http.Request, _ message) {
				w.Header().Set("Content-Type", "text/html")
				io.WriteString(w, "<html>")
			},
			errors: []any{new(*MalformedError)},
		},
		{
			name: "invalid JSON",
			answer: func(w http.ResponseWriter, _ *http.Request, _ message) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"jsonrpc":`)
			},
			errors: []any{new(*MalformedError)},
		},
		{
			name: "an invalid event",
			answer: func(w http.ResponseWriter, _ *http.Request, _ message) {
				stream(w)("data: {]\n\n")
			},
			errors: []any{new(*MalformedError)},
		},
		{
			name: "an answer to somebody else",
			answer: func(w http.ResponseWriter, _ *http.Request, _ message) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
			},
			errors: []any{ErrNoAnswer},
		},
		{
			name: "an event stream without the answer",
			answer: func(w http.ResponseWriter, _ *http.Request, _ message) {
				stream(w)("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
			},
			errors: []any{ErrNoAnswer},
		},
		{
			name: "a body that breaks off",
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", "1000")
				io.WriteString(w, `{"jsonrpc":"2.0"`)
			},
			errors: []any{io.ErrUnexpectedEOF},
		},
		{
			name: "nothing at all",
			answer: func(http.ResponseWriter, *http.Request, message) {
				panic(http.ErrAbortHandler)
			},
			errors: []any{io.EOF},
		},
		{
			name: "too much, announced", limit: 1000,
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", "1001")
				io.WriteString(w, strings.Repeat(" ", 1001))
			},
			errors: []any{new(*TooLargeError)},
		},
		{
			name: "too much, in pieces", limit: 1 << 20,
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				w.Header().Set("Content-Type", "application/json")
				for range 100 {
					io.WriteString(w, strings.Repeat(" ", 1<<20))
				}
			},
			errors: []any{new(*TooLargeError)},
		},
		{
			name: "too much in one event", limit: 1 << 20,
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				say := stream(w)
				say("data: ")
				for range 100 {
					say("%s", strings.Repeat("x", 1<<20))
				}
			},
			errors: []any{new(*TooLargeError)},
		},
		{
			name: "too much in many lines of one event", limit: 1 << 20,
			answer: func(w http.ResponseWriter, r *http.Request, m message) {
				say := stream(w)
				for r.Context().Err() == nil {
					say("%s", strings.Repeat("data: xxxxxxxxxxx\n", 1<<10))
				}
			},
			errors: []any{new(*TooLargeError)},
		},
		{
			name: "a redirect",
			answer: func(w http.ResponseWriter, r *http.Request, m message) {
				http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			},
			errors: []any{new(*RedirectError)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			noLeaks(t)
			s := newWeb(t)
			s.call = func(w http.ResponseWriter, r *http.Request, m message) {
				if strings.Contains(m.line, `"name":"next"`) {
					answerJSON(w, m, `{"next":1}`)
					return
				}
				tc.answer(w, r, m)
			}
			c := s.connect(Options{MaxMessage: tc.limit}, HTTPOptions{})
			negotiate(t, c)
			got, err := callTool(t, c, "tool", `{}`)
			if got != tc.want || (err == nil) != (tc.errors == nil) {
				t.Errorf("CallTool = %.100s, %v; want %.100s", got, err, tc.want)
			}
			wantError(t, err, tc.errors...)
			if errors.Is(err, ErrNotSent) {
				t.Error("it was sent")
			}
			if c.Err() != nil {
				t.Errorf("the connection is over: %v", c.Err())
			}
			// The connection is as good as before.
			mustCall(t, c, "next", `{}`, `{"next":1}`)
		})
	}
}

// TestHTTPNotifications takes what comes by a call's own stream to the call.
func TestHTTPNotifications(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.call = func(w http.ResponseWriter, _ *http.Request, m message) {
		say := stream(w)
		say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\" : 1}}\n\n")
		say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"ambit-%s\"}}\n\n", m.ID)
		say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
		say("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", m.ID)
	}
	var ofCall, ofConn diary
	c := s.connect(Options{OnNotification: func(n Notification) { ofConn.write(n.Method) }}, HTTPOptions{})
	negotiate(t, c)
	_, err := c.CallTool(t.Context(), ToolCall{
		Name:           "tool",
		OnNotification: func(n Notification) { ofCall.write(n.Method + string(n.Params)) },
	})
	if err != nil {
		t.Error(err)
	}
	ofCall.want(t, `notifications/message{"data" : 1}`, `notifications/progress{"progressToken":"ambit-3"}`)
	ofConn.want(t, MethodToolsChanged)
}

// TestHTTPServerRequests answers what a legacy server asks on a call's stream, and
// hears of the call's progress by the other stream.
func TestHTTPServerRequests(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	replies := make(chan string, 3)
	progress := make(chan string, 1)
	s.get = func(w http.ResponseWriter, r *http.Request) {
		say := stream(w)
		select {
		case id := <-progress:
			say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"ambit-%s\"}}\n\n", id)
		case <-r.Context().Done():
		}
		<-r.Context().Done()
	}
	s.reply = func(m message) { replies <- m.line }
	heard := make(chan struct{})
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		say := stream(w)
		for _, method := range []string{"ping", "elicitation/create", "roots/list"} {
			say("data: {\"jsonrpc\":\"2.0\",\"id\":\"%s\",\"method\":\"%s\"}\n\n", method, method)
			say(": and\n")
		}
		got := []string{<-replies, <-replies, <-replies}
		slices.Sort(got)
		want := []string{
			`{"jsonrpc":"2.0","id":"elicitation/create","result":{"action":"accept"}}`,
			`{"jsonrpc":"2.0","id":"ping","result":{}}`,
			`{"jsonrpc":"2.0","id":"roots/list","error":{"code":-32601,"message":"no roots"}}`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("replies %q", got)
		}
		progress <- string(m.ID)
		<-heard
		say("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", m.ID)
	}
	c := s.connect(Options{OnRequest: func(_ context.Context, method string, _ jsontext.Value) (jsontext.Value, error) {
		if method == "elicitation/create" {
			return []byte(`{"action":"accept"}`), nil
		}
		return nil, &RPCError{Code: -32601, Message: "no roots"}
	}}, HTTPOptions{})
	negotiate(t, c)
	_, err := c.CallTool(t.Context(), ToolCall{Name: "tool", OnNotification: func(Notification) { close(heard) }})
	if err != nil {
		t.Error(err)
	}
}

func TestHTTPSession(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		if got := r.Header.Get("Mcp-Protocol-Version"); got != "2025-11-25" {
			t.Errorf("Mcp-Protocol-Version: %s", got)
		}
		answerJSON(w, m, `{}`)
	}
	c := s.connect(Options{}, HTTPOptions{})
	negotiate(t, c)
	mustCall(t, c, "tool", `{}`, `{}`)
	c.Close()
	s.log.want(t, "server/discover ", "initialize ", "notifications/initialized s1", "tools/call s1", "DELETE s1")
}

// TestHTTPSessionLost forgets the session under many calls at once: one new
// session is made, and every call is answered.
func TestHTTPSessionLost(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	const calls = 20
	var together sync.WaitGroup
	together.Add(calls)
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		switch r.Header.Get("Mcp-Session-Id") {
		case "s1":
			together.Done()
			together.Wait() // nobody is told before everybody has asked
			http.Error(w, "session not found", http.StatusNotFound)
		case "s2":
			answerJSON(w, m, `{}`)
		}
	}
	var gaps diary
	c := s.connect(Options{Legacy: true, OnGap: func() { gaps.write("gap") }}, HTTPOptions{})
	negotiate(t, c)
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() { mustCall(t, c, "tool", `{}`, `{}`) })
	}
	wg.Wait()
	gaps.want(t, "gap")
	initialized := 0
	for _, e := range s.log.entries {
		if strings.HasPrefix(e, "initialize ") {
			initialized++
		}
	}
	if initialized != 2 {
		t.Errorf("%d times initialized: %q", initialized, s.log.entries)
	}
}

// TestHTTPSessionLostForGood gives up after one new session.
func TestHTTPSessionLostForGood(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	s.call = func(w http.ResponseWriter, r *http.Request, m message) { http.NotFound(w, r) }
	c := s.connect(Options{Legacy: true}, HTTPOptions{})
	negotiate(t, c)
	_, err := callTool(t, c, "tool", `{}`)
	wantError(t, err, ErrSessionLost, ErrNotSent)
	s.log.want(t, "initialize ", "notifications/initialized s1", "tools/call s1",
		"initialize ", "notifications/initialized s2", "tools/call s2")
}

func TestHTTPNegotiate(t *testing.T) {
	endpoint := func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "no", http.StatusMethodNotAllowed)
			return
		}
		stream(w)("event: endpoint\ndata: /messages?id=1\n\n")
		<-r.Context().Done()
	}
	for _, tc := range []struct {
		name    string
		options Options
		handler http.HandlerFunc
		errors  []any
		log     int // requests
	}{
		{name: "SSE only", handler: endpoint, errors: []any{ErrSSEOnly}, log: 3},
		{
			name: "SSE only, POST unknown",
			handler: func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					http.NotFound(w, r)
					return
				}
				endpoint(w, r)
			},
			errors: []any{ErrSSEOnly}, log: 3,
		},
		{
			name: "a silent stream and no POST", options: Options{ProbeTimeout: 50 * time.Millisecond},
			handler: func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				stream(w)
				<-r.Context().Done()
			},
			errors: []any{ErrSSEOnly}, log: 3,
		},
		{
			name:    "nothing there",
			handler: http.NotFound,
			errors:  []any{new(*HTTPError)}, log: 3,
		},
		{
			name:    "a redirect",
			handler: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/mcp", http.StatusMovedPermanently) },
			errors:  []any{new(*RedirectError)}, log: 1,
		},
		{
			name:    "no credentials",
			handler: func(w http.ResponseWriter, r *http.Request) { http.Error(w, "who?", http.StatusUnauthorized) },
			errors:  []any{new(*HTTPError)}, log: 1,
		},
		{
			name: "a session id that is none",
			handler: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Mcp-Session-Id", strings.Repeat("x", maxSession+1))
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":%s}`, initializeResult)
			},
			options: Options{Legacy: true},
			errors:  []any{new(*MalformedError)}, log: 1,
		},
		{
			name: "a server from the future",
			handler: func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"x","data":{"supported":["2031-01-01"]}}}`)
			},
			errors: []any{new(*VersionError)}, log: 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			noLeaks(t)
			var requests atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				tc.handler(w, r)
			}))
			defer s.Close()
			transport, err := HTTP(s.URL, HTTPOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c := New(transport, tc.options)
			defer c.Close()
			_, err = c.Negotiate(t.Context())
			wantError(t, err, tc.errors...)
			if int(requests.Load()) != tc.log {
				t.Errorf("%d requests, want %d", requests.Load(), tc.log)
			}
		})
	}
}

// TestHTTPSilentProbe has a server that never answers what it does not know.
func TestHTTPSilentProbe(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	inner := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == methodDiscover {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		inner.ServeHTTP(w, r)
	})
	c := s.connect(Options{ProbeTimeout: 20 * time.Millisecond}, HTTPOptions{})
	if got := negotiate(t, c); got.Modern {
		t.Errorf("server = %+v", got)
	}
}

func TestHTTPModernHeaders(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.modern = true
	s.session = "never"
	schema := `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},` +
		`"deep":{"properties":{"n":{"type":"integer","x-mcp-header":"N"},"b":{"type":"boolean","x-mcp-header":"B"}}},` +
		`"absent":{"type":"string","x-mcp-header":"Absent"}}}`
	s.tools = `{"tools":[{"name":"té","inputSchema":` + schema + `},` +
		`{"name":"bad","inputSchema":{"properties":{"x":{"type":"number","x-mcp-header":"X"}}}}]}`
	var seen http.Header
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		seen = r.Header.Clone()
		answerJSON(w, m, `{}`)
	}
	c := s.connect(Options{}, HTTPOptions{Header: func(_ context.Context, h http.Header) error {
		h.Set("Authorization", "Bearer x")
		h.Set("Mcp-Method", "forged")
		return nil
	}})
	negotiate(t, c)
	tools, err := c.ListTools(t.Context())
	if err != nil || len(tools) != 2 || tools[0].Invalid != nil || tools[1].Invalid == nil {
		t.Fatalf("ListTools = %+v, %v", tools, err)
	}
	check := func(want map[string]string) {
		t.Helper()
		for name, value := range want {
			if got := seen.Get(name); got != value {
				t.Errorf("%s: %q, want %q", name, got, value)
			}
		}
	}
	mustCall(t, c, "té", `{"region":" x ","deep":{"n":4.2e1,"b":true},"absent":null}`, `{}`)
	check(map[string]string{
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?dMOp?=",
		"Mcp-Param-Region": "=?base64?IHgg?=", "Mcp-Param-N": "42", "Mcp-Param-B": "true", "Mcp-Param-Absent": "",
		"Mcp-Session-Id": "", "Authorization": "Bearer x", "Content-Type": "application/json",
	})
	if _, err := c.Call(t.Context(), "resources/read", []byte(`{"uri":"file:///x"}`)); err != nil {
		t.Error(err)
	}
	check(map[string]string{"Mcp-Method": "resources/read", "Mcp-Name": "file:///x", "Mcp-Param-Region": ""})
}

func TestParamHeaders(t *testing.T) {
	for schema, want := range map[string]string{
		``:                  "",
		`true`:              "",
		`{"properties":[]}`: "",
		`{"properties":{"a":true,"\ud800":{"x-mcp-header":"A"}}}`:                                            "",
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`:                                          "Mcp-Param-A",
		`{"properties":{"a":{"type":"string","x-mcp-header":""}}}`:                                           "no header name",
		`{"properties":{"a":{"type":"string","x-mcp-header":7}}}`:                                            "no header name",
		`{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`:                                        "no header name",
		`{"properties":{"a":{"type":"string","x-mcp-header":"a\r\nX: y"}}}`:                                  "no header name",
		`{"properties":{"a":{"type":"string","x-mcp-header":"é"}}}`:                                          "no header name",
		`{"properties":{"a":{"type":"array","x-mcp-header":"A"}}}`:                                           "of type",
		`{"properties":{"a":{"type":["string"],"x-mcp-header":"A"}}}`:                                        "of type",
		`{"properties":{"a":{"properties":{"b":{"type":"string","x-mcp-header":"A b"}}}}}`:                   "no header name",
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`: "twice",
	} {
		headers, err := paramHeaders([]byte(schema))
		got := fmt.Sprint(err)
		if err == nil {
			got = ""
			for _, h := range headers {
				got += h.name
			}
		}
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("paramHeaders(%s) = %s, want %s", schema, got, want)
		}
	}
	for arguments, want := range map[string]string{
		`{}`: "", `{"a":null}`: "", `{"a":[]}`: "", `{"a":1.5}`: "", `{"a":9007199254740993}`: "", `{"a":1e400}`: "",
		`{"a":"\ud800"}`: "", `{"a":-7}`: "-7", `{"a":1e2}`: "100", `{"a":false}`: "false", `{"a":"x\u0079"}`: "xy",
	} {
		got, ok := paramHeader{path: []string{"a"}, name: "N"}.fromArguments([]byte(arguments))
		if ok != (want != "") || ok && got.value != want {
			t.Errorf("the header of %s is %q, want %q", arguments, got.value, want)
		}
	}
}

func TestHeaderValue(t *testing.T) {
	for in, want := range map[string]string{
		"us-west1":             "us-west1",
		"a b":                  "a b",
		"Hello, 世界":            "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":             "=?base64?IHBhZGRlZCA=?=",
		"line1\nline2":         "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=":   "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"=?base64?not at all?": "=?base64?not at all?",
	} {
		if got := headerValue(in); got != want {
			t.Errorf("headerValue(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestHTTPCredentials checks that the hook is asked every time and can say no.
func TestHTTPCredentials(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		answerJSON(w, m, `"`+r.Header.Get("Authorization")+`"`)
	}
	n := 0
	refused := errors.New("no credentials today")
	c := s.connect(Options{Legacy: true}, HTTPOptions{Header: func(_ context.Context, h http.Header) error {
		if n++; n > 4 {
			return refused
		}
		h.Set("Authorization", fmt.Sprintf("Bearer %d", n))
		return nil
	}})
	negotiate(t, c)
	mustCall(t, c, "tool", `{}`, `"Bearer 3"`)
	mustCall(t, c, "tool", `{}`, `"Bearer 4"`)
	_, err := callTool(t, c, "tool", `{}`)
	wantError(t, err, refused, ErrNotSent)
}

func TestHTTPCancel(t *testing.T) {
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern=%v", modern), func(t *testing.T) {
			noLeaks(t)
			s := newWeb(t)
			s.modern = modern
			arrived, gone := make(chan struct{}), make(chan struct{})
			s.call = func(w http.ResponseWriter, r *http.Request, m message) {
				stream(w)
				close(arrived)
				<-r.Context().Done()
				close(gone)
			}
			c := s.connect(Options{}, HTTPOptions{})
			negotiate(t, c)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-arrived; cancel() }()
			_, err := c.CallTool(ctx, ToolCall{Name: "tool"})
			wantError(t, err, context.Canceled)
			<-gone // the server sees the stream close
			told := func() bool {
				s.log.mu.Lock()
				defer s.log.mu.Unlock()
				return slices.Contains(s.log.entries, "notifications/cancelled ")
			}
			if modern {
				c.Close()
				if told() {
					t.Error("in 2026-07-28 the closed stream says it all")
				}
				return
			}
			eventually(t, "notifications/cancelled", told)
		})
	}
}

func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !happened() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
		time.Sleep(time.Millisecond) // between two looks, up to a deadline
	}
}

// TestHTTPListen keeps the stream of notifications, across a break.
func TestHTTPListen(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	var resumed diary
	second := make(chan struct{})
	s.get = func(w http.ResponseWriter, r *http.Request) {
		resumed.write(r.Header.Get("Last-Event-ID"))
		if len(resumed.entries) == 1 {
			stream(w)("retry: 1\nid: e7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
			return
		}
		say := stream(w)
		say("data: not JSON\n\n")
		say("data: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"forged\":true}}\n\n")
		say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/prompts/list_changed\"}\n\n")
		close(second)
		<-r.Context().Done()
	}
	s.call = func(w http.ResponseWriter, _ *http.Request, m message) {
		<-second
		answerJSON(w, m, `{"real":true}`)
	}
	var heard diary
	c := s.connect(Options{
		OnNotification: func(n Notification) { heard.write(n.Method) },
		OnGap:          func() { heard.write("gap") },
	}, HTTPOptions{})
	negotiate(t, c)
	mustCall(t, c, "tool", `{}`, `{"real":true}`)
	eventually(t, "the second notification", func() bool {
		heard.mu.Lock()
		defer heard.mu.Unlock()
		return len(heard.entries) == 3
	})
	c.Close()
	heard.want(t, MethodToolsChanged, "gap", "notifications/prompts/list_changed")
	resumed.want(t, "", "e7")
	if got := c.Stats(); got.Noise != 1 || got.Stray != 1 {
		t.Errorf("stats = %+v", got)
	}
}

// TestHTTPResume comes back for an answer whose stream the server broke off.
func TestHTTPResume(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	s.call = func(w http.ResponseWriter, _ *http.Request, m message) {
		stream(w)("id: p1\nretry: 1\ndata:\n\n")
	}
	s.get = func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Last-Event-ID"); got != "p1" {
			t.Errorf("Last-Event-ID: %s", got)
		}
		stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"resumed\":true}}\n\n")
	}
	c := s.connect(Options{}, HTTPOptions{})
	negotiate(t, c)
	mustCall(t, c, "tool", `{}`, `{"resumed":true}`)
}

// TestHTTPResumeRefused does not send a call again whose stream cannot be
// resumed: the server has had it.
func TestHTTPResumeRefused(t *testing.T) {
	for name, get := range map[string]http.HandlerFunc{
		"session lost": http.NotFound,
		"no stream":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			s := newWeb(t)
			s.session = "s"
			s.call = func(w http.ResponseWriter, _ *http.Request, m message) { stream(w)("id: p1\ndata:\n\n") }
			s.get = get
			c := s.connect(Options{Legacy: true}, HTTPOptions{})
			negotiate(t, c)
			_, err := callTool(t, c, "tool", `{}`)
			wantError(t, err, ErrNoAnswer)
			if errors.Is(err, ErrNotSent) {
				t.Errorf("it was sent: %v", err)
			}
			s.log.want(t, "initialize ", "notifications/initialized s1", "tools/call s1", "GET s1")
		})
	}
}

// TestHTTPListenAfterSessionLost listens to the new session.
func TestHTTPListenAfterSessionLost(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	gone := make(chan struct{})
	s.get = func(w http.ResponseWriter, r *http.Request) {
		say := stream(w)
		if r.Header.Get("Mcp-Session-Id") == "s1" {
			defer close(gone)
		} else {
			say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
		}
		<-r.Context().Done()
	}
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		if r.Header.Get("Mcp-Session-Id") == "s1" {
			http.NotFound(w, r)
			return
		}
		answerJSON(w, m, `{}`)
	}
	heard := make(chan string, 10)
	c := s.connect(Options{
		Legacy:         true,
		OnNotification: func(n Notification) { heard <- n.Method },
		OnGap:          func() { heard <- "gap" },
	}, HTTPOptions{})
	negotiate(t, c)
	mustCall(t, c, "tool", `{}`, `{}`)
	for _, want := range []string{"gap", MethodToolsChanged} {
		if got := <-heard; got != want {
			t.Errorf("heard %s, want %s", got, want)
		}
	}
	<-gone // nobody listens to the old one any more
}

// TestHTTPForeignAnswer has a server answer one call in the stream of another.
func TestHTTPForeignAnswer(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	first := make(chan string, 1)
	answered := make(chan struct{})
	s.call = func(w http.ResponseWriter, _ *http.Request, m message) {
		if strings.Contains(m.line, `"name":"first"`) {
			first <- string(m.ID)
			<-answered
			answerJSON(w, m, `{"real":true}`)
			return
		}
		answerJSON(w, message{ID: json.RawMessage(<-first)}, `{"forged":true}`)
	}
	c := s.connect(Options{}, HTTPOptions{})
	negotiate(t, c)
	var wg sync.WaitGroup
	wg.Go(func() { mustCall(t, c, "first", `{}`, `{"real":true}`) })
	_, err := callTool(t, c, "second", `{}`)
	wantError(t, err, ErrNoAnswer)
	close(answered)
	wg.Wait()
}

// TestHTTPModernNoResume does not come back for a stream that a modern server
// has broken off: there is no such thing any more.
func TestHTTPModernNoResume(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.modern = true
	s.call = func(w http.ResponseWriter, _ *http.Request, m message) { stream(w)("id: p1\ndata:\n\n") }
	c := s.connect(Options{}, HTTPOptions{})
	negotiate(t, c)
	_, err := callTool(t, c, "tool", `{}`)
	wantError(t, err, ErrNoAnswer)
	s.log.want(t, "server/discover ", "tools/call ")
}

// TestHTTPReuse makes many calls whose contexts end with them, and wants few
// connections.
func TestHTTPReuse(t *testing.T) {
	for _, kind := range []string{"JSON", "events"} {
		t.Run(kind, func(t *testing.T) {
			noLeaks(t)
			s := newWeb(t)
			s.call = func(w http.ResponseWriter, _ *http.Request, m message) {
				if kind == "JSON" {
					answerJSON(w, m, `{}`)
					return
				}
				stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", m.ID)
			}
			c := s.connect(Options{}, HTTPOptions{})
			negotiate(t, c)
			for range 100 {
				mustCall(t, c, "tool", `{}`, `{}`)
			}
			if n := s.conns.Load(); n > 10 {
				t.Errorf("%d connections for 100 calls", n)
			}
		})
	}
}

// TestHTTPClose ends calls that wait, and does not wait for a server that does
// not take leave.
func TestHTTPClose(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	arrived := make(chan struct{}, 10)
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}
	inner := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			<-r.Context().Done()
			return
		}
		inner.ServeHTTP(w, r)
	})
	c := s.connect(Options{}, HTTPOptions{})
	negotiate(t, c)
	results := make(chan error, 10)
	for i := range 10 {
		call := ToolCall{Name: "tool"}
		if i%2 == 0 {
			call.OnNotification = func(Notification) {}
		}
		go func() {
			_, err := c.CallTool(t.Context(), call)
			results <- err
		}()
	}
	for range 10 {
		<-arrived
	}
	began := time.Now()
	c.Close()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	for range 10 {
		wantError(t, <-results, ErrClosed)
	}
	_, err := callTool(t, c, "tool", `{}`)
	wantError(t, err, ErrClosed, ErrNotSent)
}

func TestHTTPAddress(t *testing.T) {
	for _, address := range []string{"", "ftp://x/", "http://", "http://user:secret@host/", "://", "http://[::1/secret"} {
		_, err := HTTP(address, HTTPOptions{})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("HTTP(%q): %v", address, err)
		}
	}
}

// TestHTTPUnreachable says that nothing was sent.
func TestHTTPUnreachable(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.Server.Close()
	c := s.connect(Options{}, HTTPOptions{})
	_, err := c.Negotiate(t.Context())
	wantError(t, err, ErrNotSent)
}
