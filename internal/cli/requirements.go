package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/allowance"
	"github.com/ambit-run/ambit/internal/exec/bashserver"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/console"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/manifest"
)

// needReport describes a server that the agent requires, with the version and package that ambit found.
type needReport struct {
	Server     string `json:"server_id"`
	Constraint string `json:"version"`
	// Resolved is the version that ambit found. It is empty if ambit found none.
	Resolved string        `json:"resolved"`
	From     string        `json:"from"`
	Package  string        `json:"package"`
	Digest   string        `json:"package_digest"`
	Problem  string        `json:"problem"`
	Scopes   []scopeReport `json:"scopes"`
	// Unrequested lists scopes that the policy file grants, but that the manifest does not request. Their grants have
	// no effect.
	Unrequested []string `json:"unrequested_grants"`
}

// scopeReport describes a scope that the agent requests.
type scopeReport struct {
	Scope string `json:"scope"`
	// Granted is set if the policy allows every tool of the scope. A scope without tools is never granted.
	Granted bool     `json:"granted"`
	Tools   []string `json:"tools"`
	// Allowed lists the tools that the policy allows with any arguments. Depends lists the tools that the policy
	// allows only with some arguments.
	Allowed []string `json:"allowed"`
	Depends []string `json:"depends"`
}

// needSet describes an agent and the servers that it requires.
type needSet struct {
	required, optional []needReport
	// agent contains the servers that ambit found.
	agent *agent.Agent
	reach agent.Reach
	// watch contains warnings for the user.
	watch []string
	// servers describes what each tool server can use.
	servers []daemon.ServerAccess
	// grants lists the capabilities that principals hold for the agent.
	grants []*grant.Grant
	// hidden reports for each tool of the agent whether the policy denies every call to it. It can be nil.
	hidden []bool
	// operated returns a copy of an agent in which some tools need approval, because the operator requires it.
	operated func(*agent.Agent) *agent.Agent
}

// findNeeds finds the servers that an agent requires, and the scopes that the policy grants. It does not start the
// servers.
func (t *terminal) findNeeds(ctx context.Context, m *manifest.Manifest) (needSet, error) {
	b, err := t.existingStore(ctx, "")
	if err != nil {
		return needSet{}, err
	}
	if b != nil {
		defer b.Close()
	}
	operator, err := operatorGuardrails(t.home)
	if err != nil {
		return needSet{}, err
	}
	return t.findNeedsIn(ctx, m, operator, b)
}

