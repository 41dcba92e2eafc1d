package policy

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"

	"github.com/ambit-run/ambit/agent"
)

// Foresight predicts whether the rules allow calls to a tool, before the arguments are known.
type Foresight uint8

// Never and Always are predictions that hold for all arguments. Depends means that the result depends on the arguments.
const (
	Never Foresight = iota
	Depends
	Always
)

// Foresee predicts whether the rules allow calls to a tool. It evaluates the rules with unknown arguments.
func (l *Live) Foresee(a *agent.Agent, name string, t *agent.Tool, principal string) Foresight {
	return l.load().foresee(l.options, a, name, t, principal)
}

// Possible reports whether the rules can allow a call to a tool, by some caller at some time with some arguments. A
// server needs access for such tools.
func (l *Live) Possible(a *agent.Agent, name string, t *agent.Tool) bool {
	return l.load().foresee(l.options, a, name, t, "") != Never
}

// foresee predicts whether the rules allow calls to a tool. Without a principal, caller and time are unknown too.
func (s *snapshot) foresee(o Options, a *agent.Agent, name string, t *agent.Tool, principal string) Foresight {
	needsPermit := a.Dialect == agent.GPARS
	switch {
	case s.refusesAll, s.rules == nil && needsPermit:
		return Never
	case s.rules == nil:
		return Always
	}
	v := s.view(a, subjectOf(a, name, t))
	m := callInfo{caller: principal, sideEffect: string(t.SideEffect), time: o.Now(), annotations: t.Annotations}
	env := eval.Env{
		Entities: v.entities, Principal: v.principal, Action: callAction, Resource: v.resource,
		Context: (&facts{view: v, m: m}).unknownContext(),
	}
	forbidden, permitted := Never, Never
	if !needsPermit {
		permitted = Always
	}
	for _, one := range v.rules {
		if one.forbid {
			forbidden = max(forbidden, one.foresee(env))
		} else {
			permitted = max(permitted, min(one.foresee(env), v.ceiling.foresee(one, env)))
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

// foresee predicts whether a permit rule matches if the tool has only the requested scopes. The result is Always if
// there is no ceiling.
func (v *view) foresee(one *rule, env eval.Env) Foresight {
	switch {
	case v == nil:
		return Always
	case !slices.Contains(v.rules, one):
		return Never
	}
	env.Entities = v.entities
	return one.foresee(env)
}

// unknownContext returns a context in which each part that comes from the arguments is replaced by a Cedar variable. A
// variable stands for an unknown value. If there is no caller, the caller and the time are variables too.
func (f *facts) unknownContext() types.Record {
	parts := f.context(everyPart &^ ofArguments).Map()
	for _, p := range partTable {
		if p.part&ofArguments != 0 || f.m.caller == "" && (p.name == "caller" || p.name == "time") {
			parts[p.name] = eval.Variable(p.name)
		}
	}
	return types.NewRecord(parts)
}

// foresee predicts whether a rule matches. It evaluates the conditions one by one, because PartialPolicy would drop the
// whole rule if any condition is false. That would be wrong: an earlier condition can cause an error for some
// arguments, and a forbid rule with an error is treated as matching.
func (r *rule) foresee(env eval.Env) Foresight {
	if r.uses.wholeArguments {
		return Depends // Cedar would compare the variables themselves, not the values they stand for
	}
	for _, c := range r.ast.Conditions {
		one := *r.ast
		one.Conditions = []ast.ConditionType{c}
		rest, keep := eval.PartialPolicy(env, &one)
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
