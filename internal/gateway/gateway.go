// Package gateway checks tool calls, carries them out and records them. Every call of every agent goes through
// [Gateway.Call]. There is no other way to reach a tool.
//
// A call passes through a fixed list of stages. Each stage can stop the call with a [call.Refusal]. The gateway
// records the outcome of every call in the journal. It returns the answer only after the journal record is durable.
// The file docs/call-lifecycle.md describes the states of a call and the effect of a crash in each state.
//
// A [call.Binding] connects the gateway to the tools. Only the gateway can use the binding.
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
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/flow"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Options configures a gateway.
type Options struct {
	// Name is the name that the agent runs under. The default is the slug of the agent's own name.
	Name string
	// Binding carries out the calls that the gateway allows.
	Binding call.Binding
	// If Closed is not nil, the gateway answers every call with this refusal, but still checks and records the calls. A
	// call that repeats an answered call still gets the earlier answer.
	Closed *call.Refusal
	// Store contains the journal. If Store is nil, the gateway can only explain its decisions. It refuses every call and
	// gives StoreErr as the reason.
	Store    *store.Store
	StoreErr error
	// Learned returns the agent with all its tools. If some tools are not known yet, Learned waits for them. If ctx ends
	// first, Learned returns the tools known so far and a refusal. If Learned is nil, the agent's tools never change.
	Learned func(ctx context.Context) (*agent.Agent, *call.Refusal)
	// Rules are the rules that the gate checks in addition to the manifest.
	Rules gate.Rules
	// Expose lists the kinds of requests that the gateway forwards to servers although no manifest declares them.
	Expose Exposed
	// Operator contains the guardrails that the operator sets for every agent.
	Operator guard.Operator
	// Known returns the credentials that must not appear in any result. The gateway calls Known before each scan.
	Known func() ([]guard.Known, error)
	// Participants add their own rows to the two transactions of every call.
	Participants []Participant
	// Quotas limits each principal's total number of calls to all agents. Nil means no limit.
	Quotas    *limit.Quotas
	Approvals Approvals
	// Flow finds out where arguments come from. If Flow is nil, the gateway does not check this.
	Flow *Flow
	// OnAsk is called when a call begins to wait for a person's approval.
	OnAsk func(message string)
	// OnPanic receives the description of a panic that occurred while a call or a request was handled. The gateway then
	// refuses the call. If OnPanic is nil, panics are not recovered.
	OnPanic func(description string)
}

// Approvals configures how a person approves calls.
type Approvals struct {
	// TTL is how long the gateway waits for a person to approve a call. The default is 10 minutes.
	TTL time.Duration
	// If TrustElicitation is set, a user can approve a call by answering a question in the client.
	TrustElicitation bool
}

// Participant adds rows to the two transactions of a call. The added rows and the call's own rows become durable
// together. The queue of intents (package dispatch) and the memory of programs (package memory) are participants.
type Participant interface {
	// Begin runs at the end of the transaction that is committed before the call is sent. A refusal or an error from
	// Begin rolls back the transaction.
	Begin(tx state.Tx, c *call.Call) (*call.Refusal, error)
	// Record runs in the transaction that records the call's outcome. An error from Record rolls back the
	// transaction.
	Record(tx state.Tx, c *call.Call, o call.Outcome) error
}

// Gateway carries out the calls of one agent.
type Gateway struct {
	agent   *agent.Agent
	name    string
	store   *store.Store
	options Options
	guards  *guards

	late      sync.WaitGroup // goroutines that can continue after their call has returned
	closing   chan struct{}
	closed    sync.Once
	lateGrace time.Duration
}

// New returns a gateway for the given agent.
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
	if o.StoreErr == nil {
		o.StoreErr = errors.New("there is no store to record the call in")
	}
	return &Gateway{
		agent: a, name: o.Name, store: o.Store, options: o, guards: newGuards(a, o),
		lateGrace: lateGrace, closing: make(chan struct{}),
	}
}

// Agent returns the agent with the tools that are known so far. It does not wait until all tools are known.
func (g *Gateway) Agent() *agent.Agent {
	a, _ := g.options.Learned(alreadyCancelled)
	return a
}

var alreadyCancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Name returns the name that the agent runs under.
func (g *Gateway) Name() string { return g.name }

// Close waits for the answers of calls that timed out. The caller should close the bindings first. If the bindings
// are still open, Close can take as long as lateGrace.
func (g *Gateway) Close() {
	g.closed.Do(func() { close(g.closing) })
	g.late.Wait()
}

