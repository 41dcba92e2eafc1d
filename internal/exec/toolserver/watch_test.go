//go:build unix

package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// watches makes a client watch a resource of the server notes.
func (r *rig) watches(m *Manager, c *call.Client, uri string) {
	r.t.Helper()
	_, err := m.Forward(r.t.Context(), &call.Forward{Server: "notes", Method: "resources/subscribe", Params: jsontext.Value(`{"uri":"` + uri + `"}`), Client: c})
	if err != nil {
		r.t.Fatal(err)
	}
}

// isWatched counts the subscriptions on the shared and the separate connections.
func TestWatched(t *testing.T) {
	for name, client := range map[string]*call.Client{"shared": {Key: "one"}, "own": askable("one")} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.at("notes", []string{"echo"}, &keeper{})
			m := r.proven()
			watched := func() bool {
				m.order[0].mu.Lock()
				defer m.order[0].mu.Unlock()
				return m.order[0].isWatched()
			}
			if watched() {
				t.Error("the server is watched before a client subscribes")
			}
			r.watches(m, client, "test://note")
			if !watched() {
				t.Error("the server is not watched after a client subscribed")
			}
			_, err := m.Forward(t.Context(), &call.Forward{Server: "notes", Method: "resources/unsubscribe", Params: jsontext.Value(`{"uri":"test://note"}`), Client: client})
			if err != nil || watched() {
				t.Errorf("after the unsubscription: got error %v and watched %t", err, watched())
			}
		})
	}
}

// If the session of a client's own connection is lost, ambit renews only that client's subscriptions. If a
// stream is reopened, ambit renews no subscriptions.
func TestOnlyWhoIsForgottenAsksAgain(t *testing.T) {
	r := newRig(t)
	k := &keeper{streams: make(chan struct{})}
	r.at("notes", []string{"echo"}, k)
	m := r.proven()
	const clients = 6
	for i := range clients {
		r.watches(m, askable(fmt.Sprint(i)), fmt.Sprint("test://", i))
	}
	k.cut()
	r.until("all streams are opened again", func() bool { return k.count("GET") == 2*(1+clients) })
	for i := range clients {
		k.mu.Lock()
		k.gone = 2 + i // the first session is that of the shared connection
		k.mu.Unlock()
		if _, refusal := r.act(t.Context(), m, "notes", "echo", &call.Call{Arguments: jsontext.Value("{}"), Client: askable(fmt.Sprint(i))}); refusal != nil {
			t.Fatal(refusal)
		}
		r.until("the subscription is renewed", func() bool { return k.count(fmt.Sprint("resources/subscribe test://", i)) >= 2 })
	}
	for i := range clients {
		if n := k.count(fmt.Sprint("resources/subscribe test://", i)); n != 2 {
			t.Errorf("client %d lost its session once, but its subscription was sent %d times, want 2", i, n)
		}
	}
}

