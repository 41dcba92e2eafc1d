// Package gateway judges, carries out and records calls: every call of every agent
// goes through [Gateway.Call], and there is no other way to a tool.
//
// A call passes the stages of one list in order. Each stage is a file of its own and can
// stop the call with a typed refusal. The outcome is recorded either way, and the answer
// is released only when the record is durable. docs/call-lifecycle.md shows the states
// of a call and the effect of a crash in each.
//
// A [call.Binding] carries out the call. Only the gateway has access to it.
package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Options configure a gateway.
type Options struct {
	// Name is the name that the agent runs under; empty means the slug of its name.
	Name string
	// Binding carries out the calls that pass.
	Binding call.Binding
	// Shut is the refusal of every call, for a gateway that only judges and records. A
	// repeated call still gets its answer.
	Shut *call.Refusal
	// Books is the store with the journal. Without it a gateway can only explain
	// decisions; NoBooks is then the reason for refusing calls.
	Books   *store.Store
	NoBooks error
	// Learned returns the agent with its known tools. While tools are being looked up, it
	// waits until ctx ends and then returns a refusal. Nil if the agent's tools do not
	// change.
	Learned func(ctx context.Context) (*agent.Agent, *call.Refusal)
	// Rules are checked by the gate besides the manifest.
	Rules gate.Rules
	// Expose lists the kinds of requests to forward although no manifest declares them.
	Expose Exposed
	// Operator are the guardrails of every agent.
	Operator guard.Operator
	// Known returns the credentials that no result may contain. Every scan calls it.
	Known func() ([]guard.Known, error)
	// Participants take part in the two transactions of every call.
	Participants []Participant
	// Quotas bound the calls of principals to all agents together; nil means no bound.
	Quotas    *limit.Quotas
	Approvals Approvals
	// OnAsk is called when a call waits for a person.
	OnAsk func(message string)
}

// Approvals say how a person approves calls.
type Approvals struct {
	// TTL is how long a person has to approve a call; 0 means 10 minutes.
	TTL time.Duration
	// TrustElicitation counts the answer of the person at the client.
	TrustElicitation bool
}

// Participant writes rows of its own in the two transactions of a call, so that
// they are durable exactly if the call's own rows are. Programs have two: the
// queue of intents and the memory.
type Participant interface {
	// Begin runs last in the transaction that commits to a call. A refusal or an
	// error undoes that transaction.
	Begin(tx state.Tx, c *call.Call) (*call.Refusal, error)
	// Record runs in the transaction that records the outcome of a call. An error undoes
	// the record.
	Record(tx state.Tx, c *call.Call, o call.Outcome) error
}

// Gateway carries out the calls of one agent.
type Gateway struct {
	agent   *agent.Agent
	learned func(context.Context) (*agent.Agent, *call.Refusal)
	name    string
	binding call.Binding
	store   *store.Store
	noStore error
	rules   gate.Rules
	expose  Exposed
	guards  *guards
	quotas  *limit.Quotas
	shut    *call.Refusal

	approvals    Approvals
	onAsk        func(string)
	participants []Participant

	late      sync.WaitGroup // answers that may still come
	closing   chan struct{}
	closed    sync.Once
	lateGrace time.Duration
}

// New makes the gateway of an agent.
func New(a *agent.Agent, o Options) *Gateway {
	if o.Name == "" {
		o.Name = agent.Slug(a.Name)
	}
	if o.Approvals.TTL == 0 {
		o.Approvals.TTL = defaultApprovalTTL
	}
	if o.Learned == nil {
		o.Learned = func(context.Context) (*agent.Agent, *call.Refusal) { return a, nil }
	}
	if o.NoBooks == nil {
		o.NoBooks = errors.New("there is no store to record the call in")
	}
	return &Gateway{
		agent: a, learned: o.Learned, name: o.Name, binding: o.Binding, store: o.Books, noStore: o.NoBooks,
		rules: o.Rules, expose: o.Expose, quotas: o.Quotas, shut: o.Shut, guards: newGuards(a, o),
		approvals: o.Approvals, onAsk: o.OnAsk, participants: o.Participants,
		lateGrace: lateGrace, closing: make(chan struct{}),
	}
}

// Agent returns the agent with its known tools, without waiting.
func (g *Gateway) Agent() *agent.Agent {
	a, _ := g.learned(alreadyCancelled)
	return a
}

var alreadyCancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Name returns the name that the agent runs under.
func (g *Gateway) Name() string { return g.name }

// Close waits for late answers. Callers close the bindings first, so that the wait ends.
func (g *Gateway) Close() {
	g.closed.Do(func() { close(g.closing) })
	g.late.Wait()
}

// inflight is a call on its way through the stages.
type inflight struct {
	*call.Call
	start time.Time
	tool  *agent.Tool
	// canonical are the arguments in canonical JSON.
	canonical []byte
	// forwarded are the canonical arguments to send, if some were redacted.
	forwarded []byte
	// checked is set once the guardrails have passed the arguments and redacted personal data.
	checked bool
	// notes are the findings of the guards, for the journal.
	notes []string
	// taken is the time when the call was counted towards its limits; zero before.
	taken time.Time
	// intended is set once an intent is in the store.
	intended bool
	// resent is set if a process that has exited sent the call before.
	resent bool
	// approval is the id of the approval that intend uses.
	approval string
	// replayed is the earlier call whose answer this one gets.
	replayed string
	result   call.Result
	// late delivers an answer after the timeout; wasUnknown is set once it has.
	late       <-chan call.Outcome
	wasUnknown bool
}

// stage lets a call pass or stops it.
type stage struct {
	name string
	run  func(*Gateway, context.Context, *inflight) *call.Refusal
}

// stages are all stages in order. A stage that stops or answers a call ends the list;
// record follows in any case.
var stages = []stage{
	{stageAdmit, admit},
	{stageResolve, resolveStage},
	{gate.Stage, gateStage},
	{guard.StageIn, guardIn},
	{stageRemember, remember},
	{stageShut, shut},
	{stageLimit, limits},
	{stageApprove, approve},
	{stageLimit, quota},
	{stageIntend, intend},
	{stageAct, act},
	{guard.StageOut, guardOut},
}

// shut stops a call that was refused before it came here, and every call if the
// gateway only judges and records.
func shut(g *Gateway, _ context.Context, p *inflight) *call.Refusal {
	why := cmp.Or(p.Refused, g.shut)
	if why == nil {
		return nil
	}
	own := *why // other calls share this refusal
	return g.guards.redact(&own)
}

// Call makes a call, or returns a *call.Refusal.
func (g *Gateway) Call(ctx context.Context, c *call.Call) (call.Result, error) {
	if stopped := g.unrecorded(); stopped != nil {
		return call.Result{}, stopped
	}
	if c.ID == "" {
		c.ID = NewID()
	}
	defer g.store.Journal.Enter()()
	p := &inflight{Call: c, start: time.Now()}
	var stopped *call.Refusal
	begun := false
	for _, s := range stages {
		begun = begun || s.name == stageAct
		if stopped = s.run(g, ctx, p); stopped != nil || p.replayed != "" {
			break
		}
	}
	if stopped != nil && !begun {
		stopped.Unsent = true
	}
	p.result.Duration = time.Since(p.start)
	if stopped = g.record(p, stopped); stopped != nil {
		return call.Result{}, stopped
	}
	return p.result, nil
}

// unrecorded refuses a call that could not be recorded.
func (g *Gateway) unrecorded() *call.Refusal {
	if g.store == nil {
		return call.Refuse(stageRecord, call.StoreUnavailable, "%v", g.noStore)
	}
	if err := g.store.Journal.HandedOver(); err != nil {
		return StoreFailed(stageRecord, err)
	}
	return nil
}

// sent returns the canonical arguments to send.
func (p *inflight) sent() []byte {
	if p.forwarded != nil {
		return p.forwarded
	}
	return p.canonical
}

// nameOf returns the name of a tool in messages and in the journal.
func nameOf(t *agent.Tool) string {
	if t.URI != nil {
		return t.URI.String()
	}
	return t.Name
}

func resolveStage(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	who, stopped := g.learned(ctx)
	if stopped == nil {
		p.tool, stopped = resolve(who, p.Tool)
	}
	return stopped
}

func gateStage(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	d := gate.Decide(ctx, g.Agent(), g.name, p.tool, p.Call, g.rules)
	p.Held = d.Held
	return d.Refusal()
}

// NewID returns a new id for a call.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
