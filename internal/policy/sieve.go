package policy

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// Asking Cedar about a rule costs ten times what it takes to see how most rules
// come out. A sieve sees it: it knows the tests that people write, in the order in
// which Cedar makes them, and is unsure of everything else, above all of whatever
// could fail. What it is unsure of goes to Cedar, so a sieve that knows too little
// costs time and changes nothing. That what it is sure of is what Cedar would say
// is held by FuzzSameAsCedar.

// truth is what a sieve knows.
type truth uint8

const (
	unsure truth = iota
	untrue
	isTrue
)

func truthOf(b bool) truth {
	if b {
		return isTrue
	}
	return untrue
}

// knows is what is known of the arguments.
func (f *facts) knows(b bool) truth {
	if f.unread {
		return unsure
	}
	return truthOf(b)
}

func (t truth) not() truth {
	switch t {
	case isTrue:
		return untrue
	case untrue:
		return isTrue
	}
	return unsure
}

// test is a condition; nil is unsure of every call.
type test func(*facts) truth

// sieve is the test of a whole rule, whose scope fits.
func (s slots) sieve(p *ast.Policy) test {
	var whole test
	for i, c := range p.Conditions {
		one := s.test(c.Body)
		if c.Condition == ast.ConditionUnless {
			one = negated(one)
		}
		if i == 0 {
			whole = one
		} else {
			whole = both(whole, one)
		}
	}
	return whole
}

func both(left, right test) test {
	if left == nil {
		return nil
	}
	return func(f *facts) truth {
		switch t := left(f); {
		case t != isTrue:
			return t
		case right == nil:
			return unsure
		}
		return right(f)
	}
}

func negated(t test) test {
	if t == nil {
		return nil
	}
	return func(f *facts) truth { return t(f).not() }
}

// test makes one of a condition.
func (s slots) test(n ast.IsNode) test {
	switch n := n.(type) {
	case ast.NodeValue:
		if b, ok := n.Value.(types.Boolean); ok {
			return func(*facts) truth { return truthOf(bool(b)) }
		}
	case ast.NodeTypeAnd:
		return both(s.test(n.Left), s.test(n.Right))
	case ast.NodeTypeOr:
		// As Cedar has it: a || b is !(!a && !b), also in what is looked at first.
		return negated(both(negated(s.test(n.Left)), negated(s.test(n.Right))))
	case ast.NodeTypeNot:
		return negated(s.test(n.Arg))
	case ast.NodeTypeIfThenElse:
		return choice(s.test(n.If), s.test(n.Then), s.test(n.Else))
	case ast.NodeTypeHas:
		return s.has(n)
	case ast.NodeTypeAccess:
		return truthy(s.term(n))
	case ast.NodeTypeEquals:
		return compared(s.term(n.Left), s.term(n.Right), func(l, r types.Value) truth { return truthOf(l.Equal(r)) })
	case ast.NodeTypeNotEquals:
		return compared(s.term(n.Left), s.term(n.Right), func(l, r types.Value) truth { return truthOf(!l.Equal(r)) })
	case ast.NodeTypeLessThan:
		return compared(s.term(n.Left), s.term(n.Right), less)
	case ast.NodeTypeGreaterThan:
		return compared(s.term(n.Right), s.term(n.Left), less)
	case ast.NodeTypeLessThanOrEqual:
		return negated(compared(s.term(n.Right), s.term(n.Left), less))
	case ast.NodeTypeGreaterThanOrEqual:
		return negated(compared(s.term(n.Left), s.term(n.Right), less))
	case ast.NodeTypeLike:
		return s.like(n)
	case ast.NodeTypeContains:
		return s.contains(n)
	case ast.NodeTypeContainsAny:
		return s.containsMany(n.BinaryNode, slices.ContainsFunc[[]types.Value])
	case ast.NodeTypeContainsAll:
		return s.containsMany(n.BinaryNode, every)
	case ast.NodeTypeIsEmpty:
		return s.empty(n)
	case ast.NodeTypeIn:
		return in(n)
	case ast.NodeTypeIs:
		return is(n)
	case ast.NodeTypeExtensionCall:
		return s.decimals(n)
	}
	return nil
}

func choice(which, yes, no test) test {
	if which == nil || yes == nil && no == nil {
		return nil
	}
	return func(f *facts) truth {
		next := no
		switch which(f) {
		case unsure:
			return unsure
		case isTrue:
			next = yes
		}
		if next == nil {
			return unsure
		}
		return next(f)
	}
}

func truthy(of term) test {
	if of == nil {
		return nil
	}
	return func(f *facts) truth {
		b, ok := of(f).(types.Boolean)
		if !ok {
			return unsure
		}
		return truthOf(bool(b))
	}
}

func compared(left, right term, how func(l, r types.Value) truth) test {
	if left == nil || right == nil {
		return nil
	}
	return func(f *facts) truth {
		l, r := left(f), right(f)
		if l == nil || r == nil {
			return unsure
		}
		return how(l, r)
	}
}

// less knows numbers and times; what compares with nothing fails.
func less(l, r types.Value) truth {
	switch a := l.(type) {
	case types.Long:
		if b, ok := r.(types.Long); ok {
			return truthOf(a < b)
		}
	case types.Datetime:
		if b, ok := r.(types.Datetime); ok {
			return truthOf(a.Milliseconds() < b.Milliseconds())
		}
	}
	return unsure
}

