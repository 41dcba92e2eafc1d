package toolserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// Proof is what was found out about one server.
type Proof struct {
	Alias string
	OK    bool
	// Refusal says why not, if it is not OK.
	Refusal *call.Refusal
	// Lacking says that it could not be started for want of something on this
	// machine: a runtime, a credential, the way to its package.
	Lacking bool
	// Missing are declared and not advertised, Unexpected the reverse, Twice
	// advertised more than once. Renamed pairs those that look like one tool
	// under two names.
	Missing, Unexpected, Twice []string
	Renamed                    map[string]string
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
	// Lazy reports that the server is started when it is used, so that its agent works
	// without it; NotFound that the agent requires it and nothing provides it.
	Lazy, NotFound bool

	notes []string // the warnings that do not come from the definitions
}

// Drifted reports whether it is not OK because the server is another than before.
func (p *Proof) Drifted() bool {
	return !p.OK && p.Refusal != nil && p.Refusal.Code == call.ServerDrifted
}

// compare holds what a server advertises against what is declared and locked.
func (s *server) compare(p *Proof, advertised []mcpwire.Tool) {
	p.Tools = make(map[string][]byte, len(advertised))
	p.Warnings = slices.Clone(p.notes)
	now := make(map[string]pack.LockedTool, len(advertised))
	var names []string
	for _, t := range advertised {
		if t.Invalid != nil { // it must not be used, so it is as good as missing
			p.Warnings = append(p.Warnings, fmt.Sprintf("tool %s: %v", diag.Quote(t.Name), t.Invalid))
			continue
		}
		if _, twice := now[t.Name]; twice {
			// Two tools of one name cannot both be what is declared.
			p.Twice = append(p.Twice, t.Name)
			continue
		}
		names = append(names, t.Name)
		p.Tools[t.Name] = t.Raw
		p.Warnings = append(p.Warnings, hiddenInstructions(t.Name, t.Raw)...)
		tool, err := pack.LockTool(t.Raw)
		if err != nil {
			p.Refusal = call.Refuse(stage, call.ServerDrifted, "server %s: the definition of %s cannot be read in one way: %v", s.alias, diag.Quote(t.Name), err)
		}
		now[t.Name] = tool
	}
	s.compareNames(p, names)
	// Without a lock, what was proven first holds for as long as the agent runs.
	was := s.first
	if locked := s.locked(); locked != nil {
		was = locked.Tools
	}
	for _, d := range pack.CompareTools(s.alias, was, now) {
		// A missing or unexpected tool is already in the other lists.
		if d.What == pack.Changed && p.Refusal == nil {
			p.Changed = append(p.Changed, d)
		}
	}
	if how := p.drift(); how != "" && p.Refusal == nil {
		p.Refusal = call.Refuse(stage, call.ServerDrifted, "server %s is not what the manifest says: %s", s.alias, how)
		if len(p.Missing) > 0 || len(p.Unexpected) > 0 {
			p.Refusal.Hint = "make the server's tools in the manifest those that it advertises, or use the version that has the declared ones"
		}
	}
	p.OK = p.Refusal == nil
	if p.OK {
		s.first = now
	}
	s.hush(p)
}

// compareNames holds the names that are advertised against those that are
// declared.
func (s *server) compareNames(p *Proof, names []string) {
	declared := s.spec.Tools
	if s.spec.Learn {
		if s.first == nil {
			return
		}
		declared = slices.Sorted(maps.Keys(s.first)) // what it advertised first holds
	}
	p.Missing, p.Unexpected = without(declared, names), without(names, declared)
	for _, name := range p.Missing {
		if near := diag.Closest(name, p.Unexpected); near != "" {
			if p.Renamed == nil {
				p.Renamed = map[string]string{}
			}
			p.Renamed[name] = near
		}
	}
}

// without lists what is in a and not in b.
func without(a, b []string) (rest []string) {
	in := make(map[string]bool, len(b))
	for _, name := range b {
		in[name] = true
	}
	for _, name := range a {
		if !in[name] {
			rest = append(rest, name)
		}
	}
	return rest
}

// drift says in words how a server differs, and nothing if it does not.
func (p *Proof) drift() string {
	var parts []string
	if len(p.Missing) > 0 {
		parts = append(parts, "it does not advertise "+quoteAll(p.Missing))
	}
	if len(p.Unexpected) > 0 {
		parts = append(parts, "it advertises "+quoteAll(p.Unexpected)+", which is not declared")
	}
	if len(p.Twice) > 0 {
		parts = append(parts, "it advertises "+quoteAll(p.Twice)+" more than once")
	}
	if len(p.Changed) > 0 {
		var names []string
		for _, d := range p.Changed {
			names = append(names, d.Tool)
		}
		parts = append(parts, "its definition of "+quoteAll(names)+" has changed")
	}
	return strings.Join(parts, "; ")
}

// hush takes the values of credentials out of what a proof tells.
func (s *server) hush(p *Proof) {
	if p.Refusal != nil {
		r := *p.Refusal
		r.Message, r.Hint = s.secrets.mask(r.Message), s.secrets.mask(r.Hint)
		p.Refusal = &r
	}
	for i, w := range p.Warnings {
		p.Warnings[i] = s.secrets.mask(w)
	}
	for _, d := range p.Changed {
		for i, c := range d.Changes {
			d.Changes[i].Old, d.Changes[i].New = s.secrets.mask(c.Old), s.secrets.mask(c.New)
		}
	}
}

// maxQuoted bounds the names in one sentence.
const maxQuoted = 20

func quoteAll(names []string) string {
	var quoted []string
	for i, n := range names {
		if i == maxQuoted {
			quoted = append(quoted, fmt.Sprintf("%d more", len(names)-maxQuoted))
			break
		}
		quoted = append(quoted, diag.Quote(n))
	}
	return diag.Words(quoted, "and")
}
