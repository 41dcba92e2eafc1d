// Package validate checks JSON values against JSON Schemas with bounded work.
//
// Schemas and values come from strangers: a schema from an agent or a tool server, a value from a caller or a tool
// server. A short schema can require work that doubles with every level of a value, and a short number such as
// 1e999999999 can stand for a billion digits. Therefore [Schema.Check] counts its work, fails at a limit, and stops
// when its context is cancelled.
//
// The package github.com/santhosh-tekuri/jsonschema compiles the schemas: it resolves references, knows the drafts, and
// rejects invalid schemas. Its own validation cannot be stopped and keeps an error for each part of a value that does
// not match, so this package evaluates the compiled schema itself. A test compares the results of both.
package validate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	manifestschema "github.com/ambit-run/ambit/internal/manifest/jsonschema"
)

// Schema is a JSON Schema that is compiled on first use. It cannot refer to other schemas. A Schema is safe for
// concurrent use.
type Schema struct {
	text string

	once   sync.Once
	schema *jsonschema.Schema
	err    error
}

// maxSchema is the maximum size of a schema in bytes, and maxDepth its maximum depth. maxProblems is the maximum number of
// reported problems.
const (
	maxSchema   = 256 << 10
	maxDepth    = 100
	maxProblems = 5
)

// ErrTooMuchWork means that a value cannot be checked against a schema with the allowed work.
var ErrTooMuchWork = errors.New("the check takes too much work")

var errDynamic = errors.New("the schema uses $dynamicRef or $recursiveRef together with $id")

// New returns a Schema for the text of a JSON Schema. An empty text accepts every value.
func New(text string) *Schema { return &Schema{text: text} }

// Empty reports whether the schema accepts every value because it has no text.
func (s *Schema) Empty() bool { return s == nil || s.text == "" }

// Problem is a requirement of a schema that a value does not meet. It never contains the value.
type Problem struct {
	Pointer string `json:"pointer"`
	Message string `json:"message"`
}

// Check returns the requirements that a value does not meet, at most five. An error means that the schema cannot be
// used, that the check takes too much work, or that ctx has ended.
func (s *Schema) Check(ctx context.Context, value jsontext.Value) (problems []Problem, err error) {
	if s.Empty() {
		return nil, nil
	}
	defer func() {
		if r := recover(); r != nil {
			problems, err = nil, errors.New("the schema could not be checked")
		}
	}()
	if s.once.Do(s.compile); s.err != nil {
		return nil, s.err
	}
	if err := Bounds(value); err != nil {
		return []Problem{{"", "contains " + err.Error()}}, nil
	}
	doc, err := decode(value)
	if err != nil {
		return []Problem{{"", "is not JSON"}}, nil
	}
	e := &evaluation{ctx: ctx, work: maxWork}
	if e.matches(s.schema, doc, false, nil) || e.err != nil {
		return nil, e.err
	}
	// The value does not match. Use the remaining work to find out why.
	switch e.matches(s.schema, doc, true, nil); {
	case e.err != nil && !errors.Is(e.err, ErrTooMuchWork):
		return nil, e.err
	case len(e.problems) == 0:
		return []Problem{{"", "does not match the schema"}}, nil
	}
	return e.problems, nil
}

// home is the base address of every schema.
const home = "ambit:schema"

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
	if err := bounds([]byte(s.text), manifestschema.MaxValues); err != nil {
		s.err = fmt.Errorf("the schema contains %w", err)
		return
	}
	if rawjson.Deeper([]byte(s.text), maxDepth) {
		s.err = fmt.Errorf("the schema is nested more than %d levels deep", maxDepth)
		return
	}
	doc, err := decode([]byte(s.text))
	if err != nil {
		s.err = fmt.Errorf("the schema is not JSON: %w", err)
		return
	}
	if anywhere(doc, "$dynamicRef", "$recursiveRef") && anywhere(doc, "$id") {
		s.err = errDynamic
		return
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.DefaultDraft(jsonschema.Draft2020)
	var p patterns
	c.UseRegexpEngine(p.compile)
	if s.err = c.AddResource(home, doc); s.err == nil {
		s.schema, s.err = c.Compile(home)
	}
	if p.used > maxInstructions {
		s.err = errPatterns
	}
	// Keep only the first problem, because the whole error can be many times as long as the schema.
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](s.err); ok {
		s.err = firstProblem(invalid.Err)
	}
}

// firstProblem returns an error for the first part of a schema that is invalid.
func firstProblem(err error) error {
	e, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	return fmt.Errorf("the schema is invalid at %q", "/"+strings.Join(e.InstanceLocation, "/"))
}

// anywhere reports whether any object in a document has one of the keys.
func anywhere(doc any, keys ...string) bool {
	switch doc := doc.(type) {
	case map[string]any:
		for key, value := range doc {
			if slices.Contains(keys, key) || anywhere(value, keys...) {
				return true
			}
		}
	case []any:
		for _, value := range doc {
			if anywhere(value, keys...) {
				return true
			}
		}
	}
	return false
}
