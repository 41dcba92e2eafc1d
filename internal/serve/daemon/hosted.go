package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/manifest"
)

// Hosting starts agents with their real servers.
type Hosting struct {
	// Host are the options of every agent; Name is filled in.
	Host host.Options
	// HTTP are the options of each agent's own HTTP front. Sessions are sealed, so that the
	// agent's successor accepts them.
	HTTP    front.HTTPOptions
	Metrics *Metrics
	// Turns bounds how many programs run at the same time; nil sets no bound.
	Turns Turns
	// Production refuses agents with a server that is not contained.
	Production bool
	// Log receives what the servers of an agent write.
	Log func(agent, alias, line string)
}

// Start is a [Starter].
func (h *Hosting) Start(ctx context.Context, name string, m *manifest.Manifest) Running {
	o := h.Host
	o.Name = name
	o.Contain = h.Production
	o.Log = func(alias, line string) { h.Log(name, alias, line) }
	a := &hosted{hosting: h, name: name}
	o.Front = func(f *front.Agent) {
		a.HTTP = front.NewHTTP(f, h.HTTP)
		a.metered = meteredGateway{f.Gateway, a}
		f.Gateway = a.metered
		ready := f.Ready
		f.Ready = func(ctx context.Context) error { return named(ready(ctx), name) }
	}
	a.Agent = host.Start(ctx, m, o)
	return a
}

// named makes the hint of a refusal name the agent instead of the manifest's path, which callers
// may not see.
func named(err error, name string) error {
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		return err
	}
	hint := call.HintFor(r.Hint, diag.ShellWord(name))
	if hint == r.Hint {
		return err
	}
	copied := *r // others may hold the same refusal
	copied.Hint = hint
	return &copied
}

// hosted is an agent with real servers and its HTTP front.
type hosted struct {
	*host.Agent
	*front.HTTP
	hosting *Hosting
	name    string
	metered meteredGateway
}

var _ Running = (*hosted)(nil)

func (a *hosted) State() State { return State(a.Agent.State()) }

func (a *hosted) Call(ctx context.Context, c *call.Call) (call.Result, error) {
	return a.metered.Call(ctx, c)
}

func (a *hosted) Close() {
	a.HTTP.Close()
	a.Agent.Close()
}

// meteredGateway counts the calls of an agent, and makes calls of programs wait for their turn.
type meteredGateway struct {
	front.Gateway
	agent *hosted
}

func (g meteredGateway) Call(ctx context.Context, c *call.Call) (result call.Result, err error) {
	ended := g.agent.hosting.Metrics.Began(g.agent.name, c.Tool)
	defer func() {
		err = named(err, g.agent.name)
		ended(decisionOf(err))
	}()
	done, err := g.agent.hosting.turn(ctx, g.agent.Manifest().Agent(), c)
	if err != nil {
		return g.agent.Refuse(ctx, c, notItsTurn(err))
	}
	defer done()
	return g.Gateway.Call(ctx, c)
}

// decisionOf returns a call's decision and refusal code for the metrics.
func decisionOf(err error) (decision, code string) {
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

func (g meteredGateway) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	answer, err := g.Gateway.Forward(ctx, f)
	return answer, named(err, g.agent.name)
}

// Timed counts the transactions of a store.
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
