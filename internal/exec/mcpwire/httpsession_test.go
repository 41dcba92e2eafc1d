package mcpwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestHTTPSession(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		if got := r.Header.Get("Mcp-Protocol-Version"); got != "2025-11-25" {
			t.Errorf("Mcp-Protocol-Version is %q, want 2025-11-25", got)
		}
		answerJSON(w, m, `{}`)
	}
	c := s.connect(Options{}, HTTPOptions{})
	negotiate(t, c)
	mustCall(t, c, "tool", `{}`, `{}`)
	c.Close()
	s.log.want(t, "server/discover ", "initialize ", "notifications/initialized s1", "tools/call s1", "DELETE s1")
}

// TestHTTPSessionLost checks many concurrent calls that lose their session. The client creates only one new
// session, and every call is answered.
func TestHTTPSessionLost(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	const calls = 20
	var asked atomic.Int64
	together := make(chan struct{})
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		switch r.Header.Get("Mcp-Session-Id") {
		case "s1":
			if asked.Add(1) == calls {
				close(together)
			}
			await(r, together) // the server answers only after all requests have arrived
			http.Error(w, "session not found", http.StatusNotFound)
		case "s2":
			answerJSON(w, m, `{}`)
		}
	}
	var gaps diary
	c := s.connect(Options{Legacy: true, OnGap: func(bool) { gaps.write("gap") }}, HTTPOptions{})
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
		t.Errorf("the client sent initialize %d times, want 2: %q", initialized, s.log.entries)
	}
}

// TestHTTPSessionLostForGood checks that the client tries only one new session. The server has received the call,
// so no later error wraps ErrNotSent.
func TestHTTPSessionLostForGood(t *testing.T) {
	for _, tc := range []struct {
		name  string
		sends int // how many requests are sent before sending fails; 0 means that sending never fails
		log   []string
	}{
		{"forgotten again", 0, []string{"initialize ", "notifications/initialized s2", "tools/call s2"}},
		{"no new session", 3, nil},
		{"not sent again", 5, []string{"initialize ", "notifications/initialized s2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			noLeaks(t)
			s := newWeb(t)
			s.session = "s"
			s.call = func(w http.ResponseWriter, r *http.Request, m message) { http.NotFound(w, r) }
			sends := 0
			c := s.connect(Options{Legacy: true}, HTTPOptions{Header: func(context.Context, http.Header) error {
				if sends++; tc.sends > 0 && sends > tc.sends {
					return errors.New("no credential")
				}
				return nil
			}})
			negotiate(t, c)
			_, err := callTool(t, c, "tool", `{}`)
			wantError(t, err, ErrSessionLost)
			if errors.Is(err, ErrNotSent) {
				t.Errorf("error = %v wraps ErrNotSent, although the server received the call", err)
			}
			s.log.want(t, append([]string{"initialize ", "notifications/initialized s1", "tools/call s1"}, tc.log...)...)
		})
	}
}

// TestHTTPSessionLostThenRefused checks that a call returns the answer from the new session, even if the answer is an
// error.
func TestHTTPSessionLostThenRefused(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		if r.Header.Get("Mcp-Session-Id") == "s1" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, m.ID)
	}
	c := s.connect(Options{Legacy: true}, HTTPOptions{})
	negotiate(t, c)
	_, err := callTool(t, c, "tool", `{}`)
	wantError(t, err, new(*RPCError))
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
		log     int // the number of requests
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
			name: "a silent stream and no POST", options: Options{ProbeTimeout: 500 * time.Millisecond},
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
			name: "an invalid session id",
			handler: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Mcp-Session-Id", strings.Repeat("x", maxSession+1))
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":%s}`, initializeResult)
			},
			options: Options{Legacy: true},
			errors:  []any{new(*MalformedError)}, log: 1,
		},
		{
			name: "a server with an unknown future revision",
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

// TestHTTPSilentProbe checks that Negotiate falls back to initialize if the server never answers server/discover.
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
		t.Errorf("server = %+v, want a legacy server", got)
	}
}

// TestHTTPReuse checks that many calls, each with its own context, share few connections.
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
				t.Errorf("%d connections for 100 calls, want at most 10", n)
			}
		})
	}
}

// TestHTTPClose checks that Close ends waiting calls. Close must not wait if the server does not answer the
// request to end the session.
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
		t.Errorf("Close took %v, want at most 5s", took)
	}
	for range 10 {
		wantError(t, <-results, ErrClosed)
	}
	_, err := callTool(t, c, "tool", `{}`)
	wantError(t, err, ErrClosed, ErrNotSent)
}

// TestHTTPUnreachable checks that the error for an unreachable server wraps ErrNotSent.
func TestHTTPUnreachable(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.Server.Close()
	c := s.connect(Options{}, HTTPOptions{})
	_, err := c.Negotiate(t.Context())
	wantError(t, err, ErrNotSent)
}
