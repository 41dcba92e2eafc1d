package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// A Cedar schema describes records of a fixed shape, but each tool has its own
// arguments. So a check infers the shape that a rule expects from the way that the rule
// uses each argument, and validates the rule against it. Every argument is optional.

// shape is the type that a rule expects of an argument, or its members.
type shape struct {
	kind  string // empty while unknown
	parts map[string]*shape
}

// expected collects the shapes that a rule expects. Problems are arguments that it
// uses with two types.
type expected struct {
	arguments shape
	pathOf    map[string]string
	problems  []string
}

func expect(p *ast.Policy, declared map[string]string) *expected {
	e := &expected{pathOf: map[string]string{}}
	for _, c := range p.Conditions {
		e.expectType(c.Body, "Bool")
		e.walk(c.Body)
	}
	for name, kind := range declared {
		if e.arguments.parts == nil {
			e.arguments.parts = map[string]*shape{}
		}
		e.arguments.parts[name] = &shape{kind: kind}
	}
	return e
}

// schema returns the expected arguments as the members of a record in a schema.
func (s *shape) schema() map[string]string {
	parts := map[string]string{}
	for name, part := range s.parts {
		switch {
		case len(part.parts) > 0:
			parts[name] = recordText(part.schema())
		case part.kind != "":
			parts[name] = part.kind
		default:
			parts[name] = "String" // the rule uses only has
		}
	}
	return parts
}

// find returns the shape of an argument or of a member of one; nil for any other
// expression.
func (e *expected) find(n ast.IsNode) *shape {
	access, ok := n.(ast.NodeTypeAccess)
	if !ok {
		return nil
	}
	if isContext(access.Arg) {
		if access.Value == "arguments" {
			return &e.arguments
		}
		return nil
	}
	if above, ok := access.Arg.(ast.NodeTypeAccess); ok && isContext(above.Arg) && above.Value == "path_of" {
		e.pathOf[string(access.Value)] = "Places"
		return nil
	}
	above := e.find(access.Arg)
	if above == nil {
		return nil
	}
	return above.part(string(access.Value))
}

func (s *shape) part(name string) *shape {
	if s.parts == nil {
		s.parts = map[string]*shape{}
	}
	if s.parts[name] == nil {
		s.parts[name] = &shape{}
	}
	return s.parts[name]
}

// expectType records that an expression is used with a type.
func (e *expected) expectType(n ast.IsNode, kind string) {
	s := e.find(n)
	if s == nil || s == &e.arguments || kind == "" || s.kind == kind {
		return
	}
	if s.kind == "" {
		s.kind = kind
		return
	}
	name := n.(ast.NodeTypeAccess).Value
	problem := fmt.Sprintf("the argument %s is used both as %s and as %s", quote(string(name)), s.kind, kind)
	if !slices.Contains(e.problems, problem) {
		e.problems = append(e.problems, problem)
	}
}

// walk records the type of every expression.
func (e *expected) walk(root ast.IsNode) {
	ast.Inspect(ast.NewNode(root), func(n ast.IsNode) bool {
		switch n := n.(type) {
		case ast.NodeTypeAccess:
			e.find(n)
		case ast.NodeTypeHas:
			if access, ok := n.Arg.(ast.NodeTypeAccess); ok && isContext(access.Arg) && access.Value == "path_of" {
				e.pathOf[string(n.Value)] = "Places"
			} else if s := e.find(n.Arg); s != nil {
				s.part(string(n.Value))
			}
		case ast.NodeTypeLike:
			e.expectType(n.Arg, "String")
		case ast.NodeTypeEquals:
			e.alike(n.BinaryNode)
		case ast.NodeTypeNotEquals:
			e.alike(n.BinaryNode)
		case ast.NodeTypeLessThan:
			e.ordered(n.BinaryNode)
		case ast.NodeTypeLessThanOrEqual:
			e.ordered(n.BinaryNode)
		case ast.NodeTypeGreaterThan:
			e.ordered(n.BinaryNode)
		case ast.NodeTypeGreaterThanOrEqual:
			e.ordered(n.BinaryNode)
		case ast.NodeTypeAdd:
			e.both(n.BinaryNode, "Long")
		case ast.NodeTypeSub:
			e.both(n.BinaryNode, "Long")
		case ast.NodeTypeMult:
			e.both(n.BinaryNode, "Long")
		case ast.NodeTypeAnd:
			e.both(n.BinaryNode, "Bool")
		case ast.NodeTypeOr:
			e.both(n.BinaryNode, "Bool")
		case ast.NodeTypeNot:
			e.expectType(n.Arg, "Bool")
		case ast.NodeTypeIfThenElse:
			e.expectType(n.If, "Bool")
		case ast.NodeTypeIsEmpty:
			e.expectType(n.Arg, "Set<String>")
		case ast.NodeTypeContains:
			e.expectType(n.Left, "Set<"+cmp.Or(kindOf(n.Right), "String")+">")
			e.expectType(n.Right, elementOf(n.Left))
		case ast.NodeTypeContainsAll:
			e.sets(n.BinaryNode)
		case ast.NodeTypeContainsAny:
			e.sets(n.BinaryNode)
		case ast.NodeTypeExtensionCall:
			e.extension(n)
		}
		return true
	})
}

