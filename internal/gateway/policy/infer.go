package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
	schema "github.com/cedar-policy/cedar-go/x/exp/schema/ast"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// A Cedar schema describes records with fixed members, but each tool has its own arguments. Rules.Check therefore
// infers the type of each argument from its use in a rule. It then validates the rule against the inferred types.
// Every argument is optional.

// shape is the type that a rule expects an argument to have: a named type, or a record with parts.
type shape struct {
	kind  string // empty while unknown
	parts map[types.String]*shape
}

// expectedTypes collects the types that a rule expects its arguments to have. The problems describe arguments that the
// rule uses with two types.
type expectedTypes struct {
	arguments shape
	pathOf    schema.RecordType
	problems  []string
}

func expect(p *ast.Policy) *expectedTypes {
	e := &expectedTypes{pathOf: schema.RecordType{}}
	for _, c := range p.Conditions {
		e.expectType(c.Body, "Bool")
		e.walk(c.Body)
	}
	return e
}

// record returns the shape's parts as a record type for a schema.
func (s *shape) record() schema.RecordType {
	members := schema.RecordType{}
	for name, part := range s.parts {
		kind := typeNamed(cmp.Or(part.kind, "String")) // a "has" test alone does not show the type
		if len(part.parts) > 0 {
			kind = part.record()
		}
		members[name] = schema.Attribute{Type: kind, Optional: true}
	}
	return members
}

func typeNamed(kind string) schema.IsType {
	if element, ok := strings.CutPrefix(kind, "Set<"); ok {
		return schema.SetType{Element: typeNamed(strings.TrimSuffix(element, ">"))}
	}
	return schema.TypeRef(kind)
}

// find returns the shape of an argument or of a member of an argument. It returns nil for any other expression.
func (e *expectedTypes) find(n ast.IsNode) *shape {
	access, ok := n.(ast.NodeTypeAccess)
	if !ok {
		return nil
	}
	if isPart(access, "arguments") {
		return &e.arguments
	}
	if isPart(access.Arg, "path_of") {
		e.expectPath(access.Value)
		return nil
	}
	above := e.find(access.Arg)
	if above == nil {
		return nil
	}
	return above.part(access.Value)
}

func (e *expectedTypes) expectPath(name types.String) {
	e.pathOf[name] = schema.Attribute{Type: schema.TypeRef("Places"), Optional: true}
}

func (s *shape) part(name types.String) *shape {
	if s.parts == nil {
		s.parts = map[types.String]*shape{}
	}
	if s.parts[name] == nil {
		s.parts[name] = &shape{}
	}
	return s.parts[name]
}

// expectType records that a rule uses an expression as a value of the given type.
func (e *expectedTypes) expectType(n ast.IsNode, kind string) {
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

// walk infers types from root and from all expressions below it.
func (e *expectedTypes) walk(root ast.IsNode) {
	for n := range nodes(root) {
		switch n := n.(type) {
		case ast.NodeTypeAccess:
			e.find(n)
		case ast.NodeTypeHas:
			if isPart(n.Arg, "path_of") {
				e.expectPath(n.Value)
			} else if s := e.find(n.Arg); s != nil {
				s.part(n.Value)
			}
		case ast.NodeTypeLike:
			e.expectType(n.Arg, "String")
		case ast.NodeTypeEquals:
			e.expectSame(n.BinaryNode, "")
		case ast.NodeTypeNotEquals:
			e.expectSame(n.BinaryNode, "")
		case ast.NodeTypeLessThan:
			e.expectSame(n.BinaryNode, "Long")
		case ast.NodeTypeLessThanOrEqual:
			e.expectSame(n.BinaryNode, "Long")
		case ast.NodeTypeGreaterThan:
			e.expectSame(n.BinaryNode, "Long")
		case ast.NodeTypeGreaterThanOrEqual:
			e.expectSame(n.BinaryNode, "Long")
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
			e.expectSame(n.BinaryNode, "Set<String>")
		case ast.NodeTypeContainsAny:
			e.expectSame(n.BinaryNode, "Set<String>")
		case ast.NodeTypeExtensionCall:
			e.extension(n)
		}
	}
}

func (e *expectedTypes) both(n ast.BinaryNode, kind string) {
	e.expectType(n.Left, kind)
	e.expectType(n.Right, kind)
}

// expectSame records that both operands of an operator have the same type. If the type of one operand is known, the
// other operand gets this type. If it is unknown, the other operand gets the usual type for the operator.
func (e *expectedTypes) expectSame(n ast.BinaryNode, usual string) {
	e.expectType(n.Left, cmp.Or(kindOf(n.Right), usual))
	e.expectType(n.Right, cmp.Or(kindOf(n.Left), usual))
}

var (
	decimalMethods = words("lessThan lessThanOrEqual greaterThan greaterThanOrEqual")
	addressMethods = words("isIpv4 isIpv6 isLoopback isMulticast isInRange")
	textMakers     = words("ip decimal datetime duration")
)

func (e *expectedTypes) extension(n ast.NodeTypeExtensionCall) {
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

// sample is the environment of a call without arguments. It is used to evaluate expressions that do not depend on
// arguments.
var sample = func() eval.Env {
	v := (&Rules{}).view(subject{}, nil, nil)
	return eval.Env{
		Entities: v.entities, Principal: v.principal, Action: callAction, Resource: v.resource,
		Context: (&facts{view: v, m: callInfo{skill: "x", flow: &call.Flow{}}}).context(everyPart),
	}
}()

// kindOf returns the type of an expression, or "" if the expression depends on arguments.
func kindOf(n ast.IsNode) string {
	v, _ := eval.Eval(n, sample)
	return kindOfValue(v)
}

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

// elementOf returns the type of a set's elements, or "" if it is unknown.
func elementOf(n ast.IsNode) string {
	element, _ := strings.CutPrefix(strings.TrimSuffix(kindOf(n), ">"), "Set<")
	return element
}