// findNeedsIn is like findNeeds, with the operator's guardrails and an open store. The store is nil if there is none.
func (t *terminal) findNeedsIn(
	ctx context.Context, m *manifest.Manifest, operator guard.Operator, b *store.Store,
) (needSet, error) {
	n := needSet{required: []needReport{}, optional: []needReport{}}
	n.operated = func(a *agent.Agent) *agent.Agent { return operated(a, registeredName(t.home, m), operator) }
	a := n.operated(m.Agent())
	n.agent, n.reach, n.watch = a, a.Reach(), daemon.Warnings(a)
	// The policy caches its answers for each agent pointer. Therefore pass the manifest's agent, and not the new copy
	// in a.
	n.hidden = t.hiddenFrom(m.Agent(), registeredName(t.home, m))
	resolved, err := t.resolve(ctx, m)
	if err != nil || resolved.Resolver == nil {
		return n, errors.Join(err, t.addAccess(ctx, &n, t.rights(m, a), b))
	}
	found := resolved.Found()
	scopes, err := policy.ReadScopes(t.home.Config())
	if err != nil {
		return n, no("fix the file named in the message", "%w", err)
	}
	c, me := resolved.Resolver.Catalog, &call.Call{Principal: identity.LocalName()}
	rights := t.rights(m, resolved.Agent())
	name, rules := rights.Name, t.rules(t.home)
	gw := gateway.New(resolved.Agent(), gateway.Options{Name: name, Rules: gate.Rules{Policy: rules}})
	if err := t.addAccess(ctx, &n, rights, b); err != nil {
		return n, err
	}
	isGranted := func(of *agent.Tool) bool { return rules.Foresee(gw.Agent(), name, of, me) != policy.Never }
	now := n
	now.servers = slices.Clone(n.servers)
	now.addServers(found, isGranted)
	n.addServers(found, func(of *agent.Tool) bool {
		on, _ := of.Binding.(agent.OnServer)
		asked := func(q agent.Requirement) bool {
			covers := func(scope string) bool { return slices.Contains(scopes.Map(c, q.Server, scope).Tools, of.Name) }
			return q.Server == on.Alias && slices.ContainsFunc(q.Scopes, covers)
		}
		return slices.ContainsFunc(a.Requirements, asked) || isGranted(of)
	})
	n.watch = onceGranted(now.watch, n.watch)
	granted, err := t.scopesGranted()
	if err != nil {
		return n, err
	}
	for i := range found {
		r := needOf(&found[i])
		for _, g := range granted {
			if g.Agent == name && g.Server == r.Server && !slices.Contains(found[i].Requirement.Scopes, g.Scope) {
				r.Unrequested = append(r.Unrequested, g.Scope)
			}
		}
		for _, scope := range found[i].Requirement.Scopes {
			s := scopeReport{Scope: scope, Tools: scopes.Map(c, r.Server, scope).Tools, Allowed: []string{}, Depends: []string{}}
			for _, tool := range s.Tools {
				if !slices.ContainsFunc(found[i].Tools, func(t agent.Tool) bool { return t.Name == tool }) {
					continue
				}
				of := gw.Agent().Tool(r.Server, tool)
				asked := &call.Call{Tool: gateway.ServedName(gw.Agent(), of), Principal: me.Principal}
				if ok, _ := gw.Why(ctx, asked); ok {
					s.Allowed = append(s.Allowed, tool)
				} else if rules.Foresee(gw.Agent(), name, of, me) == policy.Depends {
					s.Depends = append(s.Depends, tool)
				}
			}
			s.Granted = len(s.Tools) > 0 && len(s.Allowed) == len(s.Tools)
			r.Scopes = append(r.Scopes, s)
		}
		if found[i].Requirement.Optional {
			n.optional = append(n.optional, r)
		} else {
			n.required = append(n.required, r)
		}
	}
	return n, nil
}

// onceGranted combines the warnings about what is granted now with the warnings about everything that the agent
// requests. A warning that applies only after more scopes are granted says so.
func onceGranted(now, requested []string) []string {
	all := slices.Clone(now)
	for _, warning := range requested {
		if !slices.Contains(now, warning) {
			all = append(all, "once you grant the requested scopes: "+warning)
		}
	}
	return all
}

// rights returns the facts that determine the access of an agent's servers. The parameter a is the manifest's agent
// with its servers resolved.
func (t *terminal) rights(m *manifest.Manifest, a *agent.Agent) host.Rights {
	return host.Rights{
		Agent: a, Name: registeredName(t.home, m), Folder: filepath.Dir(m.Path), Policy: t.rules(t.home),
	}
}

// addAccess adds what each server can use: what the manifest implies, and what the owner allowed.
func (t *terminal) addAccess(ctx context.Context, n *needSet, rights host.Rights, b *store.Store) error {
	for i := range rights.Agent.Servers {
		s := &rights.Agent.Servers[i]
		access := rights.Implied(s)
		if b != nil {
			list, err := allowance.Of(b).List(ctx, rights.Holder(s))
			if err != nil {
				return err
			}
			access = access.With(allowance.Access(list))
		}
		of := daemon.AccessOf(s, access, host.Confines)
		if of.Confined {
			of.Private = filepath.Dir(t.home.ServerFiles(rights.Name, rights.Agent.ID, s.Alias))
		}
		n.servers = append(n.servers, of)
	}
	return nil
}

