package policy

import (
	"slices"
	"strings"
	"unicode"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
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

// uses describes the parts of the context that rules read, so that only these are
// made. Names of arguments are folded: every spelling of a name is the same name.
type uses struct {
	parts part
	// arguments and pathOf are the names directly below these two, with the
	// spellings that rules use; the whole flags mean that every name counts.
	arguments, pathOf           names
	wholeArguments, wholePathOf bool
	// members are the names below arguments at any depth.
	members names
	// asPlace are the members that a rule compares with a path (false) or a URL (true).
	asPlace map[string]bool
}

// names are the spellings of names by their folded form.
type names map[string][]string

func (n names) add(name string) {
	if key := fold(name); !slices.Contains(n[key], name) {
		n[key] = append(n[key], name)
	}
}

func (n names) union(other names) {
	for _, spellings := range other {
		for _, name := range spellings {
			n.add(name)
		}
	}
}

// fold returns what all spellings of a name share that some program takes for one:
// its letters and digits, without case and in their compatible form.
func fold(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == "" {
		return name // as most names are
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			return -1
		}
		return r
	}, cases.Fold().String(norm.NFKC.String(name)))
}

func newUses() uses {
	return uses{arguments: names{}, pathOf: names{}, members: names{}, asPlace: map[string]bool{}}
}

func (u *uses) add(other uses) {
	u.parts |= other.parts
	u.wholeArguments = u.wholeArguments || other.wholeArguments
	u.wholePathOf = u.wholePathOf || other.wholePathOf
	u.arguments.union(other.arguments)
	u.pathOf.union(other.pathOf)
	u.members.union(other.members)
	for name, isURL := range other.asPlace {
		u.asPlace[name] = u.asPlace[name] || isURL
	}
}

// has reports whether rules read any of some parts.
func (u *uses) has(parts part) bool { return u.parts&parts != 0 }

// usesOf looks through the conditions of a rule.
func usesOf(p *ast.Policy) uses {
	u := newUses()
	for _, c := range p.Conditions {
		ast.Inspect(ast.NewNode(c.Body), u.visit)
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			u.compare(n)
			return true
		})
	}
	return u
}

// visit notes one node, and reports whether to look below it.
func (u *uses) visit(n ast.IsNode) bool {
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		if n.Name == "context" { // a part of the context is noted before
			u.parts, u.wholeArguments, u.wholePathOf = everyPart, true, true
		}
	case ast.NodeTypeHas:
		return u.visitPart(n.StrOpNode)
	case ast.NodeTypeAccess:
		return u.visitPart(n.StrOpNode)
	}
	return true
}

// visitPart notes a part of the context, arguments.X or path_of.X, and reports
// whether to look below.
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
		u.arguments.add(name)
		u.members.add(name)
		return false
	case isPart(n.Arg, "path_of"):
		u.parts |= partPathOf
		u.pathOf.add(name)
		return false
	}
	if isArgument(n.Arg) {
		u.members.add(name)
	}
	return true
}

// compare notes the arguments that a comparison holds against a path or a URL.
func (u *uses) compare(n ast.IsNode) {
	switch n := n.(type) {
	case ast.NodeTypeLike:
		u.compared([]string{strings.Trim(string(n.Value.MarshalCedar()), `"`)}, n.Arg)
	case ast.NodeTypeEquals:
		u.comparedBoth(n.BinaryNode)
	case ast.NodeTypeNotEquals:
		u.comparedBoth(n.BinaryNode)
	case ast.NodeTypeContains:
		u.comparedBoth(n.BinaryNode)
	case ast.NodeTypeContainsAll:
		u.comparedBoth(n.BinaryNode)
	case ast.NodeTypeContainsAny:
		u.comparedBoth(n.BinaryNode)
	}
}

func (u *uses) comparedBoth(n ast.BinaryNode) {
	var texts []string
	for _, side := range []ast.IsNode{n.Left, n.Right} {
		ast.Inspect(ast.NewNode(side), func(n ast.IsNode) bool {
			if v, ok := n.(ast.NodeValue); ok {
				texts = append(texts, textsIn(v.Value)...)
			}
			return true
		})
	}
	u.compared(texts, n.Left, n.Right)
}

func (u *uses) compared(texts []string, sides ...ast.IsNode) {
	if texts = slices.DeleteFunc(texts, func(text string) bool { return !looksLikePlace(text) }); len(texts) == 0 {
		return
	}
	isURL := slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "://") })
	for _, side := range sides {
		ast.Inspect(ast.NewNode(side), func(n ast.IsNode) bool {
			if access, ok := n.(ast.NodeTypeAccess); ok && isArgument(access) {
				name := fold(string(access.Value))
				u.asPlace[name] = u.asPlace[name] || isURL
			}
			return true
		})
	}
}

// looksLikePlace reports whether the text of a rule is a path or a URL: one word
// with a slash or backslash, that does not start with a wildcard.
func looksLikePlace(text string) bool {
	return strings.ContainsAny(text, `/\`) && !strings.HasPrefix(text, "*") && !strings.ContainsAny(text, " \t\n")
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

// isArgument reports whether a node is context.arguments or a part of it.
func isArgument(n ast.IsNode) bool {
	access, ok := n.(ast.NodeTypeAccess)
	return ok && (isPart(n, "arguments") || isArgument(access.Arg))
}

// textsIn are the texts in a value of Cedar, in order.
func textsIn(v types.Value) []string {
	switch v := v.(type) {
	case types.String:
		return []string{string(v)}
	case types.Set:
		var texts []string
		for one := range v.All() {
			texts = append(texts, textsIn(one)...)
		}
		slices.Sort(texts)
		return texts
	}
	return nil
}
