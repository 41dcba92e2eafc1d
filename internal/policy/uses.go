package policy

import (
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// uses is which parts of the context rules look at, so that only these are made.
type uses struct {
	// all says that the context is used as a whole, where nothing can be left out.
	all  bool
	part map[string]bool
	// arguments and pathOf are the names below these two; wholeArguments and
	// wholePathOf say that every one counts.
	arguments, pathOf           map[string]bool
	wholeArguments, wholePathOf bool
}

func (u *uses) add(other uses) {
	u.all = u.all || other.all
	u.wholeArguments = u.wholeArguments || other.wholeArguments
	u.wholePathOf = u.wholePathOf || other.wholePathOf
	union := func(into *map[string]bool, from map[string]bool) {
		for name := range from {
			if *into == nil {
				*into = map[string]bool{}
			}
			(*into)[name] = true
		}
	}
	union(&u.part, other.part)
	union(&u.arguments, other.arguments)
	union(&u.pathOf, other.pathOf)
}

// has reports whether a part of the context is looked at.
func (u *uses) has(part string) bool { return u.all || u.part[part] }

// argument reports whether a top-level argument is looked at.
func (u *uses) argument(name string) bool { return u.all || u.wholeArguments || u.arguments[name] }

// path reports whether an argument's readings as a path are.
func (u *uses) path(name string) bool { return u.all || u.wholePathOf || u.pathOf[name] }

// usesOf looks through the conditions of a rule, and notes every text in it.
func usesOf(p *ast.Policy, words map[string]bool) uses {
	u := uses{part: map[string]bool{}, arguments: map[string]bool{}, pathOf: map[string]bool{}}
	noteScope(p.Resource, words)
	for _, c := range p.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool { return u.visit(n, words) })
	}
	return u
}

// visit notes one node, and says whether to look below it.
func (u *uses) visit(n ast.IsNode, words map[string]bool) bool {
	switch n := n.(type) {
	case ast.NodeValue:
		noteWords(n.Value, words)
	case ast.NodeTypeVariable:
		// Whoever asks for a part of it is caught before.
		u.all = u.all || n.Name == "context"
	case ast.NodeTypeHas:
		return u.visitPart(n.StrOpNode)
	case ast.NodeTypeAccess:
		return u.visitPart(n.StrOpNode)
	}
	return true
}

// visitPart notes what is asked of the context: X, arguments.X or path_of.X. It
// says whether to look below.
func (u *uses) visitPart(n ast.StrOpNode) bool {
	name := string(n.Value)
	if isContext(n.Arg) {
		u.part[name] = true
		u.wholeArguments = u.wholeArguments || name == "arguments"
		u.wholePathOf = u.wholePathOf || name == "path_of"
		return false
	}
	if above, ok := n.Arg.(ast.NodeTypeAccess); ok && isContext(above.Arg) {
		switch above.Value {
		case "arguments":
			u.part["arguments"], u.arguments[name] = true, true
			return false
		case "path_of":
			u.part["path_of"], u.pathOf[name] = true, true
			return false
		}
	}
	return true
}

func isContext(n ast.IsNode) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && v.Name == "context"
}

func noteScope(s ast.IsScopeNode, words map[string]bool) {
	switch s := s.(type) {
	case ast.ScopeTypeEq:
		noteWords(s.Entity, words)
	case ast.ScopeTypeIn:
		noteWords(s.Entity, words)
	case ast.ScopeTypeIsIn:
		noteWords(s.Entity, words)
	}
}

func noteWords(v types.Value, words map[string]bool) {
	switch v := v.(type) {
	case types.String:
		words[string(v)] = true
	case types.EntityUID:
		words[string(v.ID)] = true
	case types.Set:
		for one := range v.All() {
			noteWords(one, words)
		}
	case types.Record:
		for one := range v.Values() {
			noteWords(one, words)
		}
	}
}
