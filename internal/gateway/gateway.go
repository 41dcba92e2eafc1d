// Package gateway is the door: every call of every agent goes through
// [Gateway.Call], and there is no second way in.
//
// A call passes the stages in the order of one list. Each stage is a file of
// its own and can stop the call with a typed refusal; what became of it is
// recorded either way, and the answer is released only when that is durable.
// docs/call-lifecycle.md draws the states that a call goes through, and what a
// crash leaves at each point.
//
// What does the work is a [call.Binding], which nobody else gets to see.
package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/gate"
	"github.com/ambit-run/ambit/internal/guard"
	"github.com/ambit-run/ambit/internal/limit"
	"github.com/ambit-run/ambit/internal/state"
)

// Options are what a door is made of.
type Options struct {
	// Name is what the agent runs under; empty stands for the slug of its name.
	Name string
	// Binding carries out the calls that pass.
	Binding call.Binding
	// Shut is why nothing is carried out, for a door that only judges and records;
	// nil for one that is open. A call that is repeated gets its answer all the same.
	Shut *call.Refusal
	// Books keep what was intended and what became of it. Without them nothing
	// can be called, only asked about; NoBooks is then the reason, if there is one.
	Books   *books.Books
	NoBooks error
	// Learned returns the agent with the tools that are known by now, and until ctx ends
	// it waits for those that are being looked up; the refusal says that it waited in
	// vain. Nil if the agent's tools do not change.
	Learned func(ctx context.Context) (*agent.Agent, *call.Refusal)
	// Rules are what the gate asks besides the manifest.
	Rules gate.Rules
	// Expose lets through what no manifest declares.
	Expose Exposed
	// Operator are the rails that hold for every agent.
	Operator guard.Operator
	// Known are the credentials that no result may hold. It is asked for each.
	Known func() ([]guard.Known, error)
	// Begin is asked in the transaction that commits to a call, after everything
	// else; nil lets all pass.
	Begin func(tx state.Tx, c *call.Call) (*call.Refusal, error)
	// Keep writes what became of a call elsewhere too, in the transaction that
	// records it; nil if nobody wants that. begun says that the door had committed
	// to the call. An error of it undoes the record.
	Keep func(tx state.Tx, c *call.Call, r call.Result, stopped *call.Refusal, begun bool) error
	// Quotas are how many calls principals may make of all agents together; nil for
	// as many as they like.
	Quotas *limit.Quotas
	// ApprovalTTL is how long a person has to approve a call; 0 means 10 minutes.
	ApprovalTTL time.Duration
	// OnAsk is told that a call waits for a person.
	OnAsk func(message string)
	// TrustElicitation counts the answer of the person at the client.
	TrustElicitation bool
}

// Gateway is the door of one agent.
type Gateway struct {
	agent   *agent.Agent
	learned func(context.Context) (*agent.Agent, *call.Refusal)
	name    string
	binding call.Binding
	books   *books.Books
	noBooks error
	rules   gate.Rules
	expose  Exposed
	guards  *guards
	quotas  *limit.Quotas
	shut    *call.Refusal

	approvalTTL      time.Duration
	trustElicitation bool
	onAsk            func(string)
	begin            func(state.Tx, *call.Call) (*call.Refusal, error)
	keep             func(state.Tx, *call.Call, call.Result, *call.Refusal, bool) error

	late      sync.WaitGroup // answers that may still come
	closing   chan struct{}
	closed    sync.Once
	lateGrace time.Duration
}

// New makes the door of an agent.
func New(a *agent.Agent, o Options) *Gateway {
	if o.Name == "" {
		o.Name = agent.Slug(a.Name)
	}
	if o.ApprovalTTL == 0 {
		o.ApprovalTTL = defaultApprovalTTL
	}
	if o.Learned == nil {
		o.Learned = func(context.Context) (*agent.Agent, *call.Refusal) { return a, nil }
	}
	if o.NoBooks == nil {
		o.NoBooks = errors.New("there is no store to record the call in")
	}
	return &Gateway{
		agent: a, learned: o.Learned, name: o.Name, binding: o.Binding, books: o.Books, noBooks: o.NoBooks, rules: o.Rules, expose: o.Expose, guards: newGuards(a, o), quotas: o.Quotas, shut: o.Shut,
		approvalTTL: o.ApprovalTTL, trustElicitation: o.TrustElicitation, onAsk: o.OnAsk, begin: o.Begin, keep: o.Keep, lateGrace: lateGrace, closing: make(chan struct{}),
	}
}

