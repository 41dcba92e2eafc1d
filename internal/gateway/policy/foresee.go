package policy

import (
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"

	"github.com/ambit-run/ambit/agent"
)

// Foresight is the verdict of the rules on a tool before its arguments are known.
type Foresight uint8

// Never and Always hold for any arguments; Depends means that the arguments decide.
const (
	Never Foresight = iota
	Depends
	Always
)

// Foresee reports whether a principal may call a tool of an agent. Cedar evaluates
// the rules with the arguments as unknowns.
func (l *Live) Foresee(a *agent.Agent, name string, t *agent.Tool, principal string) Foresight {
	return l.now().foresee(l.options, a, name, t, principal)
}

func (s *snapshot) foresee(o Options, a *agent.Agent, name string, t *agent.Tool, principal string) Foresight {
	needsPermit := a.Dialect == agent.GPARS
	switch {
	case s.shut, s.rules == nil && needsPermit:
		return Never
	case s.rules == nil:
		return Always
	}
	v := s.view(a, subjectOf(a, name, t))
	m := moment{caller: principal, sideEffect: string(t.SideEffect), time: o.Now(), annotations: t.Annotations}
	env := eval.Env{
		Entities: v.entities, Principal: v.principal, Action: callAction, Resource: v.resource,
		Context: (&facts{view: v, m: m}).unknown(),
	}
	forbidden, permitted := Never, Never
	if !needsPermit {
		permitted = Always
	}
	for _, one := range v.rules {
		if one.forbid {
			forbidden = max(forbidden, one.foresee(env))
		} else {
			permitted = max(permitted, one.foresee(env))
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

// unknown returns the context with an unknown for each part that depends on the
// arguments.
func (f *facts) unknown() types.Record {
	parts := f.context(everyPart &^ ofArguments).Map()
	for p := partArguments; p <= partDatabases; p <<= 1 {
		parts[nameOf[p]] = eval.Variable(nameOf[p])
	}
	return types.NewRecord(parts)
}

// foresee reports whether one rule applies. The conditions are evaluated one at a
// time, because PartialPolicy drops a rule for a later condition that is false even
// if an earlier one may fail, and a forbid that fails applies.
func (r *rule) foresee(env eval.Env) Foresight {
	if r.uses.wholeArguments {
		return Depends // a comparison with the whole context would take the unknowns for values
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