// A client can subscribe while another client's subscription is pending. The new client then waits for the
// server's answer and gets it, even if the first client has gone.
func TestSecondWatcherGetsTheAnswer(t *testing.T) {
	for _, tt := range []struct {
		name       string
		status     int
		secondGoes bool
		kept, ends int // the number of remaining subscriptions, and of unsubscriptions that were sent
	}{
		{"accepted", http.StatusOK, false, 1, 0},
		{"refused", http.StatusForbidden, false, 0, 1},
		{"accepted without clients", http.StatusOK, true, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			k := &keeper{hold: make(chan int)}
			r.at("notes", []string{"echo"}, k)
			m := r.proven()
			s := m.servers["notes"]
			watchers := func() int {
				s.mu.Lock()
				defer s.mu.Unlock()
				if w := s.watched["test://note"]; w != nil {
					return len(w.clients)
				}
				return 0
			}
			begin := func(key string) (end context.CancelFunc, got chan error) {
				ctx, cancel := context.WithCancel(t.Context())
				got = make(chan error, 1)
				before := watchers()
				go func() {
					_, err := m.Forward(ctx, &call.Forward{Server: "notes", Method: "resources/subscribe", Params: jsontext.Value(`{"uri":"test://note"}`), Client: &call.Client{Key: key}})
					got <- err
				}()
				r.until(key+" watches", func() bool { return watchers() == before+1 })
				return cancel, got
			}
			firstGoes, first := begin("first")
			secondGoes, second := begin("second")
			defer secondGoes()
			firstGoes()
			if err := <-first; err == nil {
				t.Error("the first client got an answer before the server answered")
			}
			if tt.secondGoes {
				secondGoes()
				<-second
			}
			select {
			case err := <-second:
				t.Fatalf("the second client got an answer before the server answered: error %v", err)
			case k.hold <- tt.status:
			}
			if !tt.secondGoes {
				if err := <-second; (err == nil) != (tt.status == http.StatusOK) {
					t.Errorf("the second client got error %v", err)
				}
			}
			r.until("the unsubscriptions are sent", func() bool { return k.count("resources/unsubscribe test://note") == tt.ends })
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.watched) != tt.kept || k.count("resources/subscribe test://note") != 1 {
				t.Errorf("got %d remaining subscriptions and %d requests, want %d and 1", len(s.watched), k.count("resources/subscribe test://note"), tt.kept)
			}
		})
	}
}

// If a session is lost between calls, the stream shows this to ambit, and ambit renews the
// subscription.
func TestIdleWatcherIsNotForgotten(t *testing.T) {
	for name, client := range map[string]*call.Client{"shared": {Key: "one"}, "own": askable("one")} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			k := &keeper{streams: make(chan struct{})}
			r.at("notes", []string{"echo"}, k)
			r.watches(r.proven(), client, "test://note")
			k.forget()
			r.until("the subscription is renewed", func() bool { return k.count("resources/subscribe test://note") >= 2 })
		})
	}
}

// herald is a server of the newer generation. Its streams send nothing.
type herald struct {
	listens atomic.Int32
	end     chan struct{} // each element ends one stream
}

