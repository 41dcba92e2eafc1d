package daemon

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/manifest"
)

// Hosting brings agents to life with their real servers.
type Hosting struct {
	// Host is what every agent is started with; its name is filled in.
	Host host.Options
	// HTTP is how agents face their clients. Each that is started has a face of
	// its own, so that nothing of a session is left with an agent that is gone;
	// the session itself is sealed, and its successor takes it.
	HTTP    front.HTTPOptions
	Metrics *Metrics
	// Turns bounds how many programs run at the same time; nil does not.
	Turns Turns
	// Production refuses agents with a server that is not contained.
	Production bool
	// Log is told what the servers of an agent write.
	Log func(agent, alias, line string)
}

// Start is a [Starter].
func (h *Hosting) Start(ctx context.Context, name string, m *manifest.Manifest) Running {
	o := h.Host
	o.Name = name
	o.Contain = h.Production
	o.Log = func(alias, line string) { h.Log(name, alias, line) }
	a := &hosted{hosting: h, name: name, face: front.NewHTTP(h.HTTP)}
	o.Front = func(f *front.Agent) {
		a.door = watchedDoor{f.Door, a}
		f.Door = a.door
		ready := f.Ready
		f.Ready = func(ctx context.Context) error { return named(ready(ctx), name) }
	}
	a.Agent = host.Start(ctx, m, o)
	return a
}

// named returns a refusal whose hint names the agent. Callers need not know the path
// of its manifest.
func named(err error, name string) error {
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		return err
	}
	renamed := *r // other calls may share the refusal
	renamed.Hint, renamed.Command = r.HintFor(name), diag.Command{}
	return &renamed
}

// hosted is an agent with real servers.
type hosted struct {
	*host.Agent
	hosting *Hosting
	name    string
	face    *front.HTTP
	door    watchedDoor
}

var _ Running = (*hosted)(nil)

func (a *hosted) State() State { return State(a.Agent.State()) }

func (a *hosted) Call(ctx context.Context, c *call.Call) (call.Result, error) {
	return a.door.Call(ctx, c)
}

func (a *hosted) ServeMCP(w http.ResponseWriter, r *http.Request, principal string) {
	a.face.Serve(w, r, a.Front(), principal)
}

func (a *hosted) Close() {
	a.face.Close()
	a.Agent.Close()
}

// watchedDoor is the agent's gateway as the daemon counts its use.
type watchedDoor struct {
	front.Door
	agent *hosted
}

func (d watchedDoor) Call(ctx context.Context, c *call.Call) (result call.Result, err error) {
	ended := d.agent.hosting.Metrics.Began(d.agent.name, c.Tool)
	defer func() {
		err = named(err, d.agent.name)
		ended(judged(err))
	}()
	done, err := d.agent.hosting.turn(ctx, d.agent.Manifest().Agent(), c)
	if err != nil {
		return d.agent.Refuse(ctx, c, notItsTurn(err))
	}
	defer done()
	return d.Door.Call(ctx, c)
}

// judged is a call's decision and refusal code, for the metrics.
func judged(err error) (decision, code string) {
	if err == nil {
		return decisionAllow, ""
	}
	r, ok := errors.AsType[*call.Refusal](err)
	switch {
	case !ok:
		return "deny", other
	case r.Effect == call.EffectUnknown:
		return "unknown", string(r.Code)
	}
	return "deny", string(r.Code)
}

func (d watchedDoor) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	answer, err := d.Door.Forward(ctx, f)
	return answer, named(err, d.agent.name)
}

// Timed is a store whose transactions are counted.
func (m *Metrics) Timed(db state.DB) state.DB {
	m.db.Store(&db)
	return timedDB{db, m}
}

type timedDB struct {
	state.DB
	metrics *Metrics
}

func (t timedDB) Write(ctx context.Context, f func(state.Tx) error) error {
	start := time.Now()
	err := t.DB.Write(ctx, f)
	t.metrics.store.Observe(time.Since(start).Seconds())
	return err
}