// Agent returns the agent with the tools that are known by now.
func (g *Gateway) Agent() *agent.Agent {
	a, _ := g.learned(alreadyCancelled)
	return a
}

var alreadyCancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Name is what the agent runs under.
func (g *Gateway) Name() string { return g.name }

// Close waits for late answers. The bindings are closed before, so that none
// can come any more.
func (g *Gateway) Close() {
	g.closed.Do(func() { close(g.closing) })
	g.late.Wait()
}

// passing is a call on its way through the stages.
type passing struct {
	*call.Call
	start time.Time
	shut  *call.Refusal // why it is not carried out, if the door is shut
	tool  *agent.Tool
	// canonical is what the arguments mean, whatever their spelling.
	canonical []byte
	// forwarded is the same of what is sent on, where something was redacted.
	forwarded []byte
	// railed says that the rails let the arguments through, without what is personal.
	railed bool
	// notes are what the guards found, for the journal.
	notes []string
	// taken is when the limits were taken from; zero before.
	taken time.Time
	// intended says that an intent is in the store.
	intended bool
	// resent says that it was sent before, by a process that is gone.
	resent bool
	// approval is the person's word that intend uses up.
	approval string
	// replayed is the earlier call whose answer this one gets.
	replayed string
	result   call.Result
	// late is where the answer arrives after the time is over; wasUnknown says
	// that it has.
	late       <-chan outcome
	wasUnknown bool
}

// stage lets a call pass or stops it.
type stage struct {
	name string
	run  func(*Gateway, context.Context, *passing) *call.Refusal
}

// stages are all of them, in order; what stops a call or answers it ends the
// list, and record follows in any case.
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

// Call makes a call, or says with a *call.Refusal why not.
func (g *Gateway) Call(ctx context.Context, c *call.Call) (call.Result, error) {
	return g.pass(ctx, c, g.shut)
}

// Refuse refuses a call for a reason that lies before the door, so that it is judged
// and recorded like any other. It takes nothing from limits and quotas. A call that is
// repeated gets its answer.
func (g *Gateway) Refuse(ctx context.Context, c *call.Call, why *call.Refusal) (call.Result, error) {
	return g.pass(ctx, c, why)
}

// shut stops what would be carried out if the door were open.
func shut(g *Gateway, _ context.Context, p *passing) *call.Refusal {
	if p.shut == nil {
		return nil
	}
	why := *p.shut // others may hold the same one
	return g.guards.hush(&why)
}

func (g *Gateway) pass(ctx context.Context, c *call.Call, why *call.Refusal) (call.Result, error) {
	if stopped := g.unrecorded(); stopped != nil {
		return call.Result{}, stopped
	}
	if c.ID == "" {
		c.ID = NewID()
	}
	defer g.books.Journal.Enter()()
	p := &passing{Call: c, start: time.Now(), shut: why}
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

// unrecorded refuses what is known beforehand to leave no record.
func (g *Gateway) unrecorded() *call.Refusal {
	if g.books == nil {
		return call.Refuse(stageRecord, call.StoreUnavailable, "%v", g.noBooks)
	}
	if err := g.books.Journal.HandedOver(); err != nil {
		return StoreFailed(stageRecord, err)
	}
	return nil
}

// sent is the canonical form of the arguments as they are sent on.
func (p *passing) sent() []byte {
	if p.forwarded != nil {
		return p.forwarded
	}
	return p.canonical
}

// nameOf is how messages and the journal name a tool.
func nameOf(t *agent.Tool) string {
	if t.URI != nil {
		return t.URI.String()
	}
	return t.Name
}

func resolveStage(g *Gateway, ctx context.Context, p *passing) *call.Refusal {
	who, stopped := g.learned(ctx)
	if stopped == nil {
		p.tool, stopped = resolve(who, p.Tool)
	}
	return stopped
}

func gateStage(g *Gateway, ctx context.Context, p *passing) *call.Refusal {
	d := gate.Decide(ctx, g.Agent(), g.name, p.tool, p.Call, g.rules)
	p.Held = d.Held
	return d.Refusal()
}

// NewID makes the id of a call.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
