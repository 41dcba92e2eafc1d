//go:build unix

package toolserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// keeper is a server of the older generation, with the tool echo and any resource. It can forget its sessions.
type keeper struct {
	mu       sync.Mutex
	sessions int           // the number of sessions so far; they are numbered from 1
	ended    int           // all sessions with a number up to this one are forgotten
	gone     int           // the session with this number is forgotten too
	heard    []string      // for each request: the method, the URI if any, and "lost" if its session is unknown
	lost     string        // requests with this method are answered as if their session were forgotten
	streams  chan struct{} // closed to end all streams; nil if the server has no streams
	hold     chan int      // if not nil, the answer to a subscription waits for this status
	deaf     bool          // set if the server must not answer requests for a log level
}

// forget forgets all sessions, as a restart does, and ends their streams.
func (k *keeper) forget() {
	k.mu.Lock()
	k.ended = k.sessions
	k.mu.Unlock()
	k.cut()
}

// cut ends all streams.
func (k *keeper) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.streams != nil {
		close(k.streams)
		k.streams = make(chan struct{})
	}
}

// stream answers a GET request with a stream of notifications.
func (k *keeper) stream(w http.ResponseWriter, r *http.Request, session int) {
	k.mu.Lock()
	cut, lost := k.streams, session <= k.ended || session == k.gone
	if cut != nil && !lost {
		k.heard = append(k.heard, "GET")
	}
	k.mu.Unlock()
	switch {
	case cut == nil:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case lost:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	select {
	case <-cut:
	case <-r.Context().Done():
	}
}

// count returns how often the server received a request.
func (k *keeper) count(what string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.heard {
		if h == what {
			n++
		}
	}
	return n
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ URI string }
	}
	session, _ := strconv.Atoi(r.Header.Get("Mcp-Session-Id"))
	if r.Method == http.MethodGet {
		k.stream(w, r, session)
		return
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard = append(k.heard, strings.TrimSpace(m.Method+" "+m.Params.URI))
	if m.Method == "resources/subscribe" && k.hold != nil {
		k.mu.Unlock()
		status := http.StatusGone
		select {
		case status = <-k.hold:
		case <-r.Context().Done():
		}
		k.mu.Lock()
		if status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
	}
	if m.Method == "logging/setLevel" && k.deaf {
		k.mu.Unlock()
		<-r.Context().Done()
		k.mu.Lock()
		return
	}
	result := `{}`
	switch {
	case m.Method == "server/discover":
		w.WriteHeader(http.StatusBadRequest)
		return
	case m.Method == "initialize":
		k.sessions++
		w.Header().Set("Mcp-Session-Id", strconv.Itoa(k.sessions))
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"keeper","version":"1"}}`
	case session <= k.ended, session == k.gone, m.Method == k.lost:
		k.heard[len(k.heard)-1] += " lost"
		w.WriteHeader(http.StatusNotFound)
		return
	case m.Method == "tools/list":
		result = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
	case m.Method == "tools/call":
		result = `{"content":[]}`
	case len(m.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// If a server does not know the session of a call, ambit opens a new session and repeats the call once. If
// the repeated call fails too, the refusal reports that the call was sent and may have had an effect.
func TestLostSessionWasSent(t *testing.T) {
	for effect, unknown := range map[agent.SideEffect]call.Effect{agent.Read: call.NoEffect, agent.Write: call.EffectUnknown} {
		t.Run(string(effect), func(t *testing.T) {
			r := newRig(t)
			k := &keeper{}
			r.at("bank", []string{"echo"}, k)
			r.tool("bank", "echo").SideEffect = effect
			m := r.proven()
			k.forget()
			if _, refusal := r.call(m, "bank", "echo", `{}`); refusal != nil {
				t.Errorf("the call after a restart was refused: %v", refusal)
			}
			k.mu.Lock()
			k.lost, k.heard = "tools/call", nil
			k.mu.Unlock()
			_, refusal := r.call(m, "bank", "echo", `{}`)
			if refusal == nil || refusal.Code != call.ServerUnavailable || refusal.Effect != unknown || refusal.Unsent {
				t.Errorf("got %+v, want %s with effect %s", refusal, call.ServerUnavailable, unknown)
			}
			if n := k.count("tools/call lost"); n != 2 {
				t.Errorf("the call was sent %d times, want once in each session", n)
			}
		})
	}
}

// SetLevel reaches all servers, even if one of them does not answer.
func TestLevelReachesAllServers(t *testing.T) {
	r := newRig(t)
	deaf, keen := &keeper{deaf: true}, &keeper{}
	r.at("deaf", []string{"echo"}, deaf)
	r.at("keen", []string{"echo"}, keen)
	m := r.proven()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.SetLevel(ctx, askable("one"), "error")
	}()
	r.until("both servers received the request", func() bool { return deaf.count("logging/setLevel")+keen.count("logging/setLevel") == 2 })
	cancel()
	<-done
}

// ambit renews the subscriptions at a server that may have lost them. It does not renew the subscriptions of clients
// that have disconnected in the meantime.
func TestWatchedAgain(t *testing.T) {
	const subscribe = "resources/subscribe test://note"
	for name, client := range map[string]*call.Client{"shared": {Key: "one"}, "own": askable("one")} {
		for _, away := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, away %t", name, away), func(t *testing.T) {
				r := newRig(t)
				k := &keeper{}
				place := r.at("notes", []string{"echo"}, k)
				m := r.proven()
				s := m.servers["notes"]
				_, err := m.Forward(t.Context(), &call.Forward{Server: "notes", Method: "resources/subscribe", Params: jsontext.Value(`{"uri":"test://note"}`), Client: client})
				if err != nil || k.count(subscribe) != 1 {
					t.Fatalf("got error %v, and the server received %d subscriptions, want 1", err, k.count(subscribe))
				}
				k.forget()
				if away {
					place.down()
					if _, refusal := r.call(m, "notes", "echo", `{}`); refusal == nil {
						t.Error("a call succeeded while the server was unreachable")
					}
					r.until("the server is unavailable", func() bool { return !m.Proven() })
					place.set(k)
				}
				r.until("the server answers again", func() bool {
					_, refusal := r.call(m, "notes", "echo", `{}`)
					return refusal == nil
				})
				r.until("the subscription is renewed", func() bool { return k.count(subscribe) >= 2 })
				place.down()
				r.call(m, "notes", "echo", `{}`)
				m.Release("one")
				s.mu.Lock()
				defer s.mu.Unlock()
				if len(s.watched)+len(s.private) != 0 {
					t.Error("the subscription of a released client is kept")
				}
			})
		}
	}
}
