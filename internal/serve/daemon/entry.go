package daemon

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/manifest"
)

// State is that of an agent on a daemon.
type State string

// The states.
const (
	Starting    State = "starting"
	Ready       State = "ready"
	Quarantined State = "quarantined"
	Failed      State = "failed"
	Rejected    State = "rejected"
)

// Running is an agent that was started.
type Running interface {
	// Ready waits until the agent is proven, or says why it is not.
	Ready(ctx context.Context) error
	// State is any but Rejected.
	State() State
	Proofs() []toolserver.Proof
	// Call takes a call through the agent's door.
	Call(ctx context.Context, c *call.Call) (call.Result, error)
	// ServeMCP answers a client.
	ServeMCP(w http.ResponseWriter, r *http.Request, principal string)
	Close()
}

// Starter starts an agent and returns at once. The context ends with the daemon.
type Starter func(ctx context.Context, name string, m *manifest.Manifest) Running

// entry is one agent of the fleet. Its life:
//
//	waiting → running ⇄ parked → retired
//
// It is started by whoever comes first: the fleet in its turn, or a request. A
// parked one was idle and is started again by the next request. A retired one
// takes no more requests and ends when those under way have.
type entry struct {
	Found
	start func() Running
	idle  time.Duration // 0: it is never parked
	ended func() error  // why no agent of this process can be called; nil if one can

	streams     context.Context // ends when it retires
	endStreams  context.CancelFunc
	mu          sync.Mutex
	running     Running
	users       int
	listeners   int // those of the users that only listen
	parked      bool
	retired     bool
	since       int           // counts visits, so that a late idle timer is noticed
	parking     *time.Timer   // runs while nobody is there; nil if nobody ever left
	noCalls     chan struct{} // closed when nobody is there any more who does not only listen
	nobodyThere chan struct{}
}

func newEntry(f Found, idle time.Duration, start func() Running) *entry {
	e := &entry{Found: f, start: start, idle: idle, ended: func() error { return nil }, noCalls: make(chan struct{}), nobodyThere: make(chan struct{})}
	e.streams, e.endStreams = context.WithCancel(context.Background())
	return e
}

// rejected reports whether the agent cannot be served at all.
func (e *entry) rejected() bool { return e.Problem != nil }

// state tells how the agent is, and why if it is not well.
func (e *entry) state() (State, string) {
	if e.rejected() {
		return Rejected, e.Problem.Error()
	}
	if err := e.ended(); err != nil {
		return Failed, err.Error()
	}
	e.mu.Lock()
	running, parked := e.running, e.parked
	e.mu.Unlock()
	switch {
	case parked:
		return Ready, ""
	case running == nil:
		return Starting, ""
	}
	s := running.State()
	if s == Failed || s == Quarantined {
		if err := running.Ready(over); err != nil && !errors.Is(err, context.Canceled) {
			return s, err.Error()
		}
		for _, p := range running.Proofs() {
			if !p.OK && p.Refusal != nil {
				return s, p.Refusal.Error()
			}
		}
	}
	return s, ""
}

// over is the context of a question that does not wait.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// proofs are what was found out about its servers.
func (e *entry) proofs() []toolserver.Proof {
	e.mu.Lock()
	running := e.running
	e.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.Proofs()
}

// enter lets a request in, and starts the agent if nobody has yet. It is false
// if the agent has retired: there is another by now, or none.
func (e *entry) enter() (running Running, leave func(), ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.retired || e.rejected() {
		return nil, nil, false
	}
	if e.running == nil {
		e.running, e.parked = e.start(), false
	}
	e.users++
	e.since++
	e.stay()
	return e.running, e.leave, true
}

func (e *entry) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users--
	switch {
	case e.retired:
		e.leaving()
	case e.users > 0:
	case e.idle > 0:
		visit := e.since
		e.parking = time.AfterFunc(e.idle, func() { e.park(visit) })
	}
}

// stay ends the wait for the agent to be idle. The caller holds the lock.
func (e *entry) stay() {
	if e.parking != nil {
		e.parking.Stop()
	}
}

// leaving tells who waits for an agent that retires how far it has come. The
// caller holds the lock.
func (e *entry) leaving() {
	over := func(c chan struct{}) {
		select {
		case <-c:
		default:
			close(c)
		}
	}
	if e.users == e.listeners {
		over(e.noCalls)
	}
	if e.users == 0 {
		over(e.nobodyThere)
	}
}

// park ends the servers of an agent that nobody has used since a visit.
func (e *entry) park(visit int) {
	e.mu.Lock()
	if e.since != visit || e.users > 0 || e.retired || e.running == nil || e.running.State() != Ready {
		e.mu.Unlock()
		return
	}
	running := e.running
	e.running, e.parked = nil, true
	e.mu.Unlock()
	running.Close()
}

// retire ends the agent: at once if nobody is there, and otherwise when the
// last has left or ctx has ended. Whoever listens is sent away at once, to come
// back to the agent's successor, or last, if there is none: a client whose stream
// is gone and does not come back gives its calls up too.
func (e *entry) retire(ctx context.Context, listenersLast bool) {
	e.mu.Lock()
	e.retired = true
	e.stay()
	e.leaving()
	e.mu.Unlock()
	if listenersLast {
		select {
		case <-e.noCalls:
		case <-ctx.Done():
		}
	}
	e.endStreams()
	select {
	case <-e.nobodyThere:
	case <-ctx.Done():
	}
	e.mu.Lock()
	running := e.running
	e.running = nil
	e.mu.Unlock()
	if running != nil {
		running.Close()
	}
}

// untilRetired is a context that also ends when the agent sends its listeners
// away.
func (e *entry) untilRetired(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.streams, cancel)
	e.listen(1)
	return ctx, func() {
		stop()
		cancel()
		e.listen(-1)
	}
}

func (e *entry) listen(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listeners += n; e.retired {
		e.leaving()
	}
}
