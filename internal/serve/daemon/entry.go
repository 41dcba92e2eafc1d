package daemon

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/identity"
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
	// Ready waits until the agent is verified. It returns an error if the agent cannot be verified.
	Ready(ctx context.Context) error
	// State returns the agent's state, which is never Rejected.
	State() State
	Proofs() []toolserver.Proof
	Denials() []toolserver.Denial
	// Recover takes over the calls of processes that died.
	Recover()
	// Call makes a call through the agent's gateway.
	Call(ctx context.Context, c *call.Call) (call.Result, error)
	// SignInTarget returns the key under which the sign-in of a principal to a remote server is stored. The second
	// result is false if there is no such server.
	SignInTarget(server, principal string) (signin.Target, bool)
	// UI returns the agent's web pages and the name of the first page. If the agent has no web pages, pages is nil.
	UI() (pages fs.FS, first string)
	// Serve answers a request from an MCP client. The attributes come from the principal's verified credential.
	Serve(w http.ResponseWriter, r *http.Request, principal string, attributes *identity.Attributes)
	// Shareable returns nil if the agent can serve a client of "ambit run". See [host.Agent.Shareable].
	Shareable(g host.Guest) error
	// ServeJoined serves a client of "ambit run" until its input ends or ctx is done.
	ServeJoined(ctx context.Context, principal string, in io.Reader, out io.Writer) error
	Close()
}

// Starter starts an agent but does not wait until the agent is verified. The context is canceled when the daemon stops.
type Starter func(ctx context.Context, name string, m *manifest.Manifest) Running

// entry is one agent of the fleet. Its states are:
//
//	waiting → running ⇄ parked → retired
//
// The fleet or the first request starts the agent. An agent that is idle for some time is parked, which means that
// its servers are stopped. The next request starts the servers again. A retired agent accepts no new requests. It is
// closed after its open requests have ended.
type entry struct {
	Found
	start func() Running
	idle  time.Duration // 0 means that the agent is never parked
	ended func() error  // returns an error if this process can no longer handle calls

	streams    context.Context // ends when the agent retires
	endStreams context.CancelFunc
	mu         sync.Mutex
	running    Running
	users      int
	listeners  int // the number of users that only listen for notifications, not for answers
	parked     bool
	retired    bool
	visits     int         // the number of requests since the start
	parking    *time.Timer // the idle timer, which starts when the last user leaves; nil before that
	fewer      *sync.Cond  // signals changes of users and listeners
}

func newEntry(f Found, idle time.Duration, start func() Running) *entry {
	e := &entry{Found: f, start: start, idle: idle, ended: func() error { return nil }}
	e.fewer = sync.NewCond(&e.mu)
	e.streams, e.endStreams = context.WithCancel(context.Background())
	return e
}

func (e *entry) rejected() bool { return e.Problem != nil }

// state returns the agent's state. If the agent does not work, the second result is the reason.
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
		now, cancel := context.WithCancel(context.Background())
		cancel() // an ended context makes Ready return at once
		if err := running.Ready(now); err != nil && !errors.Is(err, context.Canceled) {
			return s, err.Error()
		}
		var why []string
		for _, p := range running.Proofs() {
			if !p.OK && p.Refusal != nil {
				why = append(why, p.Refusal.Error())
			}
		}
		return s, strings.Join(why, "; ")
	}
	return s, ""
}

func (e *entry) proofs() []toolserver.Proof {
	e.mu.Lock()
	running := e.running
	e.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.Proofs()
}

func (e *entry) denials() []toolserver.Denial {
	e.mu.Lock()
	running := e.running
	e.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.Denials()
}

// enter registers a request as a user of the agent and starts the agent if necessary. The caller must call leave when
// the request has been answered. The last result is false if the agent is rejected or has retired. If the agent has
// retired, the caller can look for its successor.
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

// recover lets the agent take over the calls of processes that died, if it is running.
func (e *entry) recover() (ok bool) {
	e.mu.Lock()
	running := e.running
	if running != nil {
		e.users++
		e.visits++
		e.stopParking()
	}
	e.mu.Unlock()
	if running == nil {
		return false
	}
	defer e.leave()
	running.Recover()
	return true
}

func (e *entry) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users--
	e.fewer.Broadcast()
	if !e.retired && e.users == 0 && e.idle > 0 {
		visit := e.visits
		e.parking = time.AfterFunc(e.idle, func() { e.park(visit) })
	}
}

// stopParking stops the idle timer. The caller must hold the mutex.
func (e *entry) stopParking() {
	if e.parking != nil {
		e.parking.Stop()
	}
}

// park stops the agent's servers. It does nothing if another request has used the agent since the given visit.
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

// retire closes the agent after its last user has left, or when ctx is done. If the agent has a successor, the caller
// sets listenersLast to false. In this case, the agent disconnects its listeners first, and they reconnect to the
// successor. If listenersLast is true, the agent disconnects its listeners only after all calls have ended, because a
// client that loses its stream would cancel its calls.
func (e *entry) retire(ctx context.Context, listenersLast bool) {
	defer context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.fewer.Broadcast()
	})()
	e.mu.Lock()
	e.retired = true
	e.stopParking()
	for listenersLast && e.users > e.listeners && ctx.Err() == nil {
		e.fewer.Wait()
	}
	e.endStreams()
	for e.users > 0 && ctx.Err() == nil {
		e.fewer.Wait()
	}
	running := e.running
	e.running = nil
	e.mu.Unlock()
	if running != nil {
		running.Close()
	}
}

// untilRetired registers a listener and returns a context for it. The context is canceled when the parent context is
// canceled or when the agent disconnects its listeners. The caller must call the returned function when the listener
// has left.
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
	e.listeners += n
	e.fewer.Broadcast()
}
