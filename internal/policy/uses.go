package policy

import (
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// part is a set of parts of the context.
type part uint16

const (
	partCaller part = 1 << iota
	partSideEffect
	partTime
	partAnnotations
	partSkill
	partArguments
	partPathOf
	partPaths
	partPathsAny
	partPathsAll
	partHosts
	partHostsAny
	partHostsAll
	partDatabases

	everyPart = partDatabases<<1 - 1

	somePaths = partPaths | partPathsAny | partPathsAll
	someHosts = partHosts | partHostsAny | partHostsAll
	// ofArguments are the parts that come from the arguments of a call.
	ofArguments = partArguments | partPathOf | somePaths | someHosts | partDatabases
)

// partNames are the names of the parts in Cedar.
var partNames = map[string]part{
	"caller": partCaller, "side_effect": partSideEffect, "time": partTime, "annotations": partAnnotations, "skill": partSkill,
	"arguments": partArguments, "path_of": partPathOf,
	"paths": partPaths, "paths_any_under": partPathsAny, "paths_all_under": partPathsAll,
	"hosts": partHosts, "hosts_any_under": partHostsAny, "hosts_all_under": partHostsAll,
	"databases": partDatabases,
}

// nameOf is the other way round.
var nameOf = func() map[part]types.String {
	names := map[part]types.String{}
	for name, p := range partNames {
		names[p] = types.String(name)
	}
	return names
}()

// uses is which parts of the context rules look at, so that only these are made.
type uses struct {
	parts part
	// arguments and pathOf are the names below these two; wholeArguments and
	// wholePathOf say that every one counts.
	arguments, pathOf           map[string]bool
	wholeArguments, wholePathOf bool
}

func (u *uses) add(other uses) {
	u.parts |= other.parts
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
	union(&u.arguments, other.arguments)
	union(&u.pathOf, other.pathOf)
}

// has reports whether any of some parts is looked at.
func (u *uses) has(parts part) bool { return u.parts&parts != 0 }

// argument reports whether a top-level argument is looked at.
func (u *uses) argument(name string) bool { return u.wholeArguments || u.arguments[name] }

// path reports whether an argument's readings as a path are.
func (u *uses) path(name string) bool { return u.wholePathOf || u.pathOf[name] }

// usesOf looks through the conditions of a rule.
func usesOf(p *ast.Policy) uses {
	u := uses{arguments: map[string]bool{}, pathOf: map[string]bool{}}
	for _, c := range p.Conditions {
		ast.Inspect(ast.NewNode(c.Body), u.visit)
	}
	return u
}

// visit notes one node, and says whether to look below it.
func (u *uses) visit(n ast.IsNode) bool {
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		// Whoever asks for a part of it is caught before.
		if n.Name == "context" {
			u.parts, u.wholeArguments, u.wholePathOf = everyPart, true, true
		}
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
		u.parts |= partNames[name]
		u.wholeArguments = u.wholeArguments || name == "arguments"
		u.wholePathOf = u.wholePathOf || name == "path_of"
		return false
	}
	switch {
	case isPart(n.Arg, "arguments"):
		u.parts |= partArguments
		u.arguments[name] = true
		return false
	case isPart(n.Arg, "path_of"):
		u.parts |= partPathOf
		u.pathOf[name] = true
		return false
	}
	return true
}

func isContext(n ast.IsNode) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && v.Name == "context"
}

// isPart reports whether a node is context.NAME.
func isPart(n ast.IsNode, name string) bool {
	of, ok := n.(ast.NodeTypeAccess)
	return ok && string(of.Value) == name && isContext(of.Arg)
}
