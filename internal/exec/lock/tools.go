package lock

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/importer"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/manifest"
)

// Proposals proposes classes for the tools that a server advertises and the manifest does not declare. It proposes
// nothing if the server differs from the manifest in another way. The placeholder tool of an imported manifest is not
// treated as declared. Proposals assumes that a server uses the network if the server's manifest entry has a credential
// or names a host, or if a tool definition declares that the tool uses the network.
func Proposals(s *agent.Server, p *toolserver.Proof, c *catalog.Catalog) []registry.Proposal {
	return proposals(s, p, c, false)
}

func proposals(s *agent.Server, p *toolserver.Proof, c *catalog.Catalog, connects bool) []registry.Proposal {
	for _, name := range p.Missing {
		if name != importer.UnknownTool {
			return nil
		}
	}
	if s == nil || len(p.Unexpected) == 0 || len(p.Twice)+len(p.Changed) > 0 {
		return nil
	}
	definitions := map[string][]byte{}
	for _, name := range p.Unexpected {
		definitions[name] = p.Tools[name]
		connects = connects || registry.SaysOpenWorld(p.Tools[name])
	}
	list := registry.Propose(definitions, registry.EntryFor(c, s))
	if connects || hasCredential(s) || namesHost(s) {
		list = registry.Connecting(list, definitions)
	}
	return list
}

func hasCredential(s *agent.Server) bool {
	return len(s.ArgRefs) > 0 || slices.ContainsFunc(s.Env, func(e agent.Setting) bool { return len(e.Refs) > 0 })
}

func namesHost(s *agent.Server) bool {
	one := &agent.Agent{Servers: []agent.Server{*s}}
	return slices.ContainsFunc(assumed(one).Access(s), func(r agent.Right) bool {
		return r.Kind == agent.CanConnect && r.What != agent.Any
	})
}

// assumed returns a copy of the agent in which each server has an additional tool that writes and an additional tool
// that connects. A server whose tools are not known yet gets the rights for this copy, because some servers connect
// when they start.
func assumed(a *agent.Agent) *agent.Agent {
	out := *a
	out.SideEffects.Allowed = append(slices.Clone(a.SideEffects.Allowed), agent.Write, agent.Network)
	out.Tools = slices.Clone(a.Tools)
	for _, s := range a.Servers {
		for _, class := range []agent.SideEffect{agent.Write, agent.Network} {
			out.Tools = append(out.Tools, agent.Tool{
				Name: "unknown", SideEffect: class, Binding: agent.OnServer{Alias: s.Alias},
			})
		}
	}
	return &out
}

// prove starts the servers from the fetched packages and compares them with the manifest. With WriteTools, it adds
// tools to the manifest and then starts the servers again, because the classes of a server's tools decide which
// access the server gets. With Allow, a server may connect in its first start. If the server did connect, and then
// fails to start without connections, its tools get the class Network.
func (l *Locking) prove(ctx context.Context) (*agent.Agent, []toolserver.Proof, error) {
	l.lacks = map[string]*call.Refusal{}
	a, err := l.pinnedAgent(l.text, l.WriteTools)
	if err != nil {
		return nil, nil, err
	}
	o := l.fetchedOptions()
	if !l.WriteTools || len(a.Requirements) > 0 {
		proofs, err := l.proofs(ctx, a, o, nil)
		return a, proofs, err
	}
	uses := &connections{}
	first, err := l.proofs(ctx, a, o, uses)
	if err != nil || ctx.Err() != nil {
		return a, first, err
	}
	text, proofs, connects := l.text, first, map[string]bool{}
	for {
		if l.text, err = l.addTools(text, a, first, connects); err != nil || len(l.added) == 0 {
			return a, first, err
		}
		if a, err = l.pinnedAgent(l.text, false); err != nil {
			return a, proofs, err
		}
		if proofs, err = l.proofs(ctx, a, o, nil); err != nil || ctx.Err() != nil {
			return a, proofs, err
		}
		again := false
		for _, p := range proofs {
			if !p.OK && uses.of(p.Alias) && len(l.added[p.Alias]) > 0 && !connects[p.Alias] {
				connects[p.Alias], again = true, true
			}
		}
		if !again {
			return a, proofs, nil
		}
	}
}

