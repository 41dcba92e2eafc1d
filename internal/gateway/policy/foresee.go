package policy

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Foresight predicts whether the rules allow calls to a tool, before the arguments are known.
type Foresight uint8

// Never and Always are predictions that hold for all arguments. Depends means that the result depends on the arguments.
const (
	Never Foresight = iota
	Depends
	Always
)

// Foresee predicts whether the rules allow calls to a tool by the caller of c. It evaluates the rules with unknown
// arguments.
func (l *Live) Foresee(a *agent.Agent, name string, t *agent.Tool, c *call.Call) Foresight {
	return l.load().foresee(asked{a, name, t, c, l.options.Now(), 0, false, ""})
}

// Could reports whether the rules can allow a request of the caller of c with these arguments, at some time and with
// some skill. If open is not empty, it is the name of one more argument, whose value is unknown.
func (l *Live) Could(a *agent.Agent, name string, t *agent.Tool, c *call.Call, open string) bool {
	unknown := partTime | partSkill
	return l.load().foresee(asked{a, name, t, c, l.options.Now(), unknown, true, open}) != Never
}

// Possible reports whether the rules can allow a call to a tool, by some caller at some time with some arguments. If
// so, the tool's server needs its access rights.
func (l *Live) Possible(a *agent.Agent, name string, t *agent.Tool) bool {
	unknown := partCaller | partCredential | partSkill | partTime
	return l.load().foresee(asked{a, name, t, &call.Call{}, l.options.Now(), unknown, false, ""}) != Never
}

// asked describes the calls to a tool before all of their arguments are known.
type asked struct {
	agent *agent.Agent
	name  string
	tool  *agent.Tool
	c     *call.Call // a call that names the caller and the skill
	now   time.Time
	// unknown contains the parts of the context that are unknown in addition to the arguments.
	unknown part
	// known is set if the arguments of c are known. If open is not empty, the argument with this name is still unknown.
	known bool
	open  string
}

// foresee predicts whether the rules allow the calls that q describes.
func (s *snapshot) foresee(q asked) Foresight {
	needsPermit := q.agent.Dialect == agent.GPARS
	switch {
	case s.refusesAll, s.rules == nil && needsPermit:
		return Never
	case s.rules == nil:
		return Always
	}
	groups := s.rules.named(q.c.Attributes)
	if q.unknown&partCredential != 0 {
		groups = s.rules.groups // the caller can be in any group
	}
	f := &facts{view: s.view(q.agent, subjectOf(q.agent, q.name, q.tool), groups), m: infoOf(q.c, q.tool, q.now)}
	if q.known && f.view.uses.has(ofArguments) && f.read(context.Background(), q.c.Arguments) != nil {
		return Never // a call with such arguments is always refused
	}
	unknown := q.unknown | partFlow // the origin of unknown arguments is unknown
	if !q.known || q.open != "" {
		unknown |= ofArguments
	}
	seen := f.unknownContext(unknown)
	if q.open != "" {
		parts, arguments := seen.Map(), maps.Clone(f.arguments)
		if arguments == nil {
			arguments = types.RecordMap{}
		}
		arguments[types.String(q.open)] = eval.Variable(types.String(q.open))
		parts["arguments"] = types.NewRecord(arguments)
		seen = types.NewRecord(parts)
	}
	p := prediction{env: f.env(seen), unknown: unknown}
	return p.of(f.view, needsPermit)
}

// prediction evaluates rules while some parts of the context are unknown.
type prediction struct {
	env     eval.Env
	unknown part
}

// of predicts whether the rules of a view allow a call. If needsPermit is set, a permit rule must match.
func (p *prediction) of(v *view, needsPermit bool) Foresight {
	forbidden, permitted := Never, Never
	if !needsPermit {
		permitted = Always
	}
	for _, one := range v.rules {
		if one.forbid {
			forbidden = max(forbidden, p.rule(one))
		} else {
			permitted = max(permitted, min(p.rule(one), p.within(v.ceiling, one)))
		}
	}
	switch {
	case forbidden == Always || permitted == Never:
		return Never
	case forbidden == Never && permitted == Always:
		return Always
	}
	return Depends
}

// within predicts whether a permit rule matches if the tool has only the requested scopes. The ceiling is the view
// with only these scopes. If the ceiling is nil, the result is Always.
func (p *prediction) within(ceiling *view, one *rule) Foresight {
	switch {
	case ceiling == nil:
		return Always
	case !slices.Contains(ceiling.rules, one):
		return Never
	}
	requested := prediction{p.env, p.unknown}
	requested.env.Entities = ceiling.entities
	return requested.rule(one)
}

func (f *facts) env(context types.Record) eval.Env {
	v := f.view
	return eval.Env{Entities: v.entities, Principal: v.principal, Action: callAction, Resource: v.resource, Context: context}
}

// unknownContext returns a context in which each of the given parts is replaced by a Cedar variable, which represents
// an unknown value.
func (f *facts) unknownContext(unknown part) types.Record {
	parts := f.context(everyPart &^ unknown).Map()
	for _, p := range partTable {
		if p.part&unknown != 0 {
			parts[p.name] = eval.Variable(p.name)
		}
	}
	return types.NewRecord(parts)
}

// rule predicts whether a rule matches. It evaluates the conditions one by one, because PartialPolicy would drop the
// whole rule if any condition is false. That would be wrong: an earlier condition can cause an error for some
// arguments, and a forbid rule with an error is treated as matching.
func (p *prediction) rule(r *rule) Foresight {
	switch optional := p.unknown & (partCredential | partSkill | partFlow); {
	case r.uses.wholeArguments && p.unknown&partArguments != 0:
		return Depends // Cedar would compare the variables themselves, not the values they stand for
	case r.uses.has(optional), optional&partCredential != 0 && len(r.groups) > 0:
		return Depends // Cedar would treat a variable as present, but the attribute may be absent
	}
	for _, c := range r.ast.Conditions {
		one := *r.ast
		one.Conditions = []ast.ConditionType{c}
		rest, keep := eval.PartialPolicy(p.env, &one)
		if !keep {
			return Never
		}
		if len(rest.Conditions) == 0 {
			continue
		}
		if _, failed := eval.ToPartialError(rest.Conditions[0].Body); !failed {
			return Depends
		}
		if r.forbid {
			return Always
		}
		return Never
	}
	return Always
}