func (h *herald) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	result := `{"resultType":"complete","content":[]}`
	switch m.Method {
	case "server/discover":
		result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{"subscribe":true}},"ttlMs":0,"cacheScope":"private"}`
	case "tools/list":
		result = `{"resultType":"complete","tools":[{"name":"echo","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}`
	case "subscriptions/listen":
		h.listens.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-h.end:
		case <-r.Context().Done():
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// If the server ends a stream, ambit reopens it after a pause. The pauses grow.
func TestWatchThatEndsIsBegunAgain(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	h := &herald{end: make(chan struct{})}
	r.at("notes", []string{"echo"}, h)
	m := r.proven()
	r.watches(m, &call.Client{Key: "one"}, "test://note")
	want := firstPause
	for n := int32(1); n < 12; n++ {
		h.end <- struct{}{}
		if got := hand.waits(); got > want || got < want/2 || h.listens.Load() != n {
			t.Errorf("after stream %d: got a pause of %v and %d requests, want between %v and %v", n, got, h.listens.Load(), want/2, want)
		}
		want = min(2*want, longestPause)
		hand.pass()
	}
	// A stream that lasted long resets the pause.
	r.until("the stream is reopened", func() bool { return h.listens.Load() == 12 })
	hand.advance(2 * longestPause)
	h.end <- struct{}{}
	if got := hand.waits(); got > firstPause {
		t.Errorf("got a pause of %v, want at most %v", got, firstPause)
	}
	hand.pass()
	r.until("the stream is reopened", func() bool { return h.listens.Load() == 13 })
	m.Release("one") // make sure that no further request follows
}

// away is a network in which subscriptions cannot reach the server while unreached is set.
type away struct {
	http.RoundTripper
	unreached atomic.Bool
}

func (a *away) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.unreached.Load() && r.Header.Get("Mcp-Method") == "subscriptions/listen" {
		return nil, &net.OpError{Op: "dial", Err: errors.New("no server is there")}
	}
	return a.RoundTripper.RoundTrip(r)
}

// If the server was unreachable, the next call renews the subscription before the pause ends.
func TestWatchIsBegunAgainByACall(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	h := &herald{end: make(chan struct{})}
	r.at("notes", []string{"echo"}, h)
	a := &away{RoundTripper: http.DefaultTransport}
	r.o.Servers = Declared(r.agent)
	r.o.Servers[0].RoundTripper = a
	m := r.proven()
	r.watches(m, &call.Client{Key: "one"}, "test://note")
	r.until("the stream is open", func() bool { return h.listens.Load() == 1 })
	a.unreached.Store(true)
	h.end <- struct{}{}
	hand.pass()
	hand.waits() // the clock does not move after this
	a.unreached.Store(false)
	if _, refusal := r.call(m, "notes", "echo", `{}`); refusal != nil {
		t.Error(refusal)
	}
	r.until("the stream is reopened", func() bool { return h.listens.Load() == 2 })
}

// ambit asks the gateway before it renews a subscription, and ends the subscriptions that the gateway refuses.
func TestRefusedWatchIsNotRenewed(t *testing.T) {
	for name, client := range map[string]*call.Client{"shared": {Key: "one"}, "own": askable("one")} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			k := &keeper{}
			r.at("notes", []string{"echo"}, k)
			m := r.proven()
			var dropped atomic.Int32
			for uri, refusal := range map[string]error{
				"test://open": nil, "test://closed": call.Refuse("gate", call.PolicyDenied, "no"),
			} {
				_, err := m.Forward(t.Context(), &call.Forward{
					Server: "notes", Method: methodSubscribe, Params: jsontext.Value(`{"uri":"` + uri + `"}`), Client: client,
					Again:  func(context.Context) error { return refusal },
					OnDrop: func() { dropped.Add(1) },
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			k.forget()
			r.until("the server answers again", func() bool {
				_, refusal := r.call(m, "notes", "echo", `{}`)
				return refusal == nil
			})
			r.until("the open resource is watched again, and the closed one is dropped", func() bool {
				return k.count("resources/subscribe test://open") >= 2 && dropped.Load() > 0
			})
			s := m.servers["notes"]
			r.until("only the open resource is watched", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				n := len(s.watched)
				for _, a := range s.private {
					n += len(a.uris)
				}
				return n == 1
			})
			if n := k.count("resources/subscribe test://closed"); n != 1 {
				t.Errorf("the server got %d subscriptions to the closed resource, want 1", n)
			}
		})
	}
}

// One client's subscription is refused, and another client continues to watch the same resource.
func TestRefusedWatchOfOneClient(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	h := &herald{end: make(chan struct{})}
	r.at("notes", []string{"echo"}, h)
	m := r.proven()
	var refused [2]atomic.Bool
	for i := range refused {
		_, err := m.Forward(t.Context(), &call.Forward{
			Server: "notes", Method: methodSubscribe, Params: jsontext.Value(`{"uri":"test://note"}`), Client: &call.Client{Key: fmt.Sprint(i)},
			Again: func(context.Context) error {
				if refused[i].Load() {
					return call.Refuse("gate", call.PolicyDenied, "no")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s := m.servers["notes"]
	watchers := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w := s.watched["test://note"]; w != nil {
			return len(w.clients)
		}
		return 0
	}
	for i, left := range []int{1, 0} {
		refused[i].Store(true)
		h.end <- struct{}{} // the server ends the stream
		hand.waits()
		hand.pass()
		r.until("the refused subscription has ended", func() bool { return watchers() == left })
		if left > 0 {
			r.until("the stream is reopened", func() bool { return h.listens.Load() == 2 })
		}
	}
	if n := h.listens.Load(); n != 2 {
		t.Errorf("the server got %d requests, want 2", n)
	}
}
