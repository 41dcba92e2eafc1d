package policy

import (
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// part is a bit mask that selects parts of the context.
type part uint16

const (
	partCall part = 1 << iota // data about the tool
	partTime
	partCaller     // the caller's name
	partCredential // data from the caller's credential
	partSkill
	partFlow // data about the origin of the arguments
	partArguments
	partPathOf
	partPaths
	partHosts
	partDatabases

	everyPart = partDatabases<<1 - 1
	// placeParts contains the parts with places: paths, hosts and databases.
	placeParts = partPaths | partHosts | partDatabases
	// ofArguments contains the parts that come from the arguments.
	ofArguments = placeParts | partArguments | partPathOf
)

// partTable lists each attribute of the context, the part that contains it, and a function that returns its value. If
// the value is nil, the context does not have the attribute.
var partTable = []struct {
	name  types.String
	part  part
	value func(*facts) types.Value
}{
	{"caller", partCaller, func(f *facts) types.Value { return types.String(f.m.caller) }},
	{"side_effect", partCall, func(f *facts) types.Value { return types.String(f.m.sideEffect) }},
	{"time", partTime, func(f *facts) types.Value { return types.NewDatetime(f.m.time) }},
	{"annotations", partCall, func(f *facts) types.Value { return hints(f.m.annotations) }},
	{"skill", partSkill, (*facts).skill},
	{"issuer", partCredential, (*facts).issuer},
	{"acr", partCredential, (*facts).acr},
	{"amr", partCredential, (*facts).amr},
	{"flow", partFlow, (*facts).origins},
	{"arguments", partArguments, func(f *facts) types.Value { return types.NewRecord(f.arguments) }},
	{"path_of", partPathOf, (*facts).pathsOf},
	{"paths", partPaths, func(f *facts) types.Value { return set(f.paths.values) }},
	{"paths_any_under", partPaths, func(f *facts) types.Value { return set(f.paths.inAny) }},
	{"paths_all_under", partPaths, func(f *facts) types.Value { return set(f.paths.inAll) }},
	{"hosts", partHosts, func(f *facts) types.Value { return set(f.hosts.values) }},
	{"hosts_any_under", partHosts, func(f *facts) types.Value { return set(f.hosts.inAny) }},
	{"hosts_all_under", partHosts, func(f *facts) types.Value { return set(f.hosts.inAll) }},
	{"databases", partDatabases, func(f *facts) types.Value { return set(f.databases) }},
}

// partNamed returns the part that contains an attribute of the context, or 0 if there is no such attribute.
func partNamed(name types.String) part {
	for _, p := range partTable {
		if p.name == name {
			return p.part
		}
	}
	return 0
}

// usage describes which parts of the context rules read. ambit builds only these parts. Argument names are folded, so
// that all spellings of a name are equal.
type usage struct {
	parts part
	// The fields arguments and pathOf contain the names that rules use directly below context.arguments and
	// context.path_of. If wholeArguments or wholePathOf is set, rules use every name there.
	arguments, pathOf           names
	wholeArguments, wholePathOf bool
	// members contains the names that rules use at any depth below context.arguments.
	members names
	// asPlace contains the arguments that a rule compares with a path or a URL. The value is true for a URL.
	asPlace map[string]bool
	// single contains the arguments that a rule compares with a single path or URL. Such an argument must not be a list,
	// because in Cedar a list never equals a string.
	single map[string]bool
	// beyondASCII is set if a rule compares an argument with a path or a URL that has non-ASCII characters.
	beyondASCII bool
}

// names is a map from the folded form of a name to its spellings.
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

// fold returns a canonical form of an argument name. Spellings that some programs treat as the same name have the same
// canonical form. fold applies NFKC normalization, folds the case, and keeps only letters, digits and marks.
func fold(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == "" {
		return name // the fast path for most names
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			return -1
		}
		return r
	}, cases.Fold().String(norm.NFKC.String(name)))
}

func newUsage() usage {
	return usage{
		arguments: names{}, pathOf: names{}, members: names{}, asPlace: map[string]bool{}, single: map[string]bool{},
	}
}

func (u *usage) add(other usage) {
	u.parts |= other.parts
	u.wholeArguments = u.wholeArguments || other.wholeArguments
	u.wholePathOf = u.wholePathOf || other.wholePathOf
	u.beyondASCII = u.beyondASCII || other.beyondASCII
	maps.Copy(u.single, other.single)
	u.arguments.union(other.arguments)
	u.pathOf.union(other.pathOf)
	u.members.union(other.members)
	for name, isURL := range other.asPlace {
		u.asPlace[name] = u.asPlace[name] || isURL
	}
}

// has reports whether rules read any of the given parts.
func (u *usage) has(parts part) bool { return u.parts&parts != 0 }

// readsPaths reports whether rules use an argument that can be a path, in context.arguments or in context.path_of.
func (u *usage) readsPaths() bool {
	for name := range u.members {
		if words := wordsOf(u.members[name][0]); pathWords.any(words) || perhapsPaths.any(words) {
			return true
		}
	}
	return len(u.asPlace) > 0 || len(u.pathOf) > 0 || u.wholeArguments || u.wholePathOf
}

// usageOf returns what the conditions of a rule read from the context.
func usageOf(p *ast.Policy) usage {
	u := newUsage()
	for _, c := range p.Conditions {
		ast.Inspect(ast.NewNode(c.Body), u.visit)
		for n := range nodes(c.Body) {
			u.compare(n)
		}
	}
	return u
}

