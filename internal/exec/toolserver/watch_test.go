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

// isWatched counts subscriptions on shared and own connections.
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
				t.Error("it is watched before any client subscribes")
			}
			r.watches(m, client, "test://note")
			if !watched() {
				t.Error("it is not watched")
			}
			_, err := m.Forward(t.Context(), &call.Forward{Server: "notes", Method: "resources/unsubscribe", Params: jsontext.Value(`{"uri":"test://note"}`), Client: client})
			if err != nil || watched() {
				t.Errorf("after the end: %v, watched %t", err, watched())
			}
		})
	}
}

// A lost session of a client's own connection renews the subscriptions of that client only; a reopened
// stream renews none.
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
		k.gone = 2 + i // the first session is the shared one
		k.mu.Unlock()
		if _, refusal := r.act(t.Context(), m, "notes", "echo", &call.Call{Arguments: jsontext.Value("{}"), Client: askable(fmt.Sprint(i))}); refusal != nil {
			t.Fatal(refusal)
		}
		r.until("it is asked again", func() bool { return k.count(fmt.Sprint("resources/subscribe test://", i)) >= 2 })
	}
	for i := range clients {
		if n := k.count(fmt.Sprint("resources/subscribe test://", i)); n != 2 {
			t.Errorf("client %d lost its session once, and its watch was asked for %d times", i, n)
		}
	}
}

// A client that subscribes while another subscription is pending gets the server's answer, also if the
// first client has gone, and not before that answer.
func TestSecondWatcherGetsTheAnswer(t *testing.T) {
	for _, tt := range []struct {
		name       string
		status     int
		secondGoes bool
		kept, ends int // watches, and unsubscriptions
	}{
		{"yes", http.StatusOK, false, 1, 0},
		{"no", http.StatusForbidden, false, 0, 1},
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
					return len(w.by)
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
				t.Error("the first was answered before the server was")
			}
			if tt.secondGoes {
				secondGoes()
				<-second
			}
			select {
			case err := <-second:
				t.Fatalf("the second was answered before the server was, with %v", err)
			case k.hold <- tt.status:
			}
			if !tt.secondGoes {
				if err := <-second; (err == nil) != (tt.status == http.StatusOK) {
					t.Errorf("the second got %v", err)
				}
			}
			r.until("the server knows of the end", func() bool { return k.count("resources/unsubscribe test://note") == tt.ends })
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.watched) != tt.kept || k.count("resources/subscribe test://note") != 1 {
				t.Errorf("%d watches are kept, the server was asked %d times", len(s.watched), k.count("resources/subscribe test://note"))
			}
		})
	}
}

// A session that is lost between calls is noticed by its stream.
func TestIdleWatcherIsNotForgotten(t *testing.T) {
	for name, client := range map[string]*call.Client{"shared": {Key: "one"}, "own": askable("one")} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			k := &keeper{streams: make(chan struct{})}
			r.at("notes", []string{"echo"}, k)
			r.watches(r.proven(), client, "test://note")
			k.forget()
			r.until("it is asked again", func() bool { return k.count("resources/subscribe test://note") >= 2 })
		})
	}
}

// herald is a server of the newer generation with silent streams.
type herald struct {
	listens atomic.Int32
	end     chan struct{} // takes one for each stream that is to end
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

// A stream that the server ends is reopened, less and less often.
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
			t.Errorf("after %d times it waits for %v, want %v or a little less; it was asked %d times", n, got, want, h.listens.Load())
		}
		want = min(2*want, longestPause)
		hand.pass()
	}
	// A stream that lasted long resets the pause.
	r.until("it is asked again", func() bool { return h.listens.Load() == 12 })
	hand.advance(2 * longestPause)
	h.end <- struct{}{}
	if got := hand.waits(); got > firstPause {
		t.Errorf("it waits for %v", got)
	}
	hand.pass()
	r.until("it is asked again", func() bool { return h.listens.Load() == 13 })
	m.Release("one") // and no request follows
}

// away is a network on which subscriptions do not reach their server.
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

// A subscription at an unreachable server is renewed by the next call at the latest.
func TestWatchIsBegunAgainByACall(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	h := &herald{end: make(chan struct{})}
	r.at("notes", []string{"echo"}, h)
	a := &away{RoundTripper: http.DefaultTransport}
	r.o.Servers = declared(r.agent)
	r.o.Servers[0].RoundTripper = a
	m := r.proven()
	r.watches(m, &call.Client{Key: "one"}, "test://note")
	r.until("it is watched", func() bool { return h.listens.Load() == 1 })
	a.unreached.Store(true)
	h.end <- struct{}{}
	hand.pass()
	hand.waits() // and the clock does not move from here on
	a.unreached.Store(false)
	if _, refusal := r.call(m, "notes", "echo", `{}`); refusal != nil {
		t.Error(refusal)
	}
	r.until("it is asked again", func() bool { return h.listens.Load() == 2 })
}
