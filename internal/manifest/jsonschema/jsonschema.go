// Package jsonschema checks the JSON Schemas inside manifests and reports the location of each mistake.
//
// Without this check, an invalid schema would fail only at the first call, when the author may not be there to fix
// the schema. [Check] does not compile the schema. The value of each keyword must have a certain shape, such as a
// number or a list of schemas. Check walks the tree once and compares each value with its shape. The check takes
// about as long as parsing the schema's text. Speed matters because ambit checks a manifest on every load.
//
// Schemas are read as JSON Schema 2020-12. If $schema names 2019-09 or draft-07, Check uses that version, because
// generators still write these versions. Unknown keywords are annotations, as the standard requires. Where the
// standard leaves a choice, Check decides as follows:
//
//   - A reference must point into the same schema: "#", "#/$defs/NAME" or "#anchor". A reference to another document
//     is an error, because ambit never fetches a schema. An $id below the top is an error too, because it would
//     change the meaning of "#".
//   - Every reference must resolve, even an unused reference. A reference that leads back to itself is an error,
//     because validation would never end.
//   - $vocabulary, $recursiveRef and $recursiveAnchor are errors.
//   - Patterns have the syntax of Go's regexp package and match in linear time. Patterns cannot contain lookarounds
//     or backreferences. A pattern of more than [MaxPatternSteps] steps is an error.
//
// A test compares Check with a validator that compiles schemas.
package jsonschema

