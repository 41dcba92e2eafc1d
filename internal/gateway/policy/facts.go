package policy

import (
	"bytes"
	"context"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// callInfo contains the context values that do not come from the arguments.
type callInfo struct {
	caller, sideEffect, skill string
	who                       *identity.Attributes // nil if the caller has no credential
	time                      time.Time
	annotations               agent.Annotations
	flow                      *call.Flow // nil if the call is not traced
	known                     *known     // nil if facts are not kept
}

func infoOf(c *call.Call, t *agent.Tool, now time.Time) callInfo {
	m := callInfo{
		caller: c.Principal, who: c.Attributes, sideEffect: string(t.SideEffect), time: now, annotations: t.Annotations,
		flow: c.Flow,
	}
	if c.Skill != nil {
		m.skill = c.Skill.Name()
	}
	return m
}

// known keeps the facts of a call for the second check of the same call. The gate runs that check inside a transaction
// just before the call is sent, where reading the arguments again would delay other writers.
type known struct {
	arguments []byte
	facts     map[factsKey]*facts
}

type factsKey struct {
	view   *view
	asSent bool
}

// knownOf returns the facts that an earlier check of the call kept. If there are none, it returns an empty value in
// which this check can keep its facts.
func knownOf(c *call.Call) *known {
	k, _ := c.Known.(*known)
	if k == nil || !bytes.Equal(k.arguments, c.Arguments) {
		k = &known{arguments: c.Arguments, facts: map[factsKey]*facts{}}
		c.Known = k
	}
	return k
}

// facts contains the data of one call from which the Cedar context is built.
type facts struct {
	view *view
	m    callInfo
	// arguments contains the arguments that rules read.
	arguments types.RecordMap
	pathOf    map[string]*places
	paths     places
	hosts     places
	databases map[string]bool
	folders   int // how many folders and domains were added to the sets of places

	// renamed is set if an argument name was changed to the spelling in the rules. If asSent is set, argument names keep
	// the spelling that the client sent.
	renamed, asSent bool
}

// gather collects the data that rules read from a call. The error explains why the arguments cannot be checked, without
// quoting a value.
func (v *view) gather(ctx context.Context, m callInfo, arguments []byte, asSent bool) (*facts, error) {
	f := &facts{view: v, m: m, asSent: asSent}
	if !v.uses.has(ofArguments) {
		return f, nil
	}
	key := factsKey{v, asSent}
	if m.known != nil && m.known.facts[key] != nil {
		*f = *m.known.facts[key]
		f.m = m // everything but the time is the same
		return f, nil
	}
	if err := f.read(ctx, arguments); err != nil {
		return nil, err
	}
	if m.known != nil {
		m.known.facts[key] = f
	}
	return f, nil
}

// context returns the Cedar context with the given parts.
func (f *facts) context(parts part) types.Record {
	made := types.RecordMap{}
	for _, p := range partTable {
		if parts&p.part == 0 {
			continue
		}
		if v := p.value(f); v != nil {
			made[p.name] = v
		}
	}
	return types.NewRecord(made)
}

func (f *facts) skill() types.Value {
	if f.m.skill == "" {
		return nil
	}
	return types.String(f.m.skill)
}

// origins returns where the arguments come from.
func (f *facts) origins() types.Value {
	o := f.m.flow
	if o == nil {
		return nil
	}
	return types.NewRecord(types.RecordMap{
		"untrusted": types.Boolean(o.Untrusted), "strict": types.Boolean(o.Strict),
		"doubtful": setOf(o.Doubtful), "origin": setOf(o.Origin), "asked_for_in": setOf(o.AskedForIn),
	})
}

func setOf(texts []string) types.Value {
	values := make([]types.Value, len(texts))
	for i, text := range texts {
		values[i] = types.String(text)
	}
	return types.NewSet(values...)
}

func (f *facts) pathsOf() types.Value {
	all := make(types.RecordMap, len(f.pathOf))
	for name, p := range f.pathOf {
		all[types.String(name)] = p.record()
	}
	return types.NewRecord(all)
}

// annotations returns pointers to a tool's hints, keyed by the names that the hints have in Cedar. A hint that the tool
// does not declare is nil.
func annotations(a *agent.Annotations) map[types.String]**bool {
	return map[types.String]**bool{
		"read_only": &a.ReadOnly, "destructive": &a.Destructive, "idempotent": &a.Idempotent, "open_world": &a.OpenWorld,
	}
}

func hints(a agent.Annotations) types.Value {
	parts := types.RecordMap{}
	for name, hint := range annotations(&a) {
		if *hint != nil {
			parts[name] = types.Boolean(**hint)
		}
	}
	return types.NewRecord(parts)
}

func set(texts map[string]bool) types.Value {
	values := make([]types.Value, 0, len(texts))
	for text := range texts {
		values = append(values, types.String(text))
	}
	return types.NewSet(values...)
}
