//go:build linux

package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// upstream is an HTTP tool server that can misbehave.
type upstream struct {
	h       *fixture
	manner  atomic.Value // a string that determines how the server answers calls of the tool pay
	release chan struct{}
}

// newUpstream returns a server and the wire between the server and the agent that uses it. The server's
// field h is a fixture with this agent.
func newUpstream(t *testing.T) (*upstream, *wire) {
	t.Helper()
	u := &upstream{h: newFixture(t, "-", 0), release: make(chan struct{})}
	u.manner.Store("")
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	w := newWire(t, server.Listener.Addr().String())
	u.h.declare(map[string]any{"transport": "http", "endpoint": "http://" + w.address() + "/mcp"}, 2000)
	return u, w
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct{ Name string }
	}
	body, err := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || err != nil || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	reply := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	introduce(m.Method, reply)
	answer, err := json.Marshal(reply)
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
	if m.Params.Name == "pay" {
		u.paid()
		switch u.manner.Load() {
		case "late":
			select {
			case <-u.release:
			case <-r.Context().Done():
				return
			}
		case "cut":
			_, _ = w.Write(answer[:len(answer)/2])
			panic(http.ErrAbortHandler)
		case "dripping":
			for i := range answer {
				_, _ = w.Write(answer[i : i+1])
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
					return
				}
			}
			return
		}
	}
	_, _ = w.Write(answer)
}

// paid records the effect of a call.
func (u *upstream) paid() {
	f, err := os.OpenFile(u.h.effects, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		u.h.t.Error(err)
		return
	}
	defer f.Close()
	fmt.Fprintln(f, "paid")
}

// wire forwards connections until the test breaks it. Then the connections stay open but transfer no
// data, and neither end is notified. The same happens when a machine loses power or a firewall drops its
// state.
type wire struct {
	t      *testing.T
	listen net.Listener
	to     string
	broken atomic.Bool
	mu     sync.Mutex
	open   []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, listen: listen, to: to}
	t.Cleanup(func() {
		listen.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range w.open {
			c.Close()
		}
	})
	go func() {
		for {
			c, err := listen.Accept()
			if err != nil {
				return
			}
			go w.carry(c)
		}
	}()
	return w
}

func (w *wire) address() string { return w.listen.Addr().String() }

func (w *wire) carry(near net.Conn) {
	network := "tcp"
	if strings.HasPrefix(w.to, "/") {
		network = "unix"
	}
	far, err := net.Dial(network, w.to)
	if err != nil {
		near.Close()
		return
	}
	w.mu.Lock()
	w.open = append(w.open, near, far)
	w.mu.Unlock()
	var dead atomic.Bool
	pass := func(from, to net.Conn) {
		for buffer := make([]byte, 32<<10); ; {
			n, err := from.Read(buffer)
			if w.broken.Load() {
				dead.Store(true)
			}
			if dead.Load() {
				if err != nil {
					return // do not close the other side
				}
				continue
			}
			if _, e := to.Write(buffer[:n]); e != nil || err != nil {
				to.Close()
				return
			}
		}
	}
	go pass(near, far)
	pass(far, near)
}

// TestUpstream calls a server that misbehaves. The call must end in time with an unknown outcome, and it must not
// be repeated. The next call must work when the server recovers.
func TestUpstream(t *testing.T) {
	for _, manner := range []string{"late", "cut", "dripping"} {
		t.Run(manner, func(t *testing.T) {
			u, _ := newUpstream(t)
			d := u.h.serve()
			u.manner.Store(manner)
			a, err := d.pay()
			if err != nil || a.Error.Effect != "unknown" || a.Error.Message == "" {
				t.Errorf("the caller got %+v, %v", a, err)
			}
			if got := u.h.decisions(); !slices.Equal(got, []string{"unknown"}) {
				t.Errorf("the journal has the decisions %v, want one unknown", got)
			}
			want := []string{"unknown"}
			if manner == "late" {
				close(u.release)
				want = append(want, "allow") // the late answer settles the call
			}
			u.manner.Store("")
			u.h.until("the journal has the outcome", func() bool { return slices.Equal(u.h.decisions(), want) })
			u.h.until("the next call works", func() bool { a, err := d.pay(); return err == nil && a.status == 200 })
			if n, calls := u.h.done(), len(u.h.decisions())-len(want)+1; n != calls {
				t.Errorf("there were %d effects, but %d calls", n, calls)
			}
			u.h.whole()
		})
	}
}

// TestHalfOpenUpstream cuts off the server without closing the connection. The outcome of the first call is
// unknown, because the call may have arrived. Later calls use new connections.
func TestHalfOpenUpstream(t *testing.T) {
	u, w := newUpstream(t)
	d := u.h.serve()
	if a, err := d.pay(); err != nil || a.status != 200 {
		t.Fatalf("the first call returned %+v, %v", a, err)
	}
	w.broken.Store(true)
	a, err := d.pay()
	if err != nil || a.Error.Effect != "unknown" || a.Error.Code != "timed_out" {
		t.Errorf("the caller got %+v, %v", a, err)
	}
	if a, err := d.call("look"); err != nil || a.Error.Code != "timed_out" || a.Error.Effect != "none" {
		t.Errorf("the caller of look got %+v, %v", a, err)
	}
	w.broken.Store(false)
	tries := 0
	u.h.until("calls work again", func() bool { tries++; a, err := d.pay(); return err == nil && a.status == 200 })
	t.Logf("%d calls until one arrived", tries)
	if n := u.h.done(); n != 2 {
		t.Errorf("there were %d effects, want 2: one for each call that arrived", n)
	}
	u.h.whole()
}
