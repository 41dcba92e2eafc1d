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

// State is the state of an agent on a daemon.
type State string

const (
	Starting    State = "starting"
	Ready       State = "ready"
	Quarantined State = "quarantined"
	Failed      State = "failed"
	Rejected    State = "rejected"
)

// Running is a started agent.
type Running interface {
	// Ready waits until the agent is proven, or returns why it is not.
	Ready(ctx context.Context) error
	// State is never Rejected.
	State() State
	Proofs() []toolserver.Proof
	// Call makes a call through the agent's gateway.
	Call(ctx context.Context, c *call.Call) (call.Result, error)
	// Serve answers an MCP client.
	Serve(w http.ResponseWriter, r *http.Request, principal string)
	Close()
}

// Starter starts an agent without waiting for it. The context ends with the daemon.
type Starter func(ctx context.Context, name string, m *manifest.Manifest) Running

// entry is one agent of the fleet. Its states:
//
//	waiting → running ⇄ parked → retired
//
// The fleet or the first request starts it. An idle agent is parked, and the next request starts it
// again. A retired agent accepts no more requests and ends when the open ones have ended.
type entry struct {
	Found
	start func() Running
	idle  time.Duration // 0: never parked
	ended func() error  // why no agent of this process can be called; nil if agents can

	streams    context.Context // ends when the agent retires
	endStreams context.CancelFunc
	mu         sync.Mutex
	running    Running
	users      int
	listeners  int // the users that only listen
	parked     bool
	retired    bool
	visits     int           // lets a late idle timer notice newer visits
	parking    *time.Timer   // runs while there are no users; nil before the first left
	noCalls    chan struct{} // closed when all remaining users only listen
	noUsers    chan struct{}
}

func newEntry(f Found, idle time.Duration, start func() Running) *entry {
	e := &entry{Found: f, start: start, idle: idle, ended: func() error { return nil }, noCalls: make(chan struct{}), noUsers: make(chan struct{})}
	e.streams, e.endStreams = context.WithCancel(context.Background())
	return e
}

func (e *entry) rejected() bool { return e.Problem != nil }

// state returns the agent's state, and the reason if it is not well.
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
		if err := running.Ready(alreadyCancelled); err != nil && !errors.Is(err, context.Canceled) {
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

// alreadyCancelled is for checks that must not wait.
var alreadyCancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// proofs returns the proofs of the agent's servers.
func (e *entry) proofs() []toolserver.Proof {
	e.mu.Lock()
	running := e.running
	e.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.Proofs()
}

// enter counts a request and starts the agent if necessary. It returns false if the agent has
// retired: there may be a successor.
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
	e.visits++
	e.stopParking()
	return e.running, e.leave, true
}

func (e *entry) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users--
	switch {
	case e.retired:
		e.signal()
	case e.users > 0:
	case e.idle > 0:
		visit := e.visits
		e.parking = time.AfterFunc(e.idle, func() { e.park(visit) })
	}
}

// stopParking stops the idle timer. The caller holds the lock.
func (e *entry) stopParking() {
	if e.parking != nil {
		e.parking.Stop()
	}
}

// signal notifies the retiring of an agent about its remaining users. The caller holds the lock.
func (e *entry) signal() {
	closeOnce := func(c chan struct{}) {
		select {
		case <-c:
		default:
			close(c)
		}
	}
	if e.users == e.listeners {
		closeOnce(e.noCalls)
	}
	if e.users == 0 {
		closeOnce(e.noUsers)
	}
}

// park stops the servers of an agent that has not been used since a visit.
func (e *entry) park(visit int) {
	e.mu.Lock()
	if e.visits != visit || e.users > 0 || e.retired || e.running == nil || e.running.State() != Ready {
		e.mu.Unlock()
		return
	}
	running := e.running
	e.running, e.parked = nil, true
	e.mu.Unlock()
	running.Close()
}

// retire ends the agent when its last user has left, or when ctx ends. Listeners are disconnected
// first, to reconnect to the successor; without a successor they are disconnected last, because a
// client whose stream is lost gives up its calls too.
func (e *entry) retire(ctx context.Context, listenersLast bool) {
	e.mu.Lock()
	e.retired = true
	e.stopParking()
	e.signal()
	e.mu.Unlock()
	if listenersLast {
		select {
		case <-e.noCalls:
		case <-ctx.Done():
		}
	}
	e.endStreams()
	select {
	case <-e.noUsers:
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

// untilRetired returns a context that also ends when the agent disconnects its listeners.
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
		e.signal()
	}
}
