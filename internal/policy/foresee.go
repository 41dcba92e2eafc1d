package policy

import "github.com/ambit-run/ambit/agent"

// Foresight is what rules say of the calls of a tool whose arguments nobody knows
// yet.
type Foresight uint8

// Never and Always hold for whatever is sent; Depends does not know.
const (
	Never Foresight = iota
	Depends
	Always
)

// Foresee tells whether a principal may call a tool of an agent.
func (l *Live) Foresee(a *agent.Agent, name string, t *agent.Tool, principal string) Foresight {
	s := l.now()
	asksPermit := a.Dialect == agent.GPARS
	switch {
	case s.shut, s.rules == nil && asksPermit:
		return Never
	case s.rules == nil:
		return Always
	}
	v := s.view(a, subjectOf(a, name, t))
	m := moment{caller: principal, sideEffect: string(t.SideEffect), time: l.options.Now(), annotations: t.Annotations}
	f := s.rules.blind(v, m)
	permitted, forbidden := untrue, untrue
	if !asksPermit {
		permitted = isTrue
	}
	for _, one := range v.rules {
		switch known := s.rules.foresee(f, one); {
		case known == untrue:
		case one.forbid && forbidden != isTrue:
			forbidden = known
		case !one.forbid && permitted != isTrue:
			permitted = known
		}
	}
	switch {
	case forbidden == isTrue || permitted == untrue:
		return Never
	case forbidden == untrue && permitted == isTrue:
		return Always
	}
	return Depends
}

// foresee is what one rule says. Cedar knows where no argument is asked for.
func (r *Rules) foresee(f *facts, one *rule) truth {
	known := unsure
	if one.sieve != nil {
		known = one.sieve(f)
	}
	if known != unsure || one.uses.has(ofArguments) {
		return known
	}
	found := r.ask(f, rules{one})
	return truthOf(found.denies() || len(found.permits) > 0)
}
