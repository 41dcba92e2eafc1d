// Package host brings an agent to life: its tool servers, its gateway and its front,
// for every verb that needs them.
//
// An agent that requires servers by id is resolved first ([Resolve]): from then on all
// dialects are treated alike. [Start] makes the gateway and returns. Requirements are
// resolved, and servers started and proven, in the background; calls, lists and
// [Agent.Ready] wait for that. An agent is up only when all of its servers are proven;
// one that could not be proven refuses every call with the reason, through the gateway,
// so that the refusal is journaled like any other. Servers that were resolved are lazy:
// they come and go, and the agent is up without them.
//
// With [Options.Sole] the agent has one client, on stdio. Its servers start as
// soon as that client has said what it can be asked, or shortly after if it
// says nothing, because a server is told so when it is greeted.
package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/action"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/memory"
	"github.com/ambit-run/ambit/internal/exec/program"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

// Options say how an agent is brought to life.
type Options struct {
	Home home.Home
	// Name is what the agent runs under; empty stands for the slug of its name.
	Name    string
	Version string
	// Books keep what happens. They belong to the caller. Without them nothing can be
	// called, and NoBooks says why.
	Books   *store.Store
	NoBooks error
	// Resolved is the agent with its servers; nil has the agent resolve itself.
	Resolved *Resolved
	// Front changes how the agent meets its clients, before it starts; nil if nothing
	// does.
	Front func(*front.Agent)
	// Credentials finds the secrets of slots and of $env:NAME references; nil
	// means the environment alone.
	Credentials *credential.Source
	// Tokens says who calls, to remote servers that want to know; nil says it to
	// none.
	Tokens Tokens
	// Egress sends the requests of http actions; it belongs to the caller.
	Egress *egress.Client
	// Switches are the development switches that Egress was made with.
	Switches egress.Switches
	// Reviewed says why a code bundle of that digest may not run; nil runs all.
	Reviewed func(ctx context.Context, digest string) error
	// Isolation is the tier in which programs run; empty is the standard one.
	Isolation sandbox.Tier
	// Unconfined runs Covenant programs without any, for trusted local
	// development.
	Unconfined bool
	// Agents reaches the agents that compose actions name.
	Agents action.Caller
	// Pool keeps sandboxes ready for programs; it belongs to the caller.
	Pool *sandbox.Pool
	// Log is told what servers write and what becomes of them, Progress what is
	// being done, for a person who waits.
	Log      func(alias, line string)
	Progress func(alias, step string)
	// Rules are what the gate asks besides the manifest. Grants are those of the
	// books, if they are nil.
	Rules gate.Rules
	// Operator are the rails that hold for every agent.
	Operator  guard.Operator
	Approvals gateway.Approvals
	// Expose is what passes of the servers besides tools.
	Expose gateway.Exposed
	// Skill narrows what may be called; Skills are those that a client may choose.
	Skill  call.Allowlist
	Skills map[string]call.Allowlist
	// Sole says that there is one client, on stdio.
	Sole bool
	// Persist tries a server again whose first start failed: for an agent that
	// stays, where nobody waits for the outcome.
	Persist bool
	// Contain refuses servers whose program cannot be contained.
	Contain bool
	// ServerIdle is how long an unused lazy server keeps running; 0 means 10 minutes.
	ServerIdle time.Duration
}

// helloWait is how long servers wait for the one client to say what it can be
// asked.
const helloWait = time.Second

// The states of an agent.
const (
	Starting    = "starting"
	Ready       = "ready"
	Quarantined = "quarantined"
	Failed      = "failed"
)

// Failure is why an agent is not up.
type Failure struct {
	Refusal *call.Refusal
	// Lacking says that something is missing on this machine.
	Lacking bool
}

func (f *Failure) Error() string { return f.Refusal.Error() }

// Unwrap gives the refusal.
func (f *Failure) Unwrap() error { return f.Refusal }

