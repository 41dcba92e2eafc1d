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

// Proof is the result of verifying one server.
type Proof struct {
	Alias string
	OK    bool
	// Refusal is the reason for a failed verification. It is nil if OK is true.
	Refusal *call.Refusal
	// Lacking reports whether a runtime, a credential or access to the package is missing on this machine.
	Lacking bool
	// Missing lists the declared tools that are not advertised. Unexpected lists the advertised tools that are not
	// declared. Twice lists the names that are advertised more than once.
	Missing, Unexpected, Twice []string
	// Renamed maps the name of a missing tool to the most similar unexpected name.
	Renamed map[string]string
	// Changed lists the tools whose definitions differ from the lock file or from the first verification.
	Changed []pack.Difference
	// Warnings are messages for the user. For example, they report hidden text in a description, an unpinned
	// package, or a server that is not contained.
	Warnings []string
	Package  PackageDigest
	// Protocol is the MCP revision of the connection.
	Protocol string
	// Contained reports whether the program runs in its own pid namespace and cannot see ambit's files.
	Contained bool
	// Tools holds the advertised definitions, by tool name.
	Tools map[string][]byte
	// Lazy reports whether the server starts only when it is used. Until then, the agent works without the server.
	Lazy bool
	// Required reports whether the agent cannot work without the server.
	Required bool
	// NotFound is true if a required server could not be resolved, for example because no registry provides it.
	NotFound bool

	notes []string // the warnings that are not about tool definitions
}

// Drifted reports whether the server failed the comparison with the manifest or the lock file.
func (p *Proof) Drifted() bool {
	return !p.OK && p.Refusal != nil && p.Refusal.Code == call.ServerDrifted
}

// compare compares the advertised tools with the manifest and the lock file. It stores the result in the proof.
func (s *server) compare(p *Proof, advertised []mcpwire.Tool) {
	p.Tools = make(map[string][]byte, len(advertised))
	p.Warnings = slices.Clone(p.notes)
	now := make(map[string]pack.LockedTool, len(advertised))
	var names []string
	for _, t := range advertised {
		if t.Invalid != nil { // an invalid tool counts as missing
			p.Warnings = append(p.Warnings, fmt.Sprintf("tool %s: %v", diag.Quote(t.Name), t.Invalid))
			continue
		}
		if _, twice := now[t.Name]; twice {
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
	if s.base != nil {
		s.compareOwn(p)
	}
	for _, d := range pack.CompareTools(s.alias, s.baseline(), now) {
		// compareNames has already recorded missing and unexpected tools.
		if d.What == pack.Changed && p.Refusal == nil {
			p.Changed = append(p.Changed, d)
		}
	}
	if how := p.drift(); how != "" && p.Refusal == nil {
		p.Refusal = call.Refuse(stage, call.ServerDrifted, "server %s does not match the manifest: %s", s.alias, how)
		if len(p.Missing) > 0 || len(p.Unexpected) > 0 {
			p.Refusal.Hint = "declare exactly the advertised tools in the manifest, " +
				"or use a version of the server that has the declared tools"
		}
	}
	if p.Refusal == nil {
		s.remember(now, p)
	}
	p.OK = p.Refusal == nil
	s.redact(p)
}

// compareNames compares the advertised names with the declared names. It sets Missing, Unexpected and Renamed.
func (s *server) compareNames(p *Proof, names []string) {
	declared := s.spec.Tools
	if s.spec.Learn {
		first := s.first
		if s.base != nil {
			first = s.base.callers.pins()
		}
		if first == nil {
			return
		}
		declared = slices.Sorted(maps.Keys(first))
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

// drift describes how the server differs from the declaration. It returns "" if there is no difference.
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

// redact redacts credential values in the texts of a proof.
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

// maxQuoted is the maximum number of names in one message.
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

// modelOrders matches phrases that give instructions to a model. It is a fast check that rarely matches harmless
// text, but it does not find every such phrase.
var modelOrders = regexp.MustCompile(`(?i)(ignore|disregard|forget|override)\s+(\w+\s+){0,3}` +
	`(previous|prior|above|earlier|preceding|system)\b` +
	`|do not (tell|inform|mention|show|reveal)\b.{0,40}\buser` +
	`|<\s*/?\s*(important|system|instructions?|secret)\s*>` +
	`|\b(before|after) (using|calling) (this|any other) tool\b.{0,80}\b(read|send|call|include)`)

// maxWarnings is the maximum number of warnings about one tool.
const maxWarnings = 10

// hiddenInstructions checks every string in a tool definition. It returns warnings about invisible characters and
// about instructions to the model.
func hiddenInstructions(name string, raw []byte) []string {
	var definition any
	if json.Unmarshal(raw, &definition) != nil {
		return nil // pack.LockTool reports the error
	}
	var warnings []string
	walk(definition, "", func(path, text string) {
		if len(warnings) >= maxWarnings {
			return
		}
		if what := diag.Hidden(text); what != "" {
			warnings = append(warnings, fmt.Sprintf("in tool %s, %s contains %s", diag.Quote(name), path, what))
		}
		if m := modelOrders.FindString(text); m != "" {
			warnings = append(warnings,
				fmt.Sprintf("in tool %s, %s gives orders to the model: %s", diag.Quote(name), path, diag.Quote(m)))
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

// maxPath is the maximum length of the path to a value in a definition. A path contains all keys above the value. The
// server chooses the keys, so without this limit, long keys could use a lot of memory.
const maxPath = 200

func cutPath(path string) string {
	if len(path) > maxPath {
		return diag.Cut(path, maxPath) + "…"
	}
	return path
}