func (e *expected) both(n ast.BinaryNode, kind string) {
	e.expectType(n.Left, kind)
	e.expectType(n.Right, kind)
}

func (e *expected) alike(n ast.BinaryNode) {
	e.expectType(n.Left, kindOf(n.Right))
	e.expectType(n.Right, kindOf(n.Left))
}

// ordered records a comparison: of longs, unless a side has another type.
func (e *expected) ordered(n ast.BinaryNode) {
	e.expectType(n.Left, cmp.Or(kindOf(n.Right), "Long"))
	e.expectType(n.Right, cmp.Or(kindOf(n.Left), "Long"))
}

func (e *expected) sets(n ast.BinaryNode) {
	e.expectType(n.Left, "Set<"+cmp.Or(elementOf(n.Right), "String")+">")
	e.expectType(n.Right, "Set<"+cmp.Or(elementOf(n.Left), "String")+">")
}

var (
	decimalMethods = words("lessThan lessThanOrEqual greaterThan greaterThanOrEqual")
	addressMethods = words("isIpv4 isIpv6 isLoopback isMulticast isInRange")
	textMakers     = words("ip decimal datetime duration")
)

func (e *expected) extension(n ast.NodeTypeExtensionCall) {
	kind := ""
	switch name := string(n.Name); {
	case decimalMethods[name]:
		kind = "decimal"
	case addressMethods[name]:
		kind = "ipaddr"
	case textMakers[name]:
		kind = "String"
	}
	for _, arg := range n.Args {
		e.expectType(arg, kind)
	}
}

// kindOf returns the type of an expression; empty if it does not show.
func kindOf(n ast.IsNode) string {
	switch n := n.(type) {
	case ast.NodeValue:
		return kindOfValue(n.Value)
	case ast.NodeTypeExtensionCall:
		switch n.Name {
		case "ip":
			return "ipaddr"
		case "decimal", "datetime", "duration":
			return string(n.Name)
		}
	case ast.NodeTypeSet:
		return "Set<" + cmp.Or(elementOf(n), "String") + ">"
	case ast.NodeTypeAccess:
		if isContext(n.Arg) && contextTexts[string(n.Value)] {
			return "String"
		}
		if v, ok := n.Arg.(ast.NodeTypeVariable); ok && (v.Name == "principal" || v.Name == "resource") && n.Value != "scopes" {
			return "String"
		}
	}
	return ""
}

var (
	contextTexts = words("caller side_effect skill")
	contextSets  = words("paths paths_any_under paths_all_under hosts hosts_any_under hosts_all_under databases")
)

func kindOfValue(v types.Value) string {
	switch v := v.(type) {
	case types.String:
		return "String"
	case types.Long:
		return "Long"
	case types.Boolean:
		return "Bool"
	case types.Decimal:
		return "decimal"
	case types.Datetime:
		return "datetime"
	case types.Duration:
		return "duration"
	case types.IPAddr:
		return "ipaddr"
	case types.Set:
		for one := range v.All() {
			return "Set<" + cmp.Or(kindOfValue(one), "String") + ">"
		}
		return "Set<String>"
	}
	return ""
}

// elementOf returns the type of a set's elements; empty if it does not show.
func elementOf(n ast.IsNode) string {
	switch n := n.(type) {
	case ast.NodeTypeSet:
		if len(n.Elements) > 0 {
			return kindOf(n.Elements[0])
		}
	case ast.NodeValue:
		if s, ok := n.Value.(types.Set); ok {
			for one := range s.All() {
				return kindOfValue(one)
			}
		}
	case ast.NodeTypeAccess:
		if isContext(n.Arg) && contextSets[string(n.Value)] || n.Value == "scopes" {
			return "String"
		}
	}
	return ""
}
