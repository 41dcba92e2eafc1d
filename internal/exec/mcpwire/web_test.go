package mcpwire

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// web is an HTTP server that answers the handshake. A test defines how it answers other requests.
type web struct {
	*httptest.Server
	t        *testing.T
	session  string // the prefix of session ids; empty for a server without sessions
	modern   bool
	tools    string                                                  // the result of tools/list
	call     func(w http.ResponseWriter, r *http.Request, m message) // handles every other request
	get      http.HandlerFunc
	reply    func(m message) // receives the client's answers to the server's requests
	log      diary           // the method and session of every request
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
		return // wait until the client has closed the connection
	}
	m := message{line: string(body)}
	if err := json.Unmarshal(body, &m); err != nil {
		s.t.Errorf("the client sent %q: %v", body, err)
	}
	s.log.write(m.Method + " " + r.Header.Get("Mcp-Session-Id"))
	if got := r.Header.Get("Accept"); got != "application/json, text/event-stream" {
		s.t.Errorf("Accept is %q, want both content types", got)
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

// stream begins an event stream and returns a function that writes to the stream.
func stream(w http.ResponseWriter) func(format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	return func(format string, args ...any) {
		fmt.Fprintf(w, format, args...)
		w.(http.Flusher).Flush()
	}
}

// await waits for a value from the test or for the end of the request. A handler that waits after the end of its
// request prevents the server from closing.
func await[T any](r *http.Request, values <-chan T) (v T) {
	select {
	case v = <-values:
	case <-r.Context().Done():
	}
	return v
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

func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !happened() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
		time.Sleep(time.Millisecond) // poll until the deadline
	}
}