// Agent is an agent that lives.
type Agent struct {
	manifest *manifest.Manifest
	name     string
	options  Options
	front    *front.Agent
	actions  call.Binding    // does what no server does
	programs call.Binding    // but this
	bundle   *program.Bundle // the code that it is; nil if it is none, or not up

	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup

	gateway  *gateway.Gateway
	memory   *memory.Memory
	shut     error         // why nothing can be called; nil if there is a store
	lookedUp chan struct{} // closed when the servers were looked up
	resolved atomic.Pointer[Resolved]
	// newLock is one that was never seen, until it is remembered.
	newLock struct {
		mu           sync.Mutex
		path, digest string
	}
	up      chan struct{} // closed when the servers are proven, or not to be
	servers *toolserver.Manager
	failure *Failure    // why it cannot work, for as long as it lives
	late    atomic.Bool // a server failed at first, and not all have come up since
	skills  *skillSet   // nil if there are none
	wants   atomic.Pointer[wants]

	hello struct {
		once   sync.Once
		said   chan struct{}
		client *call.Client
	}
}

// Start brings an agent to life. It does not wait for servers; the agent must be closed.
func Start(ctx context.Context, m *manifest.Manifest, o Options) *Agent {
	a := asleep(m, o)
	o = a.options
	a.actions, a.programs = actions(m.Agent(), o), programs(a, m, o)
	if isCode(m.Agent()) {
		a.programs = codeBinding{a}
	}
	a.hello.said = make(chan struct{})
	a.ctx, a.cancel = context.WithCancel(ctx)
	made, err := a.outfit()
	a.shut, a.gateway = err, gateway.New(m.Agent(), made)
	a.front = &front.Agent{
		Door: a.gateway, Definition: a.definition, Skill: o.Skill, Skills: o.Skills, Version: o.Version,
		Ready: a.listed, Expose: o.Expose, Capabilities: a.capabilities, Keys: a.keys, Release: a.release,
		Spend: a.spend, Level: a.level,
	}
	if o.Sole {
		a.front.Greeted = a.greeted
	}
	a.serveSkills()
	if o.Front != nil {
		o.Front(a.front)
	}
	go a.start()
	return a
}

// asleep is an agent that is not brought to life yet.
func asleep(m *manifest.Manifest, o Options) *Agent {
	if o.Credentials == nil {
		o.Credentials = &credential.Source{}
	}
	// Before the name is one that the manifest gives: nothing is kept for that.
	o.Credentials = o.Credentials.For(o.Name)
	if o.Name == "" {
		o.Name = agent.Slug(m.Agent().Name)
	}
	if o.Log == nil {
		o.Log = func(string, string) {}
	}
	a := &Agent{manifest: m, name: o.Name, options: o, lookedUp: make(chan struct{}), up: make(chan struct{})}
	if o.Resolved != nil || len(m.Agent().Requirements) == 0 {
		a.resolved.Store(o.Resolved)
		close(a.lookedUp)
	}
	return a
}

// programs runs the program that the agent is, in its sandbox.
func programs(a *Agent, m *manifest.Manifest, o Options) call.Binding {
	return program.New(m.Agent(), program.Options{
		Manifest: m.Path, Isolation: o.Isolation, Unconfined: o.Unconfined, Pool: o.Pool, Egress: o.Switches, Home: o.Home, Pubkey: a.pubkey, Memory: remembered{a}, Log: func(line string) { o.Log("program", line) },
	})
}

func actions(a *agent.Agent, o Options) call.Binding {
	return action.New(a, action.Options{Name: o.Name, Credentials: o.Credentials, Egress: o.Egress, Agents: o.Agents})
}

