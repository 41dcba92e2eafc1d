package policy

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
)

// term is a value that a test looks at; nil, or a nil from it, is one that nobody
// knows or that is not there.
type term func(*facts) types.Value

// slots number the top-level arguments that sieves ask for.
type slots map[types.String]int

func (s slots) of(name types.String) int {
	n, ok := s[name]
	if !ok {
		n = len(s)
		s[name] = n
	}
	return n
}

// membersOf knows the sets of texts in the context; nil if the node is none.
func membersOf(n ast.IsNode) func(*facts) (map[string]bool, bool) {
	access, ok := n.(ast.NodeTypeAccess)
	if !ok {
		return nil
	}
	if isContext(access.Arg) {
		p := partNames[string(access.Value)]
		if p&(somePaths|someHosts|partDatabases) == 0 {
			return nil
		}
		return func(f *facts) (map[string]bool, bool) { return f.texts(p), !f.unread }
	}
	of, ok := access.Arg.(ast.NodeTypeAccess)
	if !ok || !isPart(of.Arg, "path_of") {
		return nil
	}
	argument, field := string(of.Value), string(access.Value)
	return func(f *facts) (map[string]bool, bool) {
		p := f.pathOf[argument]
		if p == nil {
			return nil, false
		}
		switch field {
		case "values":
			return p.values, true
		case "any_under":
			return p.any, true
		case "all_under":
			return p.all, true
		}
		return nil, false
	}
}

// term makes one of an expression.
func (s slots) term(n ast.IsNode) term {
	if v := constant(n); v != nil {
		return func(*facts) types.Value { return v }
	}
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		switch variable(n) {
		case "principal":
			return func(f *facts) types.Value { return f.view.subject }
		case "resource":
			return func(f *facts) types.Value { return f.view.object }
		}
	case ast.NodeTypeAccess:
		return s.access(n)
	case ast.NodeTypeAdd:
		return s.sum(n.BinaryNode, func(a, b types.Long) types.Long { return a + b })
	case ast.NodeTypeSub:
		return s.sum(n.BinaryNode, func(a, b types.Long) types.Long { return a - b })
	case ast.NodeTypeMult:
		return s.sum(n.BinaryNode, func(a, b types.Long) types.Long { return a * b })
	}
	return nil
}

// sum calculates with numbers that are too small to overflow.
func (s slots) sum(n ast.BinaryNode, how func(a, b types.Long) types.Long) term {
	left, right := s.term(n.Left), s.term(n.Right)
	if left == nil || right == nil {
		return nil
	}
	const small = 1 << 31
	return func(f *facts) types.Value {
		a, ok := left(f).(types.Long)
		b, too := right(f).(types.Long)
		if !ok || !too || a < -small || a > small || b < -small || b > small {
			return nil
		}
		return how(a, b)
	}
}

func (s slots) access(n ast.NodeTypeAccess) term {
	name := n.Value
	switch variable(n.Arg) {
	case "principal":
		return func(f *facts) types.Value { return got(f.view.who, name) }
	case "resource":
		return func(f *facts) types.Value { return got(f.view.what, name) }
	case "context":
		switch partNames[string(name)] {
		case partCaller:
			return func(f *facts) types.Value { return f.caller }
		case partTime:
			return func(f *facts) types.Value { return f.time }
		case partSideEffect:
			return func(f *facts) types.Value { return got(f.view.what, "side_effect") }
		}
		return nil
	}
	switch {
	case isPart(n.Arg, "arguments"):
		slot := s.of(name)
		return func(f *facts) types.Value { return f.slots[slot] }
	case isPart(n.Arg, "annotations"):
		return func(f *facts) types.Value { return hint(f.m.annotations, name) }
	}
	of := s.term(n.Arg)
	if of == nil {
		return nil
	}
	return func(f *facts) types.Value {
		if r, ok := of(f).(types.Record); ok {
			return got(r, name)
		}
		return nil
	}
}

func got(r types.Record, name types.String) types.Value {
	v, _ := r.Get(name)
	return v
}

// constant is the value of what stands for the same in every call; nil if it does
// not, or fails.
func constant(n ast.IsNode) types.Value {
	switch n := n.(type) {
	case ast.NodeValue:
		return n.Value
	case ast.NodeTypeNegate:
		if constant(n.Arg) == nil {
			return nil
		}
	case ast.NodeTypeSet:
		if slices.ContainsFunc(n.Elements, func(e ast.IsNode) bool { return constant(e) == nil }) {
			return nil
		}
	case ast.NodeTypeExtensionCall:
		if slices.ContainsFunc(n.Args, func(a ast.IsNode) bool { return constant(a) == nil }) {
			return nil
		}
	default:
		return nil
	}
	v, err := eval.Eval(n, eval.Env{Entities: types.EntityMap{}})
	if err != nil {
		return nil
	}
	return v
}
