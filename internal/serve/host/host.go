// Package host starts an agent with its tool servers, its gateway and its front.
//
// [Start] creates the gateway and returns. In the background, it resolves the agent's requirements (see [Resolve]),
// starts the servers and verifies them. To verify a server, it compares the server's tools with the manifest and the
// lock file. Calls, lists and [Agent.Ready] wait for the verification.
//
// A server that cannot be verified is quarantined: calls to its tools are refused with the reason, and the other
// servers work. The agent as a whole fails only if no server can be verified, or if the manifest marks the failed
// server as required. Servers that the agent requires by id are lazy. They start on demand, and the agent can be ready
// without them.
//
// With [Options.Sole], the agent has one client, on stdio. The servers receive the client's capabilities in their
// handshake. They therefore start only after the client has sent its capabilities, or after one second.
package host

import (
	"context"
	"errors"
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
	"github.com/ambit-run/ambit/internal/exec/signin"
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

// Options configures an agent.
type Options struct {
	Home home.Home
	// Name is the name under which the agent runs. If Name is empty, the manifest determines the name.
	Name    string
	Version string
	// Store is the store of this process. The caller closes it. If Store is nil, every call is refused for the reason in
	// StoreErr.
	Store    *store.Store
	StoreErr error
	// Resolved is the agent with its servers. If Resolved is nil, Start resolves the agent.
	Resolved *Resolved
	// Front is called before the agent starts and can change the agent's front. It may be nil.
	Front func(*front.Agent)
	// Credentials finds the secrets of credential slots and of $env:NAME references. If Credentials is nil, secrets
	// come from the environment only.
	Credentials *credential.Source
	// Tokens provides the tokens that are sent to remote servers. If Tokens is nil, no tokens are sent.
	Tokens Tokens
	// SignIns provides the tokens of sign-ins to remote tool servers. If SignIns is nil, there are no such sign-ins.
	SignIns *signin.Keeper
	// Egress sends the requests of HTTP actions. The caller closes Egress.
	Egress *egress.Client
	// Switches contains the development switches of Egress.
	Switches egress.Switches
	// Reviewed returns an error if the code bundle with this digest is not allowed to run. If Reviewed is nil, every code
	// bundle is allowed to run.
	Reviewed func(ctx context.Context, digest string) error
	// Isolation is the sandbox tier of programs. Empty means the standard tier.
	Isolation sandbox.Tier
	// If Unconfined is set, Covenant programs run without a sandbox. Use it only for trusted local development.
	Unconfined bool
	// UnconfinedServers lists the aliases of tool servers that run without a sandbox.
	UnconfinedServers []string
	// Agents calls other agents for actions of the type compose.
	Agents action.Caller
	// Pool keeps sandboxes ready for programs. The caller closes Pool.
	Pool *sandbox.Pool
	// OnDenial is called each time a sandbox denies an operation of a server. It may be nil.
	OnDenial func(toolserver.Denial)
	// OnUse receives everything that the servers try to use, as described at [toolserver.Confinement]. It may be nil.
	OnUse func(alias string, use agent.Right, found func() bool)
	// Protected lists files and folders that tool servers cannot change, even if a manifest lets them write there.
	Protected []string
	// Extra returns additional rights of a server, which last until ambit exits. It may be nil.
	Extra func(s *agent.Server) agent.Access
	// Log receives the output and the state changes of servers.
	Log func(alias, line string)
	// Progress receives the name of each step while a server starts, to show it to a waiting user.
	Progress func(alias, step string)
	// Rules are the rules that the gateway applies in addition to the manifest. If Rules.Grants is nil, the grants in
	// the store apply.
	Rules gate.Rules
	// Operator contains the guardrails that apply to every agent.
	Operator  guard.Operator
	Approvals gateway.Approvals
	// Flow traces where arguments come from. All agents of a process share it. If Flow is nil, arguments are not traced.
	Flow *gateway.Flow
	// Expose is the list of features that servers are allowed to offer to clients in addition to tools.
	Expose gateway.Exposed
	// Skill restricts the tools that can be called. A client can restrict them further by choosing an entry of Skills.
	Skill  call.Allowlist
	Skills map[string]call.Allowlist
	// If Sole is set, the agent has only one client, which is connected through stdio.
	Sole bool
	// If Lazy is set, a server whose tools are in the lock file starts at its first call. Lazy has no effect with Expose,
	// because only a running server can say which other features it has.
	Lazy bool
	// If Persist is set, a server is started again if its first start fails. Long-running agents set Persist.
	Persist bool
	// If Contain is set, a server starts only if its program can run in its own PID namespace, with ambit's files hidden.
	Contain bool
	// If SharedRecovery is set, the agent does not search for calls of dead processes itself. Instead, the caller searches
	// for all agents of the process together, and calls [Agent.Recover].
	SharedRecovery bool
	// Locks reads the lock file. Agents that share a Locks read the lock file of a common folder only once. If Locks is
	// nil, each agent reads the file.
	Locks *pack.Locks
	// ServerIdle is how long an unused lazy server keeps running. Zero means 10 minutes.
	ServerIdle time.Duration
}

// helloWait is how long the servers of an agent with Options.Sole wait for the client's capabilities.
const helloWait = time.Second

// Agent is a started agent.
type Agent struct {
	manifest *manifest.Manifest
	name     string
	options  Options
	front    *front.Agent
	actions  call.Binding    // carries out calls to tools that are not on a server
	programs call.Binding    // runs programs
	bundle   *program.Bundle // nil if the agent has no code or is not ready

	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup

	gateway  *gateway.Gateway
	memory   *memory.Memory
	noStore  error         // the reason why no call can be made, or nil
	lookedUp chan struct{} // closed when the servers are resolved
	resolved atomic.Pointer[Resolved]
	// newLock is set if the agent's lock file was never used before. It contains the path of the manifest and the
	// digest of the lock file. The digest becomes empty when the lock file has been recorded.
	newLock struct {
		mu           sync.Mutex
		path, digest string
	}
	up      chan struct{} // closed when every server has been verified or has failed
	servers *toolserver.Manager
	failure *Failure    // set if the agent can never become ready
	late    atomic.Bool // true after a server failed to start, until the agent can work
	skills  *skillSet   // nil without skills
	wanted  atomic.Pointer[wantedSecrets]

	hello struct {
		once   sync.Once
		said   chan struct{}
		client *call.Client
	}
}

// Start starts an agent but does not wait for its servers. The caller must close the agent.
func Start(ctx context.Context, m *manifest.Manifest, o Options) *Agent {
	a := newAgent(m, o)
	o = a.options
	a.actions = action.New(m.Agent(), action.Options{
		Name: o.Name, Credentials: o.Credentials, Egress: o.Egress, Agents: o.Agents,
	})
	a.hello.said = make(chan struct{})
	a.ctx, a.cancel = context.WithCancel(ctx)
	made, err := a.gatewayOptions()
	a.noStore, a.gateway = err, gateway.New(m.Agent(), made)
	if a.programs = (codeBinding{a}); !isCode(m.Agent()) {
		a.programs = programs(a, m, o)
	}
	a.front = &front.Agent{
		Gateway: listing{a.gateway, a}, Definition: a.definition, Skill: o.Skill, Skills: o.Skills, Version: o.Version,
		Ready: a.awaitTools, Wake: a.wakeFor, Expose: o.Expose, Capabilities: a.capabilities, Keys: a.keys, Release: a.release,
		Spend: a.spend, Level: a.level, Unavailable: a.unavailable, SignInPage: a.signInPage,
	}
	if o.Sole {
		a.front.Greeted = a.setClient
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
	// Use only the name in the options to look up secrets. Otherwise, a manifest could contain the name of another agent
	// and get that agent's secrets.
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

// programs returns the binding that runs the agent's program in a sandbox.
func programs(a *Agent, m *manifest.Manifest, o Options) call.Binding {
	return program.New(m.Agent(), program.Options{
		Manifest: m.Path, Isolation: o.Isolation, Unconfined: o.Unconfined, Pool: o.Pool, Egress: o.Switches,
		Home: o.Home, Pubkey: a.pubkey, Memory: a.memory, Log: func(line string) { o.Log("program", line) },
	})
}

// start starts and verifies the servers.
func (a *Agent) start() {
	defer func() {
		if a.failure == nil && !a.late.Load() {
			if r := a.rememberLock(); r != nil {
				a.fail(r, true)
			}
		}
		if a.failure == nil && a.noStore == nil && !a.options.SharedRecovery {
			a.background.Go(a.recover)
		}
		close(a.up)
		if f := a.trouble(); f != nil {
			a.front.Publish("notifications/message", message("The agent is unavailable: "+f.Error()))
		}
		for _, r := range a.unavailable() {
			a.front.Publish("notifications/message", message("Some tools are unavailable: "+r.Error()))
		}
		a.front.Up()
	}()
	folder, err := filepath.Abs(filepath.Dir(a.manifest.Path))
	if err != nil {
		a.fail(call.Refuse("act", call.ServerUnavailable, "%v", err), true)
		return
	}
	lock, err := a.options.Locks.Read(filepath.Join(folder, pack.LockName))
	// Resolve the agent even if the lock file is invalid, because a call can report the invalid lock file only if the
	// tools are known.
	resolved, problem := a.resolve(lock)
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
		Home: a.options.Home, Manifest: a.manifest.Path, Lock: lock, Version: a.options.Version,
		Lookup: a.options.Credentials.Lookup(who), Authorize: Authorize(who, a.options.Tokens),
		SignIn:  SignIn(a.options.SignIns, a.options.Home, a.manifest, a.options.Credentials.Agent),
		Callers: a.callersOf(),
		Log:     a.options.Log, Progress: a.options.Progress, OnNotify: a.passNotification,
		Persist: a.options.Persist, Contain: a.options.Contain, Idle: a.options.ServerIdle,
		OnProven: func(alias string, definitions map[string][]byte) {
			if err := resolved.Learn(alias, definitions); err != nil {
				a.options.Log(alias, "cannot store the server's tools: "+err.Error())
			}
		},
	}
	if a.options.Sole {
		o.Owner = a.owner
	}
	if c := Confinement(a.options.Home, a.manifest.Path, a.name, who.ID); c != nil {
		c.Access, c.OnDenial, c.OnUse = a.access, a.options.OnDenial, a.options.OnUse
		c.Switches = a.options.Switches
		c.Unconfined, c.ReadOnly = a.options.UnconfinedServers, append(c.ReadOnly, a.options.Protected...)
		o.Confine = c
	}
	o.Servers = resolved.Servers(o, a.options.Egress, true)
	declared := o.Servers == nil
	verified := declared && a.lockVerified(folder, lock)
	if a.options.Lazy && len(a.options.Expose) == 0 && verified {
		o.Servers = toolserver.Deferred(who, lock)
	}
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
		if !p.OK {
			a.late.Store(true)
		}
	}
	if declared && !verified && !a.late.Load() {
		a.rememberVerified(folder, lock)
	}
	stopped := a.trouble()
	for _, p := range a.servers.Proofs() {
		// Do not log the failure that stopped the agent, because Ready returns it.
		if !p.OK && !p.Lazy && (stopped == nil || stopped.Server != p.Alias) {
			a.options.Log(p.Alias, a.redact(p.Refusal).Error())
		}
	}
	a.proveSkills()
}

// resolve resolves the servers that the agent requires. It then closes the channel lookedUp, on which calls wait.
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

// passNotification passes a notification from a server to the clients. Notifications are first scanned for secrets, as
// results are. Log messages are dropped, because several clients may share a server, and a log message may contain the
// data of any of them.
func (a *Agent) passNotification(_, method string, params jsontext.Value) {
	if method == "notifications/message" {
		return
	}
	if g := a.Gateway(); g != nil { // without a store, nothing is passed on
		g.Guard(&call.Client{Notify: a.front.Publish}).Notify(method, params)
	}
}

// setClient records the only client of an agent with Options.Sole. Only the first call has an effect.
func (a *Agent) setClient(c *call.Client) {
	a.hello.once.Do(func() {
		a.hello.client = c
		close(a.hello.said)
	})
}

// owner returns the only client of an agent with Options.Sole. It waits up to helloWait for the client's
// capabilities.
func (a *Agent) owner(ctx context.Context) *call.Client {
	wait, cancel := context.WithTimeout(ctx, helloWait)
	defer cancel()
	said := waitFor(wait, a.hello.said)
	if a.noStore != nil || !said && ctx.Err() != nil {
		return nil // no call can be made, or the agent is being closed
	}
	a.setClient(nil) // has no effect if the client has already sent its capabilities
	return a.gateway.Guard(a.hello.client)
}

// Name returns the name under which the agent runs.
func (a *Agent) Name() string { return a.name }

func (a *Agent) Manifest() *manifest.Manifest { return a.manifest }

func (a *Agent) Front() *front.Agent { return a.front }

// Gateway returns the agent's gateway, or nil if there is no store.
func (a *Agent) Gateway() *gateway.Gateway {
	if a.noStore != nil {
		return nil
	}
	return a.gateway
}

// awaitTools waits until the agent's tools can be listed. It starts the lazy servers and waits a few seconds for
// them.
func (a *Agent) awaitTools(ctx context.Context) error {
	err := a.Ready(ctx)
	if err == nil && ctx.Err() == nil {
		a.servers.Wake(ctx)
	}
	return err
}

// Ready waits until every server that is not lazy has been verified or quarantined. The error is a *Failure, or the
// context's error if the context ends first.
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

// Proofs returns the proof of each server. It returns nil until all servers have been verified or have failed.
func (a *Agent) Proofs() []toolserver.Proof {
	s := a.manager()
	if s == nil {
		return nil
	}
	proofs := s.Proofs()
	for i := range proofs {
		proofs[i].Refusal = a.redact(proofs[i].Refusal)
	}
	return proofs
}

// Denials returns the recent denials of the servers' sandboxes.
func (a *Agent) Denials() []toolserver.Denial {
	s := a.manager()
	if s == nil {
		return nil
	}
	return s.Denials()
}

// Close stops the agent and its servers.
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

// manager returns the manager of the agent's servers. It returns nil until all servers have been verified or have
// failed.
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
	if s, g := a.manager(), a.Gateway(); s != nil && g != nil {
		s.SetLevel(ctx, g.Guard(c), level) // this can open the client's own connection to a server
	}
}

func (a *Agent) release(key string) {
	if s := a.manager(); s != nil {
		s.Release(key)
	}
}

func (a *Agent) keys() (*identity.Keys, error) {
	if a.options.Store == nil {
		return nil, a.noStore
	}
	return a.options.Store.Keys, nil
}

// pubkey returns the public key that identifies a principal to programs.
func (a *Agent) pubkey(principal string) string {
	keys, err := a.keys()
	if err != nil {
		return "" // without keys, no call can be made, so the result is not used
	}
	return keys.PublicOf(principal)
}
