package daemon

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/manifest"
)

// Hosting starts agents together with their tool servers.
type Hosting struct {
	// Host contains the options that all agents share. Start sets Name, Contain, UnconfinedServers, Log and
	// Front for each agent separately.
	Host host.Options
	// Unconfined maps the name of an agent to the aliases of the agent's tool servers that run without a sandbox.
	Unconfined map[string][]string
	// HTTP contains the options of each agent's HTTP front. All agents use the same session keys, so a reloaded agent
	// accepts the sessions of its predecessor.
	HTTP    front.HTTPOptions
	Metrics *Metrics
	// Turns limits how many programs run at the same time. Nil means no limit.
	Turns Turns
	// If Production is true, servers that cannot run in a sandbox are refused. See [host.Options].
	Production bool
	// Log receives the output and the state changes of the agents' servers.
	Log func(agent, alias, line string)
}

// Start starts an agent. It is a [Starter].
func (h *Hosting) Start(ctx context.Context, name string, m *manifest.Manifest) Running {
	o := h.Host
	o.Name = name
	o.Contain, o.UnconfinedServers = h.Production, h.Unconfined[name]
	o.Log = func(alias, line string) { h.Log(name, alias, line) }
	o.OnDenial = func(d toolserver.Denial) { h.Metrics.denied(name, d) }
	a := &hosted{hosting: h, name: name}
	o.Front = func(f *front.Agent) {
		a.HTTP = front.NewHTTP(f, h.HTTP)
		a.metered = meteredGateway{f.Gateway, a}
		f.Gateway = a.metered
		ready := f.Ready
		f.Ready = func(ctx context.Context) error { return WithManifest(ready(ctx), name) }
	}
	a.Agent = host.Start(ctx, m, o)
	return a
}

// WithManifest appends a refusal's command to the refusal's hint. It inserts the given name or path of the agent's
// manifest into the command. The daemon passes the name, because callers do not need to know the path. WithManifest
// returns other errors unchanged.
func WithManifest(err error, manifest string) error {
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		return err
	}
	renamed := *r // change a copy, because other calls may share the refusal
	renamed.Hint, renamed.Command = r.HintFor(manifest), diag.Command{}
	return &renamed
}

// hosted is a started agent with its tool servers and its HTTP front.
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

func (a *hosted) ServeJoined(ctx context.Context, principal string, in io.Reader, out io.Writer) error {
	return front.ServeJoined(ctx, a.Front(), principal, in, out)
}

func (a *hosted) Close() {
	a.HTTP.Close()
	a.Agent.Close()
}

// meteredGateway counts the calls of an agent. A call to a program first waits until the program is allowed to run; see
// [Hosting.Turns].
type meteredGateway struct {
	front.Gateway
	agent *hosted
}

func (g meteredGateway) Call(ctx context.Context, c *call.Call) (result call.Result, err error) {
	ended := g.agent.hosting.Metrics.Began(g.agent.name, c.Tool)
	defer func() {
		err = WithManifest(err, g.agent.name)
		ended(decisionOf(result.IsError, err))
	}()
	done, err := g.agent.hosting.turn(ctx, g.agent.Manifest().Agent(), c)
	if err != nil {
		return g.agent.Refuse(ctx, c, notItsTurn(err))
	}
	defer done()
	return g.Gateway.Call(ctx, c)
}

// decisionOf returns the decision and the code that are recorded in the metrics for a call that returned err.
func decisionOf(toolError bool, err error) (decision, code string) {
	r, ok := errors.AsType[*call.Refusal](err)
	if err != nil && !ok {
		return string(journal.Deny), otherLabel
	}
	if r != nil {
		code = string(r.Code)
	}
	return string(gateway.DecisionOf(toolError, r)), code
}

func (g meteredGateway) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	answer, err := g.Gateway.Forward(ctx, f)
	return answer, WithManifest(err, g.agent.name)
}

// Timed returns a DB that records the duration of each write transaction of db in the metrics. It also sets db as the
// source of the metrics that come from the store.
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