import (
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Check reports whether a value is a usable JSON Schema. Every mistake is reported as a violation of the given rule.
func Check(v doc.Value, rule *diag.Rule, r *diag.Reporter) bool {
	// Reject larger schemas. No tool needs one, and checking many references can take more time than the size suggests.
	if raw := v.Raw(); len(raw) > maxBytes {
		r.Report(rule, v.Head(), "make the schema smaller", "the schema has %d bytes, but at most %d are allowed",
			len(raw), maxBytes)
		return false
	}
	if countValues(v, MaxValues+1) > MaxValues {
		r.Report(rule, v.Head(), "make the schema smaller", "the schema has more than %d values", MaxValues)
		return false
	}
	c := &checker{root: v, rule: rule, r: r, draft: draft2020}
	if d, ok := draftOf(v.Get("$schema").Text()); ok {
		c.draft = d
	}
	c.checkSchema(v)
	c.references()
	return !c.bad
}

// maxBytes is the maximum size of one schema. MaxValues is the maximum number of values in a schema. The time to
// compile a schema grows with the square of this number.
const (
	maxBytes  = 64 << 10
	MaxValues = 5000
)

// countValues counts the values in a value, up to a limit.
func countValues(v doc.Value, limit int) int {
	n := 1
	for part := range v.Each() {
		if n >= limit {
			break
		}
		n += countValues(part, limit-n)
	}
	return n
}

type checker struct {
	root  doc.Value
	rule  *diag.Rule
	r     *diag.Reporter
	draft draft
	bad   bool

	refs    []reference
	anchors map[string]doc.Value
	// visited contains the schemas that were already checked. The map is nil during the first walk, because that walk
	// reaches each schema only once.
	visited map[doc.Value]bool
	lists   map[doc.Value][]doc.Value // the items of each list, for access by index
}

func (c *checker) report(at diag.Place, hint, format string, args ...any) {
	c.bad = true
	c.r.Report(c.rule, at, hint, format, args...)
}

// draft is a version of the standard. Later versions have larger values.
type draft uint8

const (
	draft07 draft = iota
	draft2019
	draft2020
)

// shape describes the allowed values of a keyword.
type shape uint8

const (
	aSchema shape = iota
	schemaMap
	schemaList
	schemaOrNames // an object whose values are schemas or lists of names
	patternMap    // an object with patterns as keys and schemas as values
	itemsSchema   // a schema; before 2020-12 also a list of schemas
	typeWords     // the name of a type or a list of names
	text
	boolean
	number
	positive // a number above 0
	count    // a whole number, 0 or above
	anyList
	enumList // a list of any values; in draft-07 not empty and without duplicates
	names    // a list of strings without duplicates
	namesMap // an object whose values are lists of names
	regex
	refText // a reference
	address // $id
	anchor  // $anchor, $dynamicAnchor
	edition // $schema
	unsupported
)

type keyword struct {
	shape shape
	since draft
}

var keywords = map[string]keyword{
	"$schema": {edition, draft07}, "$id": {address, draft07}, "$ref": {refText, draft07},
	"$comment": {text, draft07}, "$anchor": {anchor, draft2019}, "$defs": {schemaMap, draft2019},
	"$vocabulary": {unsupported, draft2019}, "$recursiveRef": {unsupported, draft2019},
	"$recursiveAnchor": {unsupported, draft2019}, "$dynamicRef": {refText, draft2020},
	"$dynamicAnchor": {anchor, draft2020},

	"definitions": {schemaMap, draft07}, "dependencies": {schemaOrNames, draft07},
	"dependentSchemas": {schemaMap, draft2019}, "properties": {schemaMap, draft07},
	"patternProperties": {patternMap, draft07}, "additionalProperties": {aSchema, draft07},
	"propertyNames": {aSchema, draft07}, "prefixItems": {schemaList, draft2020},
	"items": {itemsSchema, draft07}, "additionalItems": {aSchema, draft07}, "contains": {aSchema, draft07},
	"allOf": {schemaList, draft07}, "anyOf": {schemaList, draft07}, "oneOf": {schemaList, draft07},
	"not": {aSchema, draft07}, "if": {aSchema, draft07}, "then": {aSchema, draft07}, "else": {aSchema, draft07},
	"unevaluatedItems": {aSchema, draft2019}, "unevaluatedProperties": {aSchema, draft2019},
	"contentSchema": {aSchema, draft2019},

	"type": {typeWords, draft07}, "enum": {enumList, draft07}, "multipleOf": {positive, draft07},
	"maximum": {number, draft07}, "exclusiveMaximum": {number, draft07}, "minimum": {number, draft07},
	"exclusiveMinimum": {number, draft07}, "maxLength": {count, draft07}, "minLength": {count, draft07},
	"pattern": {regex, draft07}, "maxItems": {count, draft07}, "minItems": {count, draft07},
	"uniqueItems": {boolean, draft07}, "maxContains": {count, draft2019}, "minContains": {count, draft2019},
	"maxProperties": {count, draft07}, "minProperties": {count, draft07}, "required": {names, draft07},
	"dependentRequired": {namesMap, draft2019},

	"title": {text, draft07}, "description": {text, draft07}, "format": {text, draft07},
	"deprecated": {boolean, draft2019}, "readOnly": {boolean, draft07}, "writeOnly": {boolean, draft07},
	"examples": {anyList, draft07}, "contentEncoding": {text, draft07}, "contentMediaType": {text, draft07},
}

// shapeOf returns the shape of a keyword's value. The second result is false if the schema's draft does not define
// the keyword.
func (c *checker) shapeOf(key string) (s shape, ok bool) {
	k, ok := keywords[key]
	return k.shape, ok && k.since <= c.draft
}

// checkSchema checks one schema and its subschemas.
func (c *checker) checkSchema(v doc.Value) {
	if c.visited != nil {
		if c.visited[v] {
			return
		}
		c.visited[v] = true
	}
	switch v.Kind() {
	case doc.Bool:
		return
	case doc.Object:
	default:
		c.report(v.Place(), "write an object with keywords, or true (allows any value), or false (allows no value)",
			"a JSON Schema must be an object or a boolean, not %s", v.Kind())
		return
	}
	for m := range v.Each() {
		if s, ok := c.shapeOf(m.Key()); ok {
			c.checkKeyword(v, m, s)
		}
	}
}

// checkKeyword checks that a member of a schema has the given shape.
func (c *checker) checkKeyword(parent, m doc.Value, s shape) {
	switch s {
	case aSchema:
		c.checkSchema(m)
	case schemaMap:
		c.schemas(m, doc.Object)
	case schemaList:
		c.schemaList(m)
	case itemsSchema:
		c.items(m)
	case patternMap:
		c.schemas(m, doc.Object)
		for p := range m.Each() {
			c.pattern(p.Key(), p.KeyPlace())
		}
	case schemaOrNames:
		c.dependencies(m)
	case refText:
		if c.is(m, doc.String) {
			c.refs = append(c.refs, reference{in: parent, at: m})
		}
	case text:
		c.is(m, doc.String)
	case boolean:
		c.is(m, doc.Bool)
	case number:
		c.number(m)
	case positive:
		if c.number(m) && !isPositive(m.Text()) {
			c.report(m.Place(), "", "%s must be above 0", diag.Quote(m.Key()))
		}
	case count:
		c.count(m)
	case anyList:
		c.is(m, doc.Array)
	case enumList:
		c.enum(m)
	case names:
		c.checkNames(m)
	case namesMap:
		if c.is(m, doc.Object) {
			for n := range m.Each() {
				c.checkNames(n)
			}
		}
	case typeWords:
		c.types(m)
	case regex:
		if c.is(m, doc.String) {
			c.pattern(m.Text(), m.Place())
		}
	case address:
		c.address(parent, m)
	case anchor:
		c.anchor(parent, m)
	case edition:
		c.edition(m)
	case unsupported:
		c.report(m.KeyPlace(), "remove the keyword", "ambit does not support the keyword %s", diag.Quote(m.Key()))
	}
}

func (c *checker) is(v doc.Value, k doc.Kind) bool {
	if v.Is(k) {
		return true
	}
	c.report(v.Place(), "", "%s must be %s, not %s", diag.Quote(v.Key()), k, v.Kind())
	return false
}

func (c *checker) schemas(m doc.Value, k doc.Kind) {
	if !c.is(m, k) {
		return
	}
	for s := range m.Each() {
		c.checkSchema(s)
	}
}

func (c *checker) schemaList(m doc.Value) {
	c.schemas(m, doc.Array)
	if m.Is(doc.Array) && m.Len() == 0 {
		c.report(m.Place(), "", "%s must list at least one schema", diag.Quote(m.Key()))
	}
}

func (c *checker) items(m doc.Value) {
	switch {
	case !m.Is(doc.Array):
		c.checkSchema(m)
	case c.draft < draft2020:
		c.schemaList(m)
	default:
		c.report(m.Place(), `for a list with one schema for each position, use "prefixItems"`,
			`"items" must be one schema for all items, not a list`)
	}
}

func (c *checker) dependencies(m doc.Value) {
	if !c.is(m, doc.Object) {
		return
	}
	for d := range m.Each() {
		if d.Is(doc.Array) {
			c.checkNames(d)
		} else {
			c.checkSchema(d)
		}
	}
}