// addServers sets n.agent.Servers to the found servers, and n.agent.Tools to their tools. It leaves out each tool for
// which include returns false. It also sets n.reach and n.watch.
func (n *needSet) addServers(found []registry.Found, include func(*agent.Tool) bool) {
	n.agent = n.operated(registry.Agent(n.agent, found))
	all := *n.agent
	n.agent.Tools = slices.DeleteFunc(slices.Clone(n.agent.Tools), func(t agent.Tool) bool { return !include(&t) })
	// ambit's own shell server runs commands in a sandbox, so its commands can reach less than other programs.
	shells := map[string]bool{}
	for _, f := range found {
		if f.Recipe.Kind == pack.Builtin && f.Recipe.Name == bashserver.Name && f.Server.Alias != "" {
			shells[f.Server.Alias] = true
		}
	}
	others := *n.agent
	isShell := func(s agent.Server) bool { return shells[s.Alias] }
	others.Servers = slices.DeleteFunc(slices.Clone(others.Servers), isShell)
	needsShell := func(q agent.Requirement) bool { return shells[q.Server] }
	others.Requirements = slices.DeleteFunc(slices.Clone(others.Requirements), needsShell)
	others.Tools = slices.DeleteFunc(slices.Clone(others.Tools), func(t agent.Tool) bool {
		on, ok := t.Binding.(agent.OnServer)
		return ok && shells[on.Alias]
	})
	n.reach, n.watch = others.Reach(), daemon.Warnings(&others)
	n.reach.SideEffects = n.agent.Reach().SideEffects
	for _, s := range n.agent.Servers {
		if shells[s.Alias] {
			n.addShell(&all, s)
		}
	}
}

// addShell adds what ambit's own shell server can reach. Whatever the policy grants, the server can run commands in its
// sandbox, and the sandbox has no network. The parameter all is the agent with all tools of its servers, even those
// that addServers leaves out.
func (n *needSet) addShell(all *agent.Agent, s agent.Server) {
	own := (&agent.Agent{Servers: []agent.Server{s}}).Reach()
	for _, p := range own.Programs {
		p.For += "; commands run in the sandbox, without a network"
		n.reach.Programs = append(n.reach.Programs, p)
	}
	n.reach.Secrets = append(n.reach.Secrets, own.Secrets...)
	for _, path := range own.Paths {
		if !slices.Contains(n.reach.Paths, path) {
			n.reach.Paths = append(n.reach.Paths, path)
		}
	}
	for i := range n.servers {
		if of := &n.servers[i]; of.Alias == s.Alias {
			isConnect := func(r agent.Right) bool { return r.Kind == agent.CanConnect }
			private := of.Private
			*of = daemon.AccessOf(&s, slices.DeleteFunc(all.Access(&s), isConnect), true)
			of.Private = private
		}
	}
	onShell := func(t agent.Tool) bool {
		on, ok := t.Binding.(agent.OnServer)
		return ok && on.Alias == s.Alias
	}
	if !slices.ContainsFunc(n.agent.Tools, onShell) {
		return
	}
	watch := fmt.Sprintf("the agent may run shell commands without approval; server %s runs them in the sandbox, "+
		"without a network, and the commands can change %s", s.Alias, diag.Words(daemon.OrNone(own.Paths), "and"))
	n.watch = append([]string{watch}, n.watch...)
}

func needOf(f *registry.Found) needReport {
	r := needReport{
		Server: f.Requirement.Server, Constraint: f.Requirement.Version, Resolved: f.Version, From: f.From,
		Digest: f.Recipe.Digest, Scopes: []scopeReport{}, Unrequested: []string{},
	}
	if f.Recipe.Kind != "" {
		r.Package = strings.TrimSuffix(string(f.Recipe.Kind)+":"+f.Recipe.Name+"@"+f.Recipe.Version, "@")
	}
	if f.Problem != nil {
		r.Problem = f.Problem.Error()
	}
	return r
}

