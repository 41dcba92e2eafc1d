package guard

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Schema validates values against a JSON Schema. The schema is compiled on first use and cannot refer to other
// schemas. A Schema is safe for concurrent use.
type Schema struct {
	text string

	once   sync.Once
	schema *jsonschema.Schema
	err    error
}

// maxSchema is the maximum size of a schema in bytes. maxProblems is the maximum number of reported problems.
const (
	maxSchema   = 1 << 20
	maxProblems = 5
)

// NewSchema returns a Schema for the text of a JSON Schema. An empty text accepts every value.
func NewSchema(text string) *Schema { return &Schema{text: text} }

// Problem is a requirement of a schema that a value does not meet. It never contains the value.
type Problem struct {
	Pointer string `json:"pointer"`
	Message string `json:"message"`
}

// noLoader refuses references to other schemas.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("the schema refers to %s; a schema can only refer to itself", url)
}

func (s *Schema) compile() {
	if len(s.text) > maxSchema {
		s.err = fmt.Errorf("the schema has %d bytes; at most %d are allowed", len(s.text), maxSchema)
		return
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(s.text))
	if err != nil {
		s.err = fmt.Errorf("the schema is not JSON: %w", err)
		return
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.DefaultDraft(jsonschema.Draft2020)
	const home = "ambit:schema"
	if s.err = c.AddResource(home, doc); s.err == nil {
		s.schema, s.err = c.Compile(home)
	}
}

// Check returns the requirements that a value does not meet. An error means that the schema itself cannot be used.
func (s *Schema) Check(value jsontext.Value) (problems []Problem, err error) {
	if s == nil || s.text == "" {
		return nil, nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("the schema could not be checked")
		}
	}()
	if s.once.Do(s.compile); s.err != nil {
		return nil, s.err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return []Problem{{"", "is not JSON"}}, nil
	}
	if err = s.schema.Validate(doc); err == nil {
		return nil, nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil, errors.New("the schema could not be checked")
	}
	return describe(invalid, nil), nil
}

// describe appends a problem for each leaf in a tree of validation errors.
func describe(e *jsonschema.ValidationError, problems []Problem) []Problem {
	if len(problems) == maxProblems {
		return problems
	}
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf, *kind.Not:
		// Report only this error, because listing the problems of every alternative would not help the reader.
	default:
		if len(e.Causes) > 0 {
			for _, c := range e.Causes {
				problems = describe(c, problems)
			}
			return problems
		}
	}
	var pointer strings.Builder
	for _, name := range e.InstanceLocation {
		pointer.WriteString("/" + pointerEscapes.Replace(name))
	}
	return append(problems, Problem{pointer.String(), requirement(e.ErrorKind)})
}

// requirement describes the requirement that a value violates. It does not quote the value.
func requirement(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be " + strings.Join(k.Want, " or ") + ", not " + k.Got
	case *kind.Required:
		return "needs " + strings.Join(k.Missing, ", ")
	case *kind.AdditionalProperties:
		return fmt.Sprintf("has %s that the schema does not allow", count(len(k.Properties), "member"))
	case *kind.Enum:
		return "is not one of the allowed values"
	case *kind.Const:
		return "is not the required value"
	case *kind.Pattern:
		return fmt.Sprintf("does not match the pattern %q", k.Want)
	case *kind.Format:
		return "does not have the format " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("is shorter than %s", count(k.Want, "character"))
	case *kind.MaxLength:
		return fmt.Sprintf("is longer than %s", count(k.Want, "character"))
	case *kind.MinItems:
		return fmt.Sprintf("has fewer than %s", count(k.Want, "item"))
	case *kind.MaxItems:
		return fmt.Sprintf("has more than %s", count(k.Want, "item"))
	case *kind.MinProperties:
		return fmt.Sprintf("has fewer than %s", count(k.Want, "member"))
	case *kind.MaxProperties:
		return fmt.Sprintf("has more than %s", count(k.Want, "member"))
	case *kind.Minimum:
		return "is less than " + k.Want.RatString()
	case *kind.Maximum:
		return "is more than " + k.Want.RatString()
	case *kind.ExclusiveMinimum:
		return "is not more than " + k.Want.RatString()
	case *kind.ExclusiveMaximum:
		return "is not less than " + k.Want.RatString()
	case *kind.MultipleOf:
		return "is not a multiple of " + k.Want.RatString()
	case *kind.UniqueItems:
		return "has a duplicate item"
	case *kind.FalseSchema:
		return "is not allowed here"
	case *kind.AnyOf:
		return "matches none of the allowed alternatives"
	case *kind.OneOf:
		return "does not match exactly one of the allowed alternatives"
	case *kind.Not:
		return "matches a schema that it must not match"
	}
	return "violates " + strings.Join(k.KeywordPath(), "/")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Input refuses arguments that do not match the schema.
func (s *Schema) Input(arguments jsontext.Value) *call.Refusal {
	problems, err := s.Check(arguments)
	if err != nil {
		return call.Refuse(StageIn, call.InputInvalid,
			"the arguments could not be checked against the tool's schema: %v", err)
	}
	if len(problems) == 0 {
		return nil
	}
	return call.Refuse(StageIn, call.InputInvalid, "the arguments do not match the tool's schema: %s", list(problems))
}

// Output refuses a result that does not match the schema. It also refuses a result with duplicate keys, because another
// parser could use a different value than the one that was checked.
func (s *Schema) Output(result jsontext.Value) *call.Refusal {
	problems, err := s.Check(result)
	if err == nil && len(problems) == 0 {
		if s == nil || s.text == "" || result.IsValid() {
			return nil
		}
		// If a key occurs twice, only the last value was checked against the schema.
		problems = []Problem{{"", "has a duplicate key"}}
	}
	said := "could not be checked against its schema"
	if err == nil {
		said = "does not match its schema: " + list(problems)
	}
	r := call.Refuse(StageOut, call.OutputInvalid, "the result %s", said)
	r.Effect = call.EffectDone
	return r
}

func list(problems []Problem) string {
	said := make([]string, len(problems))
	for i, p := range problems {
		if said[i] = fmt.Sprintf("%q %s", p.Pointer, p.Message); p.Pointer == "" {
			said[i] = "it " + p.Message
		}
	}
	return strings.Join(said, "; ")
}
