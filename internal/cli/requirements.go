package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/bashserver"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/console"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/manifest"
)

// needReport is a required or optional server and what it was resolved to.
type needReport struct {
	Server     string `json:"server_id"`
	Constraint string `json:"version"`
	// Resolved is the version that was found, empty if none was.
	Resolved string        `json:"resolved"`
	From     string        `json:"from"`
	Package  string        `json:"package"`
	Digest   string        `json:"package_digest"`
	Problem  string        `json:"problem"`
	Scopes   []scopeReport `json:"scopes"`
}

// scopeReport is a scope that the agent asks for.
type scopeReport struct {
	Scope string `json:"scope"`
	// Granted means that every tool it covers may be called; a scope without tools is
	// not granted.
	Granted bool     `json:"granted"`
	Tools   []string `json:"tools"`
	// Allowed are those of the tools that the policy lets through, and Depends
	// those that it lets through with some arguments and not with others.
	Allowed []string `json:"allowed"`
	Depends []string `json:"depends"`
}

// needed are the required and optional servers of an agent, and the agent with them: what
// it reaches and what to check twice.
type needed struct {
	required, optional []needReport
	agent              *agent.Agent
	reach              agent.Reach
	watch              []string
}

// needs resolves an agent's requirements and reports which scopes the policy grants. It
// starts nothing.
func (t *terminal) needs(ctx context.Context, m *manifest.Manifest) (needed, error) {
	a := m.Agent()
	n := needed{required: []needReport{}, optional: []needReport{}, agent: a, reach: a.Reach(), watch: daemon.Warnings(a)}
	resolved, err := t.resolve(ctx, m)
	if err != nil || resolved.Resolver == nil {
		return n, err
	}
	found := resolved.Found()
	h := t.home
	scopes, err := policy.ReadScopes(h.Config())
	if err != nil {
		return n, no("fix the file", "%w", err)
	}
	c := resolved.Resolver.Catalog
	name, rules := registered(h, m), t.rules(h)
	door := gateway.New(resolved.Agent(), gateway.Options{Name: name, Rules: gate.Rules{Policy: rules}})
	n.with(found, func(of *agent.Tool) bool {
		on, _ := of.Binding.(agent.OnServer)
		asked := func(q agent.Requirement) bool {
			covers := func(scope string) bool { return slices.Contains(scopes.Map(c, q.Server, scope).Tools, of.Name) }
			return q.Server == on.Alias && slices.ContainsFunc(q.Scopes, covers)
		}
		return slices.ContainsFunc(a.Requirements, asked) || rules.Foresee(door.Agent(), name, of, identity.LocalName()) != policy.Never
	})
	for i := range found {
		r := needOf(&found[i])
		for _, scope := range found[i].Requirement.Scopes {
			s := scopeReport{Scope: scope, Tools: scopes.Map(c, r.Server, scope).Tools, Allowed: []string{}, Depends: []string{}}
			for _, tool := range s.Tools {
				if at := slices.IndexFunc(found[i].Tools, func(t agent.Tool) bool { return t.Name == tool }); at < 0 {
					continue
				}
				of := door.Agent().Tool(r.Server, tool)
				if ok, _ := door.Why(ctx, &call.Call{Tool: gateway.ServedName(door.Agent(), of), Principal: identity.LocalName()}); ok {
					s.Allowed = append(s.Allowed, tool)
				} else if rules.Foresee(door.Agent(), name, of, identity.LocalName()) == policy.Depends {
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

// with adds the servers that were found, and those of their tools that the agent may call.
func (n *needed) with(found []registry.Found, may func(*agent.Tool) bool) {
	n.agent = registry.Agent(n.agent, found)
	n.agent.Tools = slices.DeleteFunc(n.agent.Tools, func(t agent.Tool) bool { return !may(&t) })
	// The sandbox of ambit's own shell is known, so its reach is not that of any program.
	shells := map[string]bool{}
	for i := range found {
		if f := &found[i]; f.Recipe.Kind == pack.Builtin && f.Recipe.Name == bashserver.Name && f.Server.Alias != "" {
			shells[f.Server.Alias] = true
		}
	}
	others := *n.agent
	others.Servers = slices.DeleteFunc(slices.Clone(others.Servers), func(s agent.Server) bool { return shells[s.Alias] })
	others.Requirements = slices.DeleteFunc(slices.Clone(others.Requirements), func(q agent.Requirement) bool { return shells[q.Server] })
	others.Tools = slices.DeleteFunc(slices.Clone(others.Tools), func(t agent.Tool) bool {
		on, ok := t.Binding.(agent.OnServer)
		return ok && shells[on.Alias]
	})
	n.reach, n.watch = others.Reach(), daemon.Warnings(&others)
	n.reach.SideEffects = n.agent.Reach().SideEffects
	for _, s := range n.agent.Servers {
		if shells[s.Alias] {
			n.shell(s)
		}
	}
}

// shell adds what ambit's own shell reaches.
func (n *needed) shell(s agent.Server) {
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
	n.watch = append([]string{fmt.Sprintf("it may run shell commands without asking a person: server %s runs them in the sandbox, without a network, and they may change %s",
		s.Alias, diag.Words(daemon.OrNone(own.Paths), "and"))}, n.watch...)
}

func needOf(f *registry.Found) needReport {
	r := needReport{Server: f.Requirement.Server, Constraint: f.Requirement.Version, Resolved: f.Version, From: f.From, Digest: f.Recipe.Digest, Scopes: []scopeReport{}}
	if f.Recipe.Kind != "" {
		r.Package = strings.TrimSuffix(string(f.Recipe.Kind)+":"+f.Recipe.Name+"@"+f.Recipe.Version, "@")
	}
	if f.Problem != nil {
		r.Problem = f.Problem.Error()
	}
	return r
}

// showNeeds prints the servers with what was found and granted.
func (t *terminal) showNeeds(n needed) {
	t.needList("Required servers", n.required)
	t.needList("Optional servers", n.optional)
}

func (t *terminal) needList(title string, list []needReport) {
	if len(list) == 0 {
		return
	}
	t.printf("\n%s\n", t.paint(bold, title))
	for _, r := range list {
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
			case s.partly():
				mark = t.paint(yellow, "!")
			}
			t.printf("    %s %s  %s\n", mark, diag.Printable(s.Scope), s.words())
		}
	}
}

// words describes whether a scope is granted.
func (s *scopeReport) words() string {
	switch {
	case s.Granted:
		return "granted"
	case len(s.Tools) == 0:
		return "not granted: no catalogue entry or setting lists its tools"
	case len(s.Allowed)+len(s.Depends) == len(s.Tools):
		return "granted, depending on the arguments"
	case s.partly():
		return "granted in part: " + strconv.Itoa(len(s.Allowed)+len(s.Depends)) + " of " + count(len(s.Tools), "tool")
	}
	return "not granted"
}

// partly reports whether some of its tools may be called, or with some arguments.
func (s *scopeReport) partly() bool { return len(s.Allowed)+len(s.Depends) > 0 }

// needsTime is how long a console page waits for the resolution of an agent's servers.
const needsTime = 3 * time.Second

// consoleNeeds is needs for the console.
func (t *terminal) consoleNeeds(ctx context.Context, m *manifest.Manifest) []console.Need {
	ctx, cancel := context.WithTimeout(ctx, needsTime)
	defer cancel()
	n, err := t.needs(ctx, m)
	if err != nil {
		return []console.Need{{Server: "its servers", Problem: err.Error()}}
	}
	var out []console.Need
	add := func(list []needReport, optional bool) {
		for _, r := range list {
			need := console.Need{Server: r.Server, Version: r.Constraint, Resolved: r.Resolved, Problem: r.Problem, Optional: optional}
			for _, s := range r.Scopes {
				need.Scopes = append(need.Scopes, console.Scope{Name: s.Scope, Granted: s.words(), OK: s.Granted, Partly: s.partly()})
			}
			out = append(out, need)
		}
	}
	add(n.required, false)
	add(n.optional, true)
	return out
}
