package mcpwire

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

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
			name: "events, with comments and other events between them",
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				say := stream(w)
				say(": hello\r\n\r\nid: 0\r\ndata:\r\n\r\nevent: other\r\ndata: {\"x\"\r\n\r\n")
				say("event: message\ndata:{\"jsonrpc\":\"2.0\",\r\ndata: \"id\":%s,\n", m.ID)
				say("data:\"result\":{\"lines\":3}}\r\n\n")
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
			name: "an endless event stream",
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
			name:   "status 202 without a body",
			answer: func(w http.ResponseWriter, _ *http.Request, _ message) { w.WriteHeader(202) },
			errors: []any{new(*MalformedError)},
		},
		{
			name: "an HTML page",
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
			name: "an answer to another call",
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
			name: "an empty response",
			answer: func(http.ResponseWriter, *http.Request, message) {
				panic(http.ErrAbortHandler)
			},
			errors: []any{io.EOF},
		},
		{
			name: "a Content-Length that exceeds the limit", limit: 1000,
			answer: func(w http.ResponseWriter, _ *http.Request, m message) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", "1001")
				io.WriteString(w, strings.Repeat(" ", 1001))
			},
			errors: []any{new(*TooLargeError)},
		},
		{
			name: "too much JSON, in pieces", limit: 1 << 20,
			answer: func(w http.ResponseWriter, r *http.Request, m message) {
				w.Header().Set("Content-Type", "application/json")
				for r.Context().Err() == nil {
					io.WriteString(w, strings.Repeat(" ", 1<<20))
				}
			},
			errors: []any{new(*TooLargeError)},
		},
		{
			name: "too much in one event", limit: 1 << 20,
			answer: func(w http.ResponseWriter, r *http.Request, m message) {
				say := stream(w)
				say("data: ")
				for r.Context().Err() == nil {
					say("%s", strings.Repeat("x", 1<<20))
				}
			},
			errors: []any{new(*TooLargeError)},
		},
		{
			name: "too much data in many lines of one event", limit: 1 << 20,
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
				t.Error("the error wraps ErrNotSent, although the request was sent")
			}
			if c.Err() != nil {
				t.Errorf("the connection has ended: %v", c.Err())
			}
			// The connection is still usable.
			mustCall(t, c, "next", `{}`, `{"next":1}`)
		})
	}
}
