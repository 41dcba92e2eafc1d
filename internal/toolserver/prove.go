package toolserver

import (
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/mcpwire"
	"github.com/ambit-run/ambit/internal/pack"
	"github.com/ambit-run/ambit/manifest/diag"
)

// Proof is what was found out about one server.
type Proof struct {
	Alias string
	OK    bool
	// Refusal says why not, if it is not OK.
	Refusal *call.Refusal
	// Missing are declared and not advertised, Unexpected the reverse. Renamed
	// pairs those that look like one tool under two names.
	Missing, Unexpected []string
	Renamed             map[string]string
	// Changed is what differs from the lock, tool by tool.
	Changed []pack.Difference
	// Warnings are for people: hidden text in a description, an unpinned
	// package, a server that is not contained.
	Warnings []string
	Package  PackageDigest
	// Protocol is the MCP revision in use.
	Protocol string
	// Contained says that a program runs in its own pid namespace, with ambit's
	// own files hidden.
	Contained bool
	// Tools are the definitions as advertised, by name.
	Tools map[string][]byte
}

// compare holds what a server advertises against what is declared and locked.
func (s *server) compare(p *Proof, advertised []mcpwire.Tool) {
	p.Tools = make(map[string][]byte, len(advertised))
	var names []string
	for _, t := range advertised {
		if _, twice := p.Tools[t.Name]; twice {
			// Two tools of one name cannot both be what is declared.
			p.Unexpected = append(p.Unexpected, t.Name)
			continue
		}
		p.Tools[t.Name] = t.Raw
		names = append(names, t.Name)
		p.Warnings = append(p.Warnings, hiddenInstructions(t.Name, t.Raw)...)
	}
	var declared []string
	for i := range s.agent.Tools {
		t := &s.agent.Tools[i]
		if on, ok := t.Binding.(agent.OnServer); ok && on.Alias == s.spec.Alias {
			declared = append(declared, t.Name)
		}
	}
	for _, name := range declared {
		if !slices.Contains(names, name) {
			p.Missing = append(p.Missing, name)
		}
	}
	for _, name := range names {
		if !slices.Contains(declared, name) {
			p.Unexpected = append(p.Unexpected, name)
		}
	}
	for _, name := range p.Missing {
		if near := diag.Closest(name, p.Unexpected); near != "" {
			if p.Renamed == nil {
				p.Renamed = map[string]string{}
			}
			p.Renamed[name] = near
		}
	}
	s.compareLock(p)
	p.OK = len(p.Missing)+len(p.Unexpected)+len(p.Changed) == 0 && p.Refusal == nil
	if !p.OK && p.Refusal == nil {
		p.Refusal = call.Refuse(stage, call.ServerDrifted, "server %s is not what the manifest says: %s", s.spec.Alias, p.drift())
	}
}

// compareLock holds the whole definitions against the lock, if there is one.
func (s *server) compareLock(p *Proof) {
	locked := s.locked()
	if locked == nil {
		return
	}
	now := make(map[string]pack.LockedTool, len(p.Tools))
	for name, raw := range p.Tools {
		tool, err := pack.LockTool(raw)
		if err != nil {
			p.Refusal = call.Refuse(stage, call.ServerDrifted, "server %s: the definition of %s cannot be read in one way: %v", s.spec.Alias, diag.Quote(name), err)
			return
		}
		now[name] = tool
	}
	for _, d := range pack.CompareTools(s.spec.Alias, locked.Tools, now) {
		// A missing or unexpected tool is already in the other lists.
		if d.What == pack.Changed {
			p.Changed = append(p.Changed, d)
		}
	}
}

// drift says in words how a server differs.
func (p *Proof) drift() string {
	var parts []string
	if len(p.Missing) > 0 {
		parts = append(parts, "it does not advertise "+quoteAll(p.Missing))
	}
	if len(p.Unexpected) > 0 {
		parts = append(parts, "it advertises "+quoteAll(p.Unexpected)+", which is not declared")
	}
	if len(p.Changed) > 0 {
		var names []string
		for _, d := range p.Changed {
			names = append(names, d.Tool)
		}
		parts = append(parts, "its definition of "+quoteAll(names)+" is not the locked one")
	}
	return strings.Join(parts, "; ")
}

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = diag.Quote(n)
	}
	return diag.Words(quoted, "and")
}
