package toolserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// Proof is the result of checking one server.
type Proof struct {
	Alias string
	OK    bool
	// Refusal is the reason, if not OK.
	Refusal *call.Refusal
	// Lacking reports that something is missing on this machine: a runtime, a credential, or access to the
	// package.
	Lacking bool
	// Missing are declared but not advertised, Unexpected the reverse, Twice advertised more than once.
	// Renamed pairs names that seem to be the same tool.
	Missing, Unexpected, Twice []string
	Renamed                    map[string]string
	// Changed lists the differences from the lock, by tool.
	Changed []pack.Difference
	// Warnings are for people: hidden text in a description, an unpinned package, a server that is not
	// contained.
	Warnings []string
	Package  PackageDigest
	// Protocol is the MCP revision in use.
	Protocol string
	// Contained reports whether the program runs in its own pid namespace, with ambit's files hidden.
	Contained bool
	// Tools are the advertised definitions, by name.
	Tools map[string][]byte
	// Lazy reports that the server starts on use, so that its agent works without it. NotFound reports that
	// the agent requires the server and nothing provides it.
	Lazy, NotFound bool

	notes []string // warnings that do not come from the definitions
}

// Drifted reports whether the proof failed because the server changed.
func (p *Proof) Drifted() bool {
	return !p.OK && p.Refusal != nil && p.Refusal.Code == call.ServerDrifted
}

// compare checks the advertised tools against the manifest and the lock.
func (s *server) compare(p *Proof, advertised []mcpwire.Tool) {
	p.Tools = make(map[string][]byte, len(advertised))
	p.Warnings = slices.Clone(p.notes)
	now := make(map[string]pack.LockedTool, len(advertised))
	var names []string
	for _, t := range advertised {
		if t.Invalid != nil { // unusable, so it counts as missing
			p.Warnings = append(p.Warnings, fmt.Sprintf("tool %s: %v", diag.Quote(t.Name), t.Invalid))
			continue
		}
		if _, twice := now[t.Name]; twice {
			// Two tools with one name cannot both be the declared tool.
			p.Twice = append(p.Twice, t.Name)
			continue
		}
		names = append(names, t.Name)
		p.Tools[t.Name] = t.Raw
		p.Warnings = append(p.Warnings, hiddenInstructions(t.Name, t.Raw)...)
		tool, err := pack.LockTool(t.Raw)
		if err != nil {
			p.Refusal = call.Refuse(stage, call.ServerDrifted,
				"server %s: the definition of %s is ambiguous: %v", s.alias, diag.Quote(t.Name), err)
		}
		now[t.Name] = tool
	}
	s.compareNames(p, names)
	// Without a lock, the tools that were proven first hold while the agent runs.
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
			p.Refusal.Hint = "declare exactly the advertised tools in the manifest, " +
				"or use a server version with the declared ones"
		}
	}
	p.OK = p.Refusal == nil
	if p.OK {
		s.first = now
	}
	s.redact(p)
}

// compareNames compares the advertised names with the declared names.
func (s *server) compareNames(p *Proof, names []string) {
	declared := s.spec.Tools
	if s.spec.Learn {
		if s.first == nil {
			return
		}
		declared = slices.Sorted(maps.Keys(s.first)) // the first advertised tools hold
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

// without returns the elements of a that are not in b.
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

// drift describes how a server differs; empty if it does not.
func (p *Proof) drift() string {
	var changed, parts []string
	for _, d := range p.Changed {
		changed = append(changed, d.Tool)
	}
	for _, part := range []struct {
		format string
		names  []string
	}{
		{"it does not advertise %s", p.Missing},
		{"it advertises %s, which is not declared", p.Unexpected},
		{"it advertises %s more than once", p.Twice},
		{"its definition of %s has changed", changed},
	} {
		if len(part.names) > 0 {
			parts = append(parts, fmt.Sprintf(part.format, quoteAll(part.names)))
		}
	}
	return strings.Join(parts, "; ")
}

// redact removes credential values from the texts of a proof.
func (s *server) redact(p *Proof) {
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

// maxQuoted bounds the names in one message.
const maxQuoted = 20

func quoteAll(names []string) string {
	var quoted []string
	for _, n := range names[:min(len(names), maxQuoted)] {
		quoted = append(quoted, diag.Quote(n))
	}
	if more := len(names) - maxQuoted; more > 0 {
		quoted = append(quoted, fmt.Sprintf("%d more", more))
	}
	return diag.Words(quoted, "and")
}

// modelOrders matches phrases in a tool's description that give orders to the model. The list is precise
// and cheap, but not complete.
var modelOrders = regexp.MustCompile(`(?i)(ignore|disregard|forget|override)\s+(\w+\s+){0,3}` +
	`(previous|prior|above|earlier|preceding|system)\b` +
	`|do not (tell|inform|mention|show|reveal)\b.{0,40}\buser` +
	`|<\s*/?\s*(important|system|instructions?|secret)\s*>` +
	`|\b(before|after) (using|calling) (this|any other) tool\b.{0,80}\b(read|send|call|include)`)

// maxWarnings bounds the warnings about one tool.
const maxWarnings = 10

// hiddenInstructions checks every text of a definition for invisible characters and for orders to the
// model.
func hiddenInstructions(name string, raw []byte) []string {
	var definition any
	if json.Unmarshal(raw, &definition) != nil {
		return nil // hashing reports it
	}
	var warnings []string
	walk(definition, "", func(path, text string) {
		if len(warnings) >= maxWarnings {
			return // enough to investigate
		}
		if what := diag.Hidden(text); what != "" {
			warnings = append(warnings, fmt.Sprintf("tool %s: %s contains %s", diag.Quote(name), path, what))
		}
		if m := modelOrders.FindString(text); m != "" {
			warnings = append(warnings,
				fmt.Sprintf("tool %s: %s gives orders to the model: %s", diag.Quote(name), path, diag.Quote(m)))
		}
	})
	return warnings
}

func walk(v any, path string, visit func(path, text string)) {
	switch v := v.(type) {
	case string:
		visit(strings.TrimPrefix(path, "."), v)
	case []any:
		for i, item := range v {
			walk(item, cutPath(fmt.Sprintf("%s[%d]", path, i)), visit)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			visit(strings.TrimPrefix(path, ".")+" (a key)", key)
			walk(v[key], cutPath(path+"."+diag.Cut(key, maxPath)), visit)
		}
	}
}

// maxPath bounds a path. Every nesting level has its own path of server-chosen keys, so long keys would
// multiply the memory used.
const maxPath = 200

func cutPath(path string) string {
	if len(path) > maxPath {
		return diag.Cut(path, maxPath) + "…"
	}
	return path
}
