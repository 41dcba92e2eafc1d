// Package host starts an agent: its tool servers, its gateway and its front.
//
// An agent that requires servers by id is resolved first ([Resolve]); after that all dialects are
// treated alike. [Start] creates the gateway and returns. It resolves requirements, and starts and
// proves servers, in the background; calls, lists and [Agent.Ready] wait for that. An agent is up
// only when all its servers are proven. An agent that could not be proven refuses every call with
// the reason, through the gateway, so that the refusal is journaled. Resolved servers are lazy:
// they start on demand, and the agent is up without them.
//
// With [Options.Sole] the agent has one client, on stdio. Its servers start when that client has
// sent its capabilities, or shortly after if it sends none, because servers receive them in their
// handshake.
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

// Options configure an agent.
type Options struct {
	Home home.Home
	// Name is the name that the agent runs under; empty means the slug of its name.
	Name    string
	Version string
	// Books is the store. It belongs to the caller. Without it no call can be made, and NoBooks is
	// the reason.
	Books   *store.Store
	NoBooks error
	// Resolved is the agent with its servers; if nil, the agent is resolved by Start.
	Resolved *Resolved
	// Front changes the front before the agent starts; nil changes nothing.
	Front func(*front.Agent)
	// Credentials finds the secrets of slots and of $env:NAME references; nil means the
	// environment alone.
	Credentials *credential.Source
	// Tokens identifies the caller to remote servers that require it; nil identifies it to none.
	Tokens Tokens
	// Egress sends the requests of http actions; it belongs to the caller.
	Egress *egress.Client
	// Switches are Egress's development switches.
	Switches egress.Switches
	// Reviewed returns why a code bundle with this digest may not run; nil runs all.
	Reviewed func(ctx context.Context, digest string) error
	// Isolation is the sandbox tier of programs; empty is the standard one.
	Isolation sandbox.Tier
	// Unconfined runs Covenant programs without a sandbox, for trusted local development.
	Unconfined bool
	// Agents calls the agents that compose actions name.
	Agents action.Caller
	// Pool keeps sandboxes ready for programs; it belongs to the caller.
	Pool *sandbox.Pool
	// Log receives the output and state changes of servers, Progress the current step for a person
	// who waits.
	Log      func(alias, line string)
	Progress func(alias, step string)
	// Rules are the gate's rules besides the manifest. Nil Grants are those of the store.
	Rules gate.Rules
	// Operator are the guardrails of every agent.
	Operator  guard.Operator
	Approvals gateway.Approvals
	// Expose lists what servers may offer besides tools.
	Expose gateway.Exposed
	// Skill narrows what may be called; clients may choose from Skills.
	Skill  call.Allowlist
	Skills map[string]call.Allowlist
	// Sole means one client, on stdio.
	Sole bool
	// Persist retries a server whose first start failed, for long-running agents.
	Persist bool
	// Contain refuses servers whose program cannot be contained.
	Contain bool
	// ServerIdle is how long an unused lazy server keeps running; 0 means 10 minutes.
	ServerIdle time.Duration
}

// helloWait is how long servers wait for the one client to send its capabilities.
const helloWait = time.Second

const (
	Starting    = "starting"
	Ready       = "ready"
	Quarantined = "quarantined"
	Failed      = "failed"
)

// Failure is why an agent is not up.
type Failure struct {
	Refusal *call.Refusal
	// Lacking reports that something is missing on this machine.
	Lacking bool
}

func (f *Failure) Error() string { return f.Refusal.Error() }

func (f *Failure) Unwrap() error { return f.Refusal }

// Agent is a started agent.
type Agent struct {
	manifest *manifest.Manifest
	name     string
	options  Options
	front    *front.Agent
	actions  call.Binding    // carries out tools without a server
	programs call.Binding    // carries out programs
	bundle   *program.Bundle // the agent's code; nil if it has none or is not up

	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup

	gateway  *gateway.Gateway
	memory   *memory.Memory
	noStore  error         // why no call can be made; nil if there is a store
	lookedUp chan struct{} // closed when the servers are resolved
	resolved atomic.Pointer[Resolved]
	// newLock is a lock that was never seen, until it is remembered.
	newLock struct {
		mu           sync.Mutex
		path, digest string
	}
	up      chan struct{} // closed when the servers are proven or have failed
	servers *toolserver.Manager
	failure *Failure    // permanent
	late    atomic.Bool // a server failed to start, and not all are up yet
	skills  *skillSet   // nil without skills
	wanted  atomic.Pointer[wantedSecrets]

	hello struct {
		once   sync.Once
		said   chan struct{}
		client *call.Client
	}
}