// start starts and proves the servers.
func (a *Agent) start() {
	defer func() {
		if a.failure == nil && !a.late.Load() {
			if r := a.rememberLock(); r != nil {
				a.fail(r, true)
			}
		}
		if a.failure == nil && a.shut == nil {
			a.background.Go(a.recover)
		}
		close(a.up)
		if f := a.trouble(); f != nil {
			a.front.Publish("notifications/message", message(f))
		}
		a.front.Up()
	}()
	folder, err := filepath.Abs(filepath.Dir(a.manifest.Path))
	if err != nil {
		a.fail(call.Refuse("act", call.ServerUnavailable, "%v", err), true)
		return
	}
	lock, err := pack.ReadLock(filepath.Join(folder, pack.LockName))
	resolved, problem := a.resolve(lock) // also with a bad lock: the agent's tools then say so
	if err != nil && !errors.Is(err, pack.LockMissing) {
		r := call.Refuse("act", call.ServerDrifted, "%v", err)
		if e, ok := errors.AsType[*pack.Error](err); ok {
			r.Hint, r.Command = e.Hint, e.Command
		}
		a.fail(r, false)
		return
	}
	if r := a.lostLock(folder, lock); r != nil {
		a.fail(r, false)
		return
	}
	if problem != nil {
		r := call.Refuse("act", call.ServerUnavailable, "%v", problem)
		r.Hint = "fix the file that the message names"
		a.fail(r, false)
		return
	}
	who := resolved.Agent()
	o := toolserver.Options{
		Home: a.options.Home, Folder: folder, Lock: lock, Version: a.options.Version,
		Lookup: a.options.Credentials.Lookup(who), Authorize: Authorize(who, a.options.Tokens),
		Log: a.options.Log, Progress: a.options.Progress, OnNotify: a.notified,
		Persist: a.options.Persist, Contain: a.options.Contain, Idle: a.options.ServerIdle,
		OnProven: func(alias string, definitions map[string][]byte) {
			if err := resolved.Learn(alias, definitions); err != nil {
				a.options.Log(alias, "its tools cannot be remembered: "+err.Error())
			}
		},
	}
	if a.options.Sole {
		o.Owner = a.owner
	}
	o.Servers = resolved.Servers(o, a.options.Egress, true)
	if isCode(who) && !a.openBundle(&o) {
		return
	}
	a.servers = toolserver.Start(a.ctx, who, o)
	for _, p := range a.servers.Proofs() {
		if p.Lazy {
			continue
		}
		for _, w := range p.Warnings {
			a.options.Log(p.Alias, "warning: "+w)
		}
		if !p.OK && a.late.Swap(true) { // of the first, whoever waits is told
			a.options.Log(p.Alias, a.hush(p.Refusal).Error())
		}
	}
	a.proveSkills()
}

// resolve looks up the servers that the agent requires by their ids, and lets calls go on
// that wait for their tools.
func (a *Agent) resolve(lock *pack.Lock) (*Resolved, error) {
	if r := a.resolved.Load(); r != nil {
		return r, nil
	}
	r, err := Resolve(a.ctx, a.manifest.Agent(), a.name, ResolveOptions{Home: a.options.Home, Lock: lock})
	if err == nil {
		a.resolved.Store(r)
		for _, f := range r.Found() {
			for _, w := range f.Warnings {
				a.options.Log(f.Requirement.Server, "warning: "+w)
			}
		}
	}
	select {
	case <-a.lookedUp:
	default:
		close(a.lookedUp)
	}
	return r, err
}

func (a *Agent) fail(r *call.Refusal, lacking bool) {
	a.failure = &Failure{Refusal: r, Lacking: lacking}
}

// trouble is why the agent is not up, once that has been found out; nil if it is.
// It passes when every server that failed at first has come up; from then on a
// server that ends takes only its own tools with it.
func (a *Agent) trouble() *Failure {
	if f := a.failure; f != nil {
		return &Failure{Refusal: a.hush(f.Refusal), Lacking: f.Lacking}
	}
	if !a.late.Load() {
		return nil
	}
	for _, p := range a.servers.Proofs() {
		if !p.OK && !p.Lazy {
			return &Failure{Refusal: a.hush(p.Refusal), Lacking: p.Lacking}
		}
	}
	if r := a.rememberLock(); r != nil {
		return &Failure{Refusal: r, Lacking: true}
	}
	a.late.Store(false)
	return nil
}

// hush takes the secrets out of what is told to others: it may be a server's word.
func (a *Agent) hush(r *call.Refusal) *call.Refusal {
	if r == nil {
		return nil
	}
	if g := a.Gateway(); g != nil {
		return g.Hush(r)
	}
	told := *r
	told.Message, told.Hint = "why is not told: without a store it cannot be searched for secrets", ""
	return &told
}

// message is a failure as a log message to clients.
func message(f *Failure) jsontext.Value {
	text, err := jsontext.AppendQuote(nil, "The agent cannot work: "+f.Error())
	if err != nil {
		text = []byte(`"The agent cannot work."`)
	}
	return fmt.Appendf(nil, `{"level":"error","logger":"ambit","data":%s}`, text)
}

// notified hands on what servers announce, through the scan that everything they
// say goes through. Their log is for the operator: who else it concerns cannot be
// told where several clients share a server.
func (a *Agent) notified(_, method string, params jsontext.Value) {
	if method == "notifications/message" {
		return
	}
	if g := a.Gateway(); g != nil { // otherwise nothing can be called either
		g.Guard(&call.Client{Notify: a.front.Publish}).Notify(method, params)
	}
}

