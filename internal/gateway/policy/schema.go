package policy

import (
	_ "embed"
	"fmt"

	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
)

// Schema is the Cedar schema of the entities and the context that rules can use.
//
//go:embed schema.cedarschema
var Schema string

// Starter is a policy file for new users, with explanations and example rules to uncomment.
//
//go:embed starter.cedar
var Starter string

// ParseSchema parses the user's copy of the schema. It returns the arguments that the schema declares, and makes all of
// them optional.
func ParseSchema(file string, text []byte) (ast.RecordType, error) {
	var s schema.Schema
	s.SetFilename(file)
	err := s.UnmarshalCedar(text)
	if err == nil {
		_, err = s.Resolve()
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not a valid Cedar schema: %w", file, err)
	}
	declared := ast.RecordType{}
	arguments, _ := s.AST().CommonTypes["Arguments"].Type.(ast.RecordType)
	for name, a := range arguments {
		a.Optional = true
		// Skip arguments whose types the user defined, because ambit's schema does not contain these types.
		if _, err := schemaFor(ast.RecordType{name: a}, nil); err == nil {
			declared[name] = a
		}
	}
	return declared, nil
}

// schemaFor returns ambit's schema with the given members in the types Arguments and PathOf.
func schemaFor(arguments, pathOf ast.RecordType) (*resolved.Schema, error) {
	var s schema.Schema
	if err := s.UnmarshalCedar([]byte(Schema)); err != nil {
		return nil, err
	}
	s.AST().CommonTypes["Arguments"] = ast.CommonType{Type: arguments}
	s.AST().CommonTypes["PathOf"] = ast.CommonType{Type: pathOf}
	return s.Resolve()
}