// Start starts an agent. It does not wait for servers; the agent must be closed.
func Start(ctx context.Context, m *manifest.Manifest, o Options) *Agent {
	a := newAgent(m, o)
	o = a.options
	a.programs = programs(a, m, o)
	a.actions = action.New(m.Agent(), action.Options{Name: o.Name, Credentials: o.Credentials, Egress: o.Egress, Agents: o.Agents})
	if isCode(m.Agent()) {
		a.programs = codeBinding{a}
	}
	a.hello.said = make(chan struct{})
	a.ctx, a.cancel = context.WithCancel(ctx)
	made, err := a.gatewayOptions()
	a.noStore, a.gateway = err, gateway.New(m.Agent(), made)
	a.front = &front.Agent{
		Gateway: a.gateway, Definition: a.definition, Skill: o.Skill, Skills: o.Skills, Version: o.Version,
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

// newAgent returns an agent that is not started.
func newAgent(m *manifest.Manifest, o Options) *Agent {
	if o.Credentials == nil {
		o.Credentials = &credential.Source{}
	}
	// By the given name only: no secrets are stored under a name that the manifest chose.
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

// programs runs the agent's program in its sandbox.
func programs(a *Agent, m *manifest.Manifest, o Options) call.Binding {
	return program.New(m.Agent(), program.Options{
		Manifest: m.Path, Isolation: o.Isolation, Unconfined: o.Unconfined, Pool: o.Pool, Egress: o.Switches,
		Home: o.Home, Pubkey: a.pubkey, Memory: remembered{a}, Log: func(line string) { o.Log("program", line) },
	})
}

// start starts and proves the servers.
func (a *Agent) start() {
	defer func() {
		if a.failure == nil && !a.late.Load() {
			if r := a.rememberLock(); r != nil {
				a.fail(r, true)
			}
		}
		if a.failure == nil && a.noStore == nil {
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
	resolved, problem := a.resolve(lock) // also with a bad lock, because the agent's tools report it
	if err != nil && !errors.Is(err, pack.LockMissing) {
		r := call.Refuse("act", call.ServerDrifted, "%v", err)
		r.Hint = pack.HintOf(err)
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
				a.options.Log(alias, "cannot store its tools: "+err.Error())
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
		if !p.OK && a.late.Swap(true) { // the first failure is returned by Ready
			a.options.Log(p.Alias, a.redact(p.Refusal).Error())
		}
	}
	a.proveSkills()
}

// resolve resolves the servers that the agent requires, and releases the calls that wait for it.
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

// trouble returns why the agent is not up, once that is known; nil if it is up. It clears when
// every server that failed to start is up; after that a server that ends affects only its own
// tools.
func (a *Agent) trouble() *Failure {
	if f := a.failure; f != nil {
		return &Failure{Refusal: a.redact(f.Refusal), Lacking: f.Lacking}
	}
	if !a.late.Load() {
		return nil
	}
	for _, p := range a.servers.Proofs() {
		if !p.OK && !p.Lazy {
			return &Failure{Refusal: a.redact(p.Refusal), Lacking: p.Lacking}
		}
	}
	if r := a.rememberLock(); r != nil {
		return &Failure{Refusal: r, Lacking: true}
	}
	a.late.Store(false)
	return nil
}

// redact removes secrets from a refusal before others see it: its text may come from a server.
func (a *Agent) redact(r *call.Refusal) *call.Refusal {
	if r == nil {
		return nil
	}
	if g := a.Gateway(); g != nil {
		return g.Hush(r)
	}
	copied := *r
	copied.Message, copied.Hint = "the reason is withheld: without a store it cannot be searched for secrets", ""
	return &copied
}

// message is a failure as a log message to clients.
func message(f *Failure) jsontext.Value {
	text, err := jsontext.AppendQuote(nil, "The agent is unavailable: "+f.Error())
	if err != nil {
		text = []byte(`"The agent is unavailable."`)
	}
	return fmt.Appendf(nil, `{"level":"error","logger":"ambit","data":%s}`, text)
}

// notified passes on notifications of servers, after the same scan as results. Log messages are for
// the operator only: several clients may share a server, and the message may concern any of them.
func (a *Agent) notified(_, method string, params jsontext.Value) {
	if method == "notifications/message" {
		return
	}
	if g := a.Gateway(); g != nil { // otherwise no call can be made either
		g.Guard(&call.Client{Notify: a.front.Publish}).Notify(method, params)
	}
}

// greeted records the one client.
func (a *Agent) greeted(c *call.Client) {
	a.hello.once.Do(func() {
		a.hello.client = c
		close(a.hello.said)
	})
}

// owner waits for the one client.
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
	if a.noStore != nil {
		return nil // no call can be made
	}
	return a.gateway.Guard(a.hello.client)
}

// Name is the name that the agent runs under.
func (a *Agent) Name() string { return a.name }

func (a *Agent) Manifest() *manifest.Manifest { return a.manifest }

func (a *Agent) Front() *front.Agent { return a.front }

// Gateway returns the agent's gateway; nil without a store.
func (a *Agent) Gateway() *gateway.Gateway {
	if a.noStore != nil {
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

// Ready waits until every server that is not lazy is proven. The error is a *Failure, or ctx's.
func (a *Agent) Ready(ctx context.Context) error {
	if !waitFor(ctx, a.up) {
		return ctx.Err()
	}
	if a.noStore != nil {
		return &Failure{Refusal: call.Refuse("record", call.StoreUnavailable, "%v", a.noStore), Lacking: true}
	}
	if f := a.trouble(); f != nil {
		return f
	}
	return nil
}

// Proofs returns the proof of each server, nil while servers are being proven.
func (a *Agent) Proofs() []toolserver.Proof {
	proofs := a.proofs()
	for i := range proofs {
		proofs[i].Refusal = a.redact(proofs[i].Refusal)
	}
	return proofs
}

// proofs returns proofs with unredacted messages.
func (a *Agent) proofs() []toolserver.Proof {
	if s := a.manager(); s != nil {
		return s.Proofs()
	}
	return nil
}

// State is one of the state constants.
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

// manager returns the servers, nil while they are being proven.
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
		return nil, a.noStore
	}
	return a.options.Books.Keys, nil
}

// pubkey is the public key by which programs know a principal.
func (a *Agent) pubkey(principal string) string {
	keys, err := a.keys()
	if err != nil {
		return "" // and no call can be made
	}
	return keys.PublicOf(principal)
}