// inflight is a call that passes through the stages.
type inflight struct {
	*call.Call
	start time.Time
	tool  *agent.Tool
	// canonical contains the caller's arguments in canonical JSON.
	canonical []byte
	// forwarded contains the arguments without personal data, in canonical JSON. It is nil if no personal data was
	// redacted.
	forwarded []byte
	// checked is set when the arguments have passed the guardrails.
	checked bool
	// described is the journal's description of the arguments after they passed the guardrails. It is empty until it is
	// needed.
	described described
	// notes contains the guardrails' findings for the journal. notesMu protects notes, because servers can send
	// notifications at any time.
	notes   []string
	notesMu sync.Mutex
	// taken is the time at which the call was counted toward the limits. It is zero before that.
	taken time.Time
	// intended is set when the call's intent, a row written before sending, is in the store.
	intended bool
	// draft is the journal record in the intent, which has no outcome.
	draft journal.Record
	// resent is set if another process had already sent this call and then died.
	resent bool
	// approval is the id of the call's approval, which the stage "intend" uses up. It is empty if the call needs no
	// approval.
	approval string
	// verdict lists the arguments that come from untrusted text. It is nil if the call is not traced.
	verdict *flow.Verdict
	// question asks a person to approve this call. An approval for a different question does not apply.
	question *approval.Question
	// replayed is the id of the earlier call whose answer this call gets. It is empty if there is no such call.
	replayed string
	result   call.Result
	// stage is the stage that is running. recording is set when the call passes to the stage "record".
	stage     string
	recording bool
	// late delivers the answer if the call timed out. wasUnknown is set when such an answer replaces an outcome that
	// was recorded as unknown.
	late       <-chan call.Outcome
	wasUnknown bool
}

// stage is one step of a call. Its function returns nil to let the call continue, or a refusal to stop it.
type stage struct {
	name string
	run  func(*Gateway, context.Context, *inflight) *call.Refusal
}

// stages lists all stages in order. If a stage refuses a call or replays an earlier answer, the remaining stages are
// skipped.
var stages = []stage{
	{stageAdmit, admit},
	{stageResolve, resolveStage},
	{stageFlow, trace},
	{gate.Stage, gateStage},
	{guard.StageIn, guardIn},
	{stageRemember, remember},
	{stageClosed, refuseClosed},
	{stageLimit, limits},
	{stageApprove, approve},
	{stageLimit, quota},
	{stageFlow, markRead},
	{stageIntend, intend},
	{stageAct, act},
	{guard.StageOut, guardOut},
}

// refuseClosed refuses the call if the call has a refusal in its field Refused, or if Options.Closed is set.
func refuseClosed(g *Gateway, _ context.Context, p *inflight) *call.Refusal {
	why := cmp.Or(p.Refused, g.options.Closed)
	if why == nil {
		return nil
	}
	own := *why // copy the refusal, because other calls share it
	return g.guards.redact(&own)
}

// Call makes a call and returns its result. The error is always a [*call.Refusal].
func (g *Gateway) Call(ctx context.Context, c *call.Call) (result call.Result, err error) {
	if stopped := g.checkStore(); stopped != nil {
		return call.Result{}, stopped
	}
	if c.ID == "" {
		c.ID = NewID()
	}
	defer g.store.Journal.Enter()()
	p := &inflight{Call: c, start: time.Now()}
	var stopped *call.Refusal
	begun := false
	defer g.contain(func() { result, err = call.Result{}, g.abandon(p, begun, stopped) })
	for _, s := range stages {
		p.stage = s.name
		begun = begun || s.name == stageAct
		if stopped = s.run(g, ctx, p); stopped != nil || p.replayed != "" {
			break
		}
	}
	if stopped != nil && !begun {
		stopped.Unsent = true
	}
	p.result.Duration = time.Since(p.start)
	p.stage, p.recording = stageRecord, true
	stopped = g.record(p, stopped)
	p.stage = stageFlow
	if stopped = g.observe(p, stopped); stopped != nil {
		return call.Result{}, stopped
	}
	return p.result, nil
}

// checkStore returns a refusal if the gateway cannot record calls.
func (g *Gateway) checkStore() *call.Refusal {
	if g.store == nil {
		return call.Refuse(stageRecord, call.StoreUnavailable, "%v", g.options.StoreErr)
	}
	if err := g.store.Journal.HandedOver(); err != nil {
		return StoreFailed(context.Background(), stageRecord, err)
	}
	return nil
}

// toSend returns the arguments to send: canonical JSON, with personal data redacted.
func (p *inflight) toSend() []byte {
	if p.forwarded != nil {
		return p.forwarded
	}
	return p.canonical
}

// nameOf returns the tool's URI, or the tool's name if it has no URI.
func nameOf(t *agent.Tool) string {
	if t.URI != nil {
		return t.URI.String()
	}
	return t.Name
}

func resolveStage(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	who, stopped := g.options.Learned(ctx)
	if stopped == nil {
		p.tool, stopped = resolve(who, p.Tool)
	}
	return stopped
}

func gateStage(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	d := gate.Decide(ctx, g.Agent(), g.name, p.tool, p.Call, g.options.Rules)
	p.Held = d.Held
	return d.Refusal()
}

// NewID returns a new id for a call. The id consists of the 32 hex digits of a random UUID (RFC 9562, version 4), because
// Covenant programs and the API get the id as a UUID.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])         // never fails
	b[6] = b[6]&0x0f | 0x40 // version 4
	b[8] = b[8]&0x3f | 0x80 // variant of RFC 9562
	return hex.EncodeToString(b[:])
}