// nodes returns the given nodes and every node below them.
func nodes(roots ...ast.IsNode) iter.Seq[ast.IsNode] {
	return func(yield func(ast.IsNode) bool) {
		more := true
		for _, root := range roots {
			ast.Inspect(ast.NewNode(root), func(n ast.IsNode) bool {
				more = more && yield(n)
				return more
			})
		}
	}
}

// visit records what one node reads. The result reports whether the nodes below it must be visited too.
func (u *usage) visit(n ast.IsNode) bool {
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		if n.Name == "context" { // the rule uses the whole context; visitPart handles context.NAME
			u.parts, u.wholeArguments, u.wholePathOf = everyPart, true, true
		}
	case ast.NodeTypeHas:
		return u.visitPart(n.StrOpNode)
	case ast.NodeTypeAccess:
		return u.visitPart(n.StrOpNode)
	}
	return true
}

// visitPart records that a rule reads context.X, context.arguments.X or context.path_of.X. The result reports whether
// the nodes below must be visited too.
func (u *usage) visitPart(n ast.StrOpNode) bool {
	name := string(n.Value)
	if isContext(n.Arg) {
		u.parts |= partNamed(n.Value)
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

// compare records the arguments that a node compares with a path or a URL.
func (u *usage) compare(n ast.IsNode) {
	if like, ok := n.(ast.NodeTypeLike); ok {
		u.compared([]string{pattern(like)}, like.Arg)
	}
	sides, ok := sidesOf(n)
	if !ok {
		return
	}
	var texts []string
	for n := range nodes(sides.Left, sides.Right) {
		if v, ok := n.(ast.NodeValue); ok {
			texts = append(texts, textsIn(v.Value)...)
		}
	}
	u.compared(texts, sides.Left, sides.Right)
	switch n.(type) {
	case ast.NodeTypeEquals, ast.NodeTypeNotEquals:
		for _, text := range []ast.IsNode{sides.Left, sides.Right} {
			if v, _ := text.(ast.NodeValue); isText(v.Value) {
				u.compareOne(sides.Left, text)
				u.compareOne(sides.Right, text)
			}
		}
	case ast.NodeTypeContains:
		u.compareOne(sides.Right, sides.Left)
	}
}

// compareOne records an argument that a rule compares with a single string or with the elements of a set.
func (u *usage) compareOne(argument, other ast.IsNode) {
	access, ok := argument.(ast.NodeTypeAccess)
	if !ok || !isArgument(access) {
		return
	}
	name := string(access.Value)
	for n := range nodes(other) {
		v, _ := n.(ast.NodeValue)
		texts := textsIn(v.Value)
		if slices.ContainsFunc(texts, looksLikePlace) || len(texts) > 0 && placeWords.any(wordsOf(name)) {
			u.single[fold(name)] = true
		}
	}
}

func isText(v types.Value) bool {
	_, ok := v.(types.String)
	return ok
}

// sidesOf returns the two operands of a comparison between strings or sets.
func sidesOf(n ast.IsNode) (sides ast.BinaryNode, ok bool) {
	switch n := n.(type) {
	case ast.NodeTypeEquals:
		return n.BinaryNode, true
	case ast.NodeTypeNotEquals:
		return n.BinaryNode, true
	case ast.NodeTypeContains:
		return n.BinaryNode, true
	case ast.NodeTypeContainsAll:
		return n.BinaryNode, true
	case ast.NodeTypeContainsAny:
		return n.BinaryNode, true
	}
	return sides, false
}

func pattern(n ast.NodeTypeLike) string { return strings.Trim(string(n.Value.MarshalCedar()), `"`) }

func (u *usage) compared(texts []string, sides ...ast.IsNode) {
	if texts = slices.DeleteFunc(texts, func(text string) bool { return !looksLikePlace(text) }); len(texts) == 0 {
		return
	}
	u.beyondASCII = u.beyondASCII || slices.ContainsFunc(texts, func(text string) bool { return !isASCII(text) })
	isURL := slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "://") })
	for n := range nodes(sides...) {
		if access, ok := n.(ast.NodeTypeAccess); ok && isArgument(access) {
			name := fold(string(access.Value))
			u.asPlace[name] = u.asPlace[name] || isURL
		}
	}
}

// looksLikePlace reports whether a string in a rule looks like a path or a URL. Such a string either starts like a path
// or a URL, or is a single word that contains a slash or backslash and does not start with a wildcard.
func looksLikePlace(text string) bool {
	return placeStart.MatchString(text) ||
		strings.ContainsAny(text, `/\`) && !strings.HasPrefix(text, "*") && !strings.ContainsAny(text, " \t\n")
}

var placeStart = regexp.MustCompile(`^(?:/|[A-Za-z]:/|[A-Za-z][A-Za-z0-9+.-]*://)`)

func isContext(n ast.IsNode) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && v.Name == "context"
}

// isPart reports whether a node is context.NAME.
func isPart(n ast.IsNode, name string) bool {
	of, ok := n.(ast.NodeTypeAccess)
	return ok && string(of.Value) == name && isContext(of.Arg)
}

// isArgument reports whether a node is context.arguments or a member of it at any depth.
func isArgument(n ast.IsNode) bool {
	access, ok := n.(ast.NodeTypeAccess)
	return ok && (isPart(n, "arguments") || isArgument(access.Arg))
}

// textsIn returns the strings in a Cedar value, sorted.
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
