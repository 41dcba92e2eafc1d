package policy

import (
	"iter"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// guard is how many rules begin: context.arguments has X && context.arguments.X ==
// "text". Neither part can fail, so where the argument is not that text the rule
// says nothing, whatever else is in it, and Cedar need not be asked.
type guard struct {
	argument types.String
	text     types.String
}

// guardOf is the guard of a rule; nil if it does not begin with one.
func guardOf(p *ast.Policy) *guard {
	if len(p.Conditions) == 0 || p.Conditions[0].Condition != ast.ConditionWhen {
		return nil
	}
	both := conjuncts(p.Conditions[0].Body, nil)
	if len(both) < 2 {
		return nil
	}
	has, ok := both[0].(ast.NodeTypeHas)
	if !ok || !isArguments(has.Arg) {
		return nil
	}
	equal, ok := both[1].(ast.NodeTypeEquals)
	if !ok {
		return nil
	}
	left, ok := equal.Left.(ast.NodeTypeAccess)
	if !ok || left.Value != has.Value || !isArguments(left.Arg) {
		return nil
	}
	value, ok := equal.Right.(ast.NodeValue)
	if !ok {
		return nil
	}
	if text, ok := value.Value.(types.String); ok {
		return &guard{has.Value, text}
	}
	return nil
}

// conjuncts are the parts of a condition in the order in which Cedar looks at them.
func conjuncts(n ast.IsNode, before []ast.IsNode) []ast.IsNode {
	if and, ok := n.(ast.NodeTypeAnd); ok {
		return conjuncts(and.Right, conjuncts(and.Left, before))
	}
	return append(before, n)
}

func isArguments(n ast.IsNode) bool {
	of, ok := n.(ast.NodeTypeAccess)
	return ok && of.Value == "arguments" && isContext(of.Arg)
}

// candidate is a rule of a view. Slot is the place of its guard's argument, or -1.
type candidate struct {
	*rule
	slot int
}

// asked is a view of one call: the rules that could say something of it.
type asked struct {
	*view
	held []held
}

// held is an argument that guards ask for, if it is a text.
type held struct {
	text types.String
	ok   bool
}

// ask looks up what the guards of a view ask for.
func (v *view) ask(context types.Record) asked {
	a := asked{view: v}
	if len(v.guarded) == 0 {
		return a
	}
	value, _ := context.Get("arguments")
	arguments, ok := value.(types.Record)
	if !ok {
		return a // Cedar will say what that means
	}
	a.held = make([]held, len(v.guarded))
	for i, name := range v.guarded {
		value, _ := arguments.Get(name)
		a.held[i].text, a.held[i].ok = value.(types.String)
	}
	return a
}

// All lets Cedar see only the rules that could say something.
func (a asked) All() iter.Seq2[types.PolicyID, *cedar.Policy] {
	return func(yield func(types.PolicyID, *cedar.Policy) bool) {
		for i := range a.rules {
			one := &a.rules[i]
			if a.held != nil && one.slot >= 0 && (!a.held[one.slot].ok || a.held[one.slot].text != one.guard.text) {
				continue
			}
			if !yield(one.id, one.cedar) {
				return
			}
		}
	}
}