// showNeeds prints the required servers with their versions and scopes.
func (t *terminal) showNeeds(n needSet) {
	for i, r := range slices.Concat(n.required, n.optional) {
		if i == len(n.required) {
			t.printf("\n%s\n", t.paint(bold, "Optional servers"))
		} else if i == 0 {
			t.printf("\n%s\n", t.paint(bold, "Required servers"))
		}
		what := t.paint(red, "not resolved: "+diag.Printable(r.Problem))
		if r.Resolved != "" {
			what = diag.Printable(r.Resolved) + "  " + t.paint(dim, diag.Printable(r.From+", "+r.Package))
			if r.Problem != "" {
				what += "  " + t.paint(red, diag.Printable(r.Problem))
			}
		}
		t.printf("  %s %s  %s\n", t.paint(bold, diag.Printable(r.Server)), diag.Printable(r.Constraint), what)
		for _, s := range r.Scopes {
			mark := t.paint(red, "✗")
			switch {
			case s.Granted:
				mark = t.paint(green, "✓")
			case s.partlyGranted():
				mark = t.paint(yellow, "!")
			}
			t.printf("    %s %s  %s\n", mark, diag.Printable(s.Scope), s.words())
		}
		for _, scope := range r.Unrequested {
			t.printf("    %s %s  granted without effect, because the manifest does not request it\n",
				t.paint(yellow, "!"), diag.Printable(scope))
		}
	}
}

func (s *scopeReport) words() string {
	switch {
	case s.Granted:
		return "granted"
	case len(s.Tools) == 0:
		return "not granted, because no catalogue entry or setting lists the scope's tools"
	case len(s.Allowed)+len(s.Depends) == len(s.Tools):
		return "granted, depending on the arguments"
	case s.partlyGranted():
		return "granted in part: " + strconv.Itoa(len(s.Allowed)+len(s.Depends)) + " of " + count(len(s.Tools), "tool")
	}
	return "not granted"
}

// partlyGranted reports whether the policy allows at least one tool of the scope. This includes a tool that the policy
// allows only with some arguments.
func (s *scopeReport) partlyGranted() bool { return len(s.Allowed)+len(s.Depends) > 0 }

// consoleInspection returns a function that inspects an agent for the console. It uses the operator's guardrails that
// the daemon has read. The file may contain newer guardrails, which the daemon does not use yet.
func (t *terminal) consoleInspection(
	b *store.Store, operator guard.Operator,
) func(context.Context, *manifest.Manifest) (console.Inspection, error) {
	return func(ctx context.Context, m *manifest.Manifest) (console.Inspection, error) {
		n, err := t.findNeedsIn(ctx, m, operator, b)
		if err != nil {
			return console.Inspection{}, err
		}
		in := console.Inspection{Resolved: n.agent, Facts: daemon.Facts(n.agent, n.reach), Watch: n.watch}
		for _, s := range n.servers {
			remote := n.agent.Server(s.Alias).Transport == agent.StreamableHTTP
			in.Access = append(in.Access, console.Fact{Label: s.Alias, Values: s.Lines(remote)})
		}
		for i, r := range slices.Concat(n.required, n.optional) {
			need := console.Need{Server: r.Server, Version: r.Constraint, Resolved: r.Resolved, Problem: r.Problem}
			need.Optional = i >= len(n.required)
			need.Scopes = each(r.Scopes, func(s scopeReport) console.Scope {
				return console.Scope{Name: s.Scope, Granted: s.words(), OK: s.Granted, Partly: s.partlyGranted()}
			})
			in.Needs = append(in.Needs, need)
		}
		if len(m.Agent().Requirements) > 0 {
			name, rules, me := registeredName(t.home, m), t.rules(t.home), &call.Call{Principal: identity.LocalName()}
			in.Refuses = func(of *agent.Tool) bool { return rules.Foresee(n.agent, name, of, me) == policy.Never }
		} else {
			in.Refuses = func(of *agent.Tool) bool {
				for i, hidden := range n.hidden {
					if hidden && &n.agent.Tools[i] == of {
						return true
					}
				}
				return false
			}
		}
		return in, nil
	}
}
