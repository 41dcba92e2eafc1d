package mcpwire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// TestHTTPNotifications checks that a call receives the log messages and the progress on its stream.
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

// TestHTTPServerRequests checks that the client answers a legacy server's requests on a call's stream. The call
// must also receive progress from the stream of notifications.
func TestHTTPServerRequests(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	replies := make(chan string, 3)
	progress := make(chan string, 1)
	s.get = func(w http.ResponseWriter, r *http.Request) {
		say := stream(w)
		say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"ambit-%s\"}}\n\n", await(r, progress))
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
		var got []string
		for range 3 {
			got = append(got, await(r, replies))
		}
		slices.Sort(got)
		want := []string{
			`{"jsonrpc":"2.0","id":"elicitation/create","result":{"action":"accept"}}`,
			`{"jsonrpc":"2.0","id":"ping","result":{}}`,
			`{"jsonrpc":"2.0","id":"roots/list","error":{"code":-32601,"message":"no roots"}}`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("replies = %q, want %q", got, want)
		}
		progress <- string(m.ID)
		await(r, heard)
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
			<-gone // wait until the server sees that the stream is closed
			sentCancelled := func() bool {
				s.log.mu.Lock()
				defer s.log.mu.Unlock()
				return slices.Contains(s.log.entries, "notifications/cancelled ")
			}
			if modern {
				c.Close()
				if sentCancelled() {
					t.Error("the client sent notifications/cancelled; in 2026-07-28 it must only close the stream")
				}
				return
			}
			eventually(t, "notifications/cancelled", sentCancelled)
		})
	}
}

// TestHTTPListen checks that the client resumes the stream of notifications after the server has ended it.
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
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		await(r, second)
		answerJSON(w, m, `{"real":true}`)
	}
	var heard diary
	c := s.connect(Options{
		OnNotification: func(n Notification) { heard.write(n.Method) },
		OnGap:          func(bool) { heard.write("gap") },
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
		t.Errorf("stats = %+v, want Noise 1 and Stray 1", got)
	}
}

// TestHTTPResume checks that the client resumes a call's stream that the server ended before the answer.
func TestHTTPResume(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	s.call = func(w http.ResponseWriter, _ *http.Request, m message) {
		stream(w)("id: p1\nretry: 1\ndata:\n\n")
	}
	s.get = func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Last-Event-ID"); got != "p1" {
			t.Errorf("Last-Event-ID is %q, want p1", got)
		}
		stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"resumed\":true}}\n\n")
	}
	c := s.connect(Options{}, HTTPOptions{})
	negotiate(t, c)
	mustCall(t, c, "tool", `{}`, `{"resumed":true}`)
}

// TestHTTPResumeRefused checks that a call is not sent again if its stream cannot be resumed. The server has already
// received the call.
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
				t.Errorf("error = %v wraps ErrNotSent, although the server received the call", err)
			}
			s.log.want(t, "initialize ", "notifications/initialized s1", "tools/call s1", "GET s1")
		})
	}
}

// TestHTTPListenAfterSessionLost checks that the client opens the stream of notifications of a new session.
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
		OnGap:          func(bool) { heard <- "gap" },
	}, HTTPOptions{})
	negotiate(t, c)
	mustCall(t, c, "tool", `{}`, `{}`)
	for _, want := range []string{"gap", MethodToolsChanged} {
		if got := <-heard; got != want {
			t.Errorf("heard %s, want %s", got, want)
		}
	}
	<-gone // wait until the old stream is closed
}

// TestHTTPListenWithoutStream checks that the client does not treat status 404 for GET as a lost session. Otherwise
// it would create new sessions forever.
func TestHTTPListenWithoutStream(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.session = "s"
	s.get = http.NotFound
	s.call = func(w http.ResponseWriter, _ *http.Request, m message) { answerJSON(w, m, `{}`) }
	c := s.connect(Options{Legacy: true, OnNotification: func(Notification) {}}, HTTPOptions{})
	negotiate(t, c) // the reader returns when the listener has ended
	mustCall(t, c, "tool", `{}`, `{}`)
	s.log.want(t, "initialize ", "notifications/initialized s1", "GET s1", "tools/call s1")
}

// TestHTTPForeignAnswer checks that an answer on the stream of a different call is ignored.
func TestHTTPForeignAnswer(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	first := make(chan string, 1)
	answered := make(chan struct{})
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		if strings.Contains(m.line, `"name":"first"`) {
			first <- string(m.ID)
			await(r, answered)
			answerJSON(w, m, `{"real":true}`)
			return
		}
		answerJSON(w, message{ID: json.RawMessage(await(r, first))}, `{"forged":true}`)
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

// TestHTTPModernNoResume checks that the client does not resume a stream of a modern server. Revision
// 2026-07-28 does not support resuming.
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
