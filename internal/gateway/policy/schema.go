package policy

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
)

// Schema is the Cedar schema of what rules can speak of.
//
//go:embed schema.cedarschema
var Schema string

// Starter is a policy to begin with: explanations, and rules to uncomment.
//
//go:embed starter.cedar
var Starter string

// ParseSchema reads the user's copy of the schema, which may name arguments.
func ParseSchema(file string, text []byte) (map[string]string, error) {
	var s schema.Schema
	s.SetFilename(file)
	if err := s.UnmarshalCedar(text); err != nil {
		return nil, fmt.Errorf("%s is not a valid Cedar schema: %w", file, err)
	}
	if _, err := s.Resolve(); err != nil {
		return nil, fmt.Errorf("%s is not a valid Cedar schema: %w", file, err)
	}
	declared := map[string]string{}
	if record, ok := s.AST().CommonTypes["Arguments"].Type.(ast.RecordType); ok {
		for name, attribute := range record {
			if text := typeText(attribute.Type); text != "" {
				declared[string(name)] = text
			}
		}
	}
	return declared, nil
}

var builtin = words("String Long Bool decimal ipaddr datetime duration")

// typeText writes the types that an argument can have; empty for one that it
// cannot.
func typeText(t ast.IsType) string {
	switch t := t.(type) {
	case ast.StringType:
		return "String"
	case ast.LongType:
		return "Long"
	case ast.BoolType:
		return "Bool"
	case ast.ExtensionType:
		return string(t)
	case ast.TypeRef:
		if builtin[string(t)] {
			return string(t)
		}
	case ast.SetType:
		if inner := typeText(t.Element); inner != "" {
			return "Set<" + inner + ">"
		}
	case ast.RecordType:
		parts := map[string]string{}
		for name, attribute := range t {
			if parts[string(name)] = typeText(attribute.Type); parts[string(name)] == "" {
				return ""
			}
		}
		return recordText(parts)
	}
	return ""
}

// recordText writes a record of which everything may be absent.
func recordText(parts map[string]string) string {
	var b strings.Builder
	b.WriteString("{\n")
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		fmt.Fprintf(&b, "  %s?: %s,\n", types.String(name).MarshalCedar(), parts[name])
	}
	b.WriteString("}")
	return b.String()
}

// schemaFor is the schema with these arguments in it.
func schemaFor(arguments, pathOf map[string]string) (*resolved.Schema, error) {
	text := strings.Replace(Schema, "type Arguments = {\n}", "type Arguments = "+recordText(arguments), 1)
	text = strings.Replace(text, "type PathOf = {\n}", "type PathOf = "+recordText(pathOf), 1)
	var s schema.Schema
	if err := s.UnmarshalCedar([]byte(text)); err != nil {
		return nil, err
	}
	return s.Resolve()
}