// connections records which servers tried to connect.
type connections struct {
	mu      sync.Mutex
	servers map[string]bool
}

func (c *connections) record(alias string, use agent.Right, _ func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers == nil {
		c.servers = map[string]bool{}
	}
	c.servers[alias] = c.servers[alias] || use.Kind == agent.CanConnect
}

func (c *connections) of(alias string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[alias]
}

// pinnedAgent parses the text of the manifest and returns its agent. If noTools is true, servers without tools are
// accepted.
func (l *Locking) pinnedAgent(text []byte, noTools bool) (*agent.Agent, error) {
	m, err := manifest.Parse(l.Manifest.Path, text, manifest.Options{Dialect: l.Manifest.Dialect, NoTools: noTools})
	if err != nil {
		return nil, fmt.Errorf("the manifest would be invalid with the new pins: %w", err)
	}
	if len(m.Agent().Requirements) > 0 {
		return l.Resolved.Agent(), nil
	}
	return m.Agent(), nil
}

// addTools writes the tools that servers advertise into the text of the manifest, and returns the new text. It leaves
// out a server with a tool that a manifest cannot contain. The keys of connects are the servers that use the network.
func (l *Locking) addTools(
	text []byte, a *agent.Agent, proofs []toolserver.Proof, connects map[string]bool,
) ([]byte, error) {
	c, err := catalog.Open(l.Servers.Home)
	if err != nil {
		return nil, err
	}
	l.added, l.classified = map[string][]registry.Proposal{}, map[string]map[string][]byte{}
	var classes []string
	for i := range proofs {
		p := &proofs[i]
		proposed := proposals(a.Server(p.Alias), p, c, connects[p.Alias])
		if len(proposed) == 0 {
			continue
		}
		var tools []pack.NewTool
		var found []string
		for _, t := range proposed {
			tools = append(tools, pack.NewTool{Name: t.Name, Class: string(t.Class), Review: t.Review})
			found = append(found, string(t.Class))
		}
		with, err := pack.AddTools(text, p.Alias, tools, importer.UnknownTool)
		if err != nil {
			return nil, err
		}
		if _, err := l.pinnedAgent(with, true); err != nil {
			continue // the server stays refused
		}
		text, l.added[p.Alias], l.classified[p.Alias] = with, proposed, p.Tools
		classes = append(classes, found...)
	}
	if !l.Allow {
		return text, nil
	}
	classes = slices.DeleteFunc(classes, func(class string) bool { return class == string(agent.Shell) })
	return pack.AllowEffects(text, classes)
}

// sameAsClassified refuses a server if its tools changed after ambit chose their classes. Otherwise, a server could
// first present a tool that only reads, and then replace it before the lock with a tool that writes.
func (l *Locking) sameAsClassified(proofs []toolserver.Proof) []toolserver.Proof {
	for i := range proofs {
		p := &proofs[i]
		for _, t := range l.added[p.Alias] {
			if p.OK && !sameDefinition(p.Tools[t.Name], l.classified[p.Alias][t.Name]) {
				p.OK = false
				p.Refusal = call.Refuse("act", call.ServerDrifted, "server %s changed its tool %s between two starts",
					p.Alias, diag.Quote(t.Name))
				p.Refusal.Hint = "use another version of the server, or another server"
			}
		}
	}
	return proofs
}

func sameDefinition(a, b []byte) bool {
	one, err := pack.LockTool(a)
	other, otherErr := pack.LockTool(b)
	return err == nil && otherErr == nil && one.Hash == other.Hash
}

// unfetched returns the proofs of the servers whose packages could not be fetched.
func (l *Locking) unfetched() (proofs []toolserver.Proof) {
	for i := range l.Resolved.Agent().Servers {
		alias := l.Resolved.Agent().Servers[i].Alias
		if err := l.failed[alias]; err != nil {
			r := call.Refuse("act", call.ServerUnavailable, "server %s: %v", alias, err)
			r.Hint = pack.HintOf(err)
			proofs = append(proofs, toolserver.Proof{Alias: alias, Refusal: r, Lacking: pack.Lacking(err)})
		}
	}
	return proofs
}