func (s slots) like(n ast.NodeTypeLike) test {
	of, pattern := s.term(n.Arg), n.Value
	if of == nil {
		return nil
	}
	return func(f *facts) truth {
		text, ok := of(f).(types.String)
		if !ok {
			return unsure
		}
		return truthOf(pattern.Match(text))
	}
}

func (s slots) has(n ast.NodeTypeHas) test {
	switch name := n.Value; {
	case isContext(n.Arg):
		if p := partNames[string(name)]; p != partSkill {
			return func(*facts) truth { return truthOf(p != 0) }
		}
		return func(f *facts) truth { return truthOf(f.m.skill != "") }
	case isPart(n.Arg, "arguments"):
		slot := s.of(name)
		return func(f *facts) truth { return f.knows(f.slots[slot] != nil) }
	case isPart(n.Arg, "path_of"):
		return func(f *facts) truth { return f.knows(f.pathOf[string(name)] != nil) }
	case isPart(n.Arg, "annotations"):
		return func(f *facts) truth { return truthOf(hint(f.m.annotations, name) != nil) }
	}
	of := s.term(n.Arg)
	if of == nil {
		return nil
	}
	return func(f *facts) truth {
		r, ok := of(f).(types.Record)
		if !ok {
			return unsure
		}
		_, ok = r.Get(n.Value)
		return truthOf(ok)
	}
}

// in knows what the two entities of a call are in.
func in(n ast.NodeTypeIn) test {
	var wanted []types.Value
	switch right := constant(n.Right).(type) {
	case types.EntityUID:
		wanted = []types.Value{right}
	case types.Set:
		wanted = right.Slice()
	}
	if len(wanted) == 0 || slices.ContainsFunc(wanted, func(v types.Value) bool { _, ok := v.(types.EntityUID); return !ok }) {
		return nil
	}
	within := func(line ...types.EntityUID) truth {
		return truthOf(slices.ContainsFunc(wanted, func(v types.Value) bool { return slices.Contains(line, v.(types.EntityUID)) }))
	}
	switch variable(n.Left) {
	case "principal":
		return func(f *facts) truth { return within(f.view.principal) }
	case "resource":
		return func(f *facts) truth { return within(f.view.line...) }
	}
	return nil
}

func is(n ast.NodeTypeIs) test {
	switch variable(n.Left) {
	case "principal":
		return func(*facts) truth { return truthOf(n.EntityType == agentType) }
	case "resource":
		return func(*facts) truth { return truthOf(n.EntityType == toolType) }
	}
	return nil
}

// variable is the name of one; empty if the node is none.
func variable(n ast.IsNode) types.String {
	v, _ := n.(ast.NodeTypeVariable)
	return v.Name
}

// decimals compares numbers with a point.
func (s slots) decimals(n ast.NodeTypeExtensionCall) test {
	var holds func(int) bool
	switch n.Name {
	case "lessThan":
		holds = func(c int) bool { return c < 0 }
	case "lessThanOrEqual":
		holds = func(c int) bool { return c <= 0 }
	case "greaterThan":
		holds = func(c int) bool { return c > 0 }
	case "greaterThanOrEqual":
		holds = func(c int) bool { return c >= 0 }
	}
	if holds == nil || len(n.Args) != 2 {
		return nil
	}
	return compared(s.term(n.Args[0]), s.term(n.Args[1]), func(l, r types.Value) truth {
		a, ok := l.(types.Decimal)
		b, too := r.(types.Decimal)
		if !ok || !too {
			return unsure
		}
		return truthOf(holds(a.Compare(b)))
	})
}

func (s slots) empty(n ast.NodeTypeIsEmpty) test {
	if inside := membersOf(n.Arg); inside != nil {
		return func(f *facts) truth {
			if m, ok := inside(f); ok {
				return truthOf(len(m) == 0)
			}
			return unsure
		}
	}
	of := s.term(n.Arg)
	if of == nil {
		return nil
	}
	return func(f *facts) truth {
		if set, ok := of(f).(types.Set); ok {
			return truthOf(set.Len() == 0)
		}
		return unsure
	}
}

func (s slots) contains(n ast.NodeTypeContains) test {
	if inside := membersOf(n.Left); inside != nil {
		text, ok := constant(n.Right).(types.String)
		if !ok {
			return nil
		}
		return func(f *facts) truth {
			if m, ok := inside(f); ok {
				return truthOf(m[string(text)])
			}
			return unsure
		}
	}
	return compared(s.term(n.Left), s.term(n.Right), func(l, r types.Value) truth {
		set, ok := l.(types.Set)
		if !ok {
			return unsure
		}
		return truthOf(set.Contains(r))
	})
}

func every(values []types.Value, holds func(types.Value) bool) bool {
	return !slices.ContainsFunc(values, func(v types.Value) bool { return !holds(v) })
}

// containsMany asks for several values, of which one is enough, or every one is
// wanted.
func (s slots) containsMany(n ast.BinaryNode, enough func(wanted []types.Value, held func(types.Value) bool) bool) test {
	set, ok := constant(n.Right).(types.Set)
	if !ok {
		return nil
	}
	wanted := set.Slice()
	if inside := membersOf(n.Left); inside != nil {
		return func(f *facts) truth {
			if m, ok := inside(f); ok {
				return truthOf(enough(wanted, func(v types.Value) bool { text, ok := v.(types.String); return ok && m[string(text)] }))
			}
			return unsure
		}
	}
	of := s.term(n.Left)
	if of == nil {
		return nil
	}
	return func(f *facts) truth {
		if set, ok := of(f).(types.Set); ok {
			return truthOf(enough(wanted, set.Contains))
		}
		return unsure
	}
}