// greeted is told who the one client is.
func (a *Agent) greeted(c *call.Client) {
	a.hello.once.Do(func() {
		a.hello.client = c
		close(a.hello.said)
	})
}

// owner waits for the one client to say who it is.
func (a *Agent) owner(ctx context.Context) *call.Client {
	timer := time.NewTimer(helloWait)
	defer timer.Stop()
	select {
	case <-a.hello.said:
	case <-ctx.Done():
	case <-timer.C:
		a.greeted(nil)
	}
	select {
	case <-a.hello.said:
	default:
		return nil
	}
	if a.shut != nil {
		return nil // nothing can be called
	}
	return a.gateway.Guard(a.hello.client)
}

// Name is what the agent runs under.
func (a *Agent) Name() string { return a.name }

// Manifest is what it was made of.
func (a *Agent) Manifest() *manifest.Manifest { return a.manifest }

// Front is how clients see it.
func (a *Agent) Front() *front.Agent { return a.front }

// Gateway carries out its calls; nil if there is no store.
func (a *Agent) Gateway() *gateway.Gateway {
	if a.shut != nil {
		return nil
	}
	return a.gateway
}

// listed waits until the agent's tools can be listed: lazy servers get a few seconds.
func (a *Agent) listed(ctx context.Context) error {
	err := a.Ready(ctx)
	if err == nil && ctx.Err() == nil {
		a.servers.Wake(ctx)
	}
	return err
}

// Ready waits until every server that is not lazy is proven. The error is a *Failure,
// or that of ctx.
func (a *Agent) Ready(ctx context.Context) error {
	if !came(ctx, a.up) {
		return ctx.Err()
	}
	if a.shut != nil {
		return &Failure{Refusal: call.Refuse("record", call.StoreUnavailable, "%v", a.shut), Lacking: true}
	}
	if f := a.trouble(); f != nil {
		return f
	}
	return nil
}

// Proofs are what was found out about each server, nil while that goes on.
func (a *Agent) Proofs() []toolserver.Proof {
	proofs := a.proofs()
	for i := range proofs {
		proofs[i].Refusal = a.hush(proofs[i].Refusal)
	}
	return proofs
}

// proofs are the proofs in the words of servers.
func (a *Agent) proofs() []toolserver.Proof {
	if s := a.manager(); s != nil {
		return s.Proofs()
	}
	return nil
}

// State is one word for how the agent is.
func (a *Agent) State() string {
	select {
	case <-a.up:
	default:
		return Starting
	}
	state := Ready
	if a.failure != nil {
		state = Failed
		if a.failure.Refusal.Code == call.ServerDrifted {
			return Quarantined
		}
	}
	for _, p := range a.proofs() {
		if p.Drifted() {
			return Quarantined
		}
		if !p.OK && (!p.Lazy || p.NotFound) { // other lazy servers may come and go
			state = Failed
		}
	}
	return state
}

// Close ends the agent and its servers.
func (a *Agent) Close() {
	a.cancel()
	<-a.up
	a.background.Wait()
	if a.servers != nil {
		a.servers.Close()
	}
	if a.bundle != nil {
		if err := a.bundle.Close(); err != nil {
			a.options.Log("bundle", err.Error())
		}
	}
	a.gateway.Close()
}

// manager is the servers, nil while they are being proven.
func (a *Agent) manager() *toolserver.Manager {
	select {
	case <-a.up:
		return a.servers
	default:
		return nil
	}
}

func (a *Agent) capabilities(alias string) jsontext.Value {
	if s := a.manager(); s != nil {
		return s.Capabilities(alias)
	}
	return nil
}

func (a *Agent) level(ctx context.Context, c *call.Client, level string) {
	if s := a.manager(); s != nil {
		s.SetLevel(ctx, c, level)
	}
}

func (a *Agent) release(key string) {
	if s := a.manager(); s != nil {
		s.Release(key)
	}
}

func (a *Agent) keys() (*identity.Keys, error) {
	if a.options.Books == nil {
		return nil, a.shut
	}
	return a.options.Books.Keys, nil
}

// pubkey is what programs know a principal by.
func (a *Agent) pubkey(principal string) string {
	keys, err := a.keys()
	if err != nil {
		return "" // and nothing can be called
	}
	return keys.PublicOf(principal)
}
