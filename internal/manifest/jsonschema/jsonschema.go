// Package jsonschema checks the JSON Schemas inside manifests and reports the
// location of each mistake.
//
// A schema that does not compile is found out when the first call arrives,
// long after the person who wrote it has gone. So a manifest is refused
// instead, with the place of the mistake. [Check] does that without compiling
// anything: every keyword has one shape, and one walk over the tree holds each
// to its own. It costs about what reading the schema's text does, which counts
// because a manifest is checked on every load.
//
// The language is JSON Schema 2020-12. A schema that names 2019-09 or draft-07
// in $schema is read as such, because generators still write them. Unknown
// keywords are annotations, as the standard says. Where a choice is left:
//
//   - References stay within the schema: "#", "#/$defs/NAME", "#anchor".
//     Nothing is ever fetched, so a reference to another document is an error,
//     and so is an $id below the top, which would change what "#" means.
//   - Unused references must resolve too, and a reference that
//     leads back to itself, so that no value could ever be judged, is an error.
//   - Patterns are those of Go's regexp package, which match in linear time.
//     Look-around and backreferences do not exist there. A pattern of more than
//     [MaxPatternSteps] steps is too large.
//
// A test holds all this against a validator that does compile schemas.
package jsonschema

import (
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Check reports, under the rule, everything that keeps v from being used as a
// JSON Schema, and answers whether there is nothing of the kind.
func Check(v doc.Value, rule *diag.Rule, r *diag.Reporter) bool {
	// No tool needs more, and what refers to itself can cost more than its size.
	if raw := v.Raw(); len(raw) > maxBytes {
		r.Report(rule, v.Head(), "make it smaller", "the schema has %d bytes; it can have at most %d", len(raw), maxBytes)
		return false
	}
	c := &checker{root: v, rule: rule, r: r, draft: draft2020}
	if d, ok := draftOf(v.Get("$schema").Text()); ok {
		c.draft = d
	}
	c.schema(v)
	c.references()
	return !c.bad
}

// maxBytes bounds one schema.
const maxBytes = 64 << 10

type checker struct {
	root  doc.Value
	rule  *diag.Rule
	r     *diag.Reporter
	draft draft
	bad   bool

	refs    []reference
	anchors map[string]doc.Value
	// extra holds the schemas that were checked because something refers to
	// them, not because of their location.
	extra map[doc.Value]bool
	index map[doc.Value]map[string]doc.Value
}

func (c *checker) report(at diag.Place, hint, format string, args ...any) {
	c.bad = true
	c.r.Report(c.rule, at, hint, format, args...)
}

// draft orders the editions of the standard.
type draft uint8

const (
	draft07 draft = iota
	draft2019
	draft2020
)

// shape is what a keyword's value must be.
type shape uint8

const (
	aSchema shape = iota
	schemaMap
	schemaList
	schemaOrNames  // an object of schemas or lists of names
	patternMap     // an object of schemas, its keys patterns
	itemsSchema    // a schema; before 2020-12 also a list of them
	typeWords      // one type or a list of them
	text           // a string
	boolean        // true or false
	number         // any number
	positive       // a number above 0
	count          // a whole number from 0
	anyList        // a list of anything
	enumList       // a list of anything; once non-empty and unique
	names          // a list of different strings
	namesMap       // an object of such lists
	regex          // a pattern
	refText        // a reference
	address        // $id
	anchor         // $anchor, $dynamicAnchor
	edition        // $schema
	vocabulary     // $vocabulary
	recursiveMark  // $recursiveAnchor
	recursiveStart // $recursiveRef
)

type keyword struct {
	shape shape
	since draft
}

var keywords = map[string]keyword{
	"$schema": {edition, draft07}, "$id": {address, draft07}, "$ref": {refText, draft07},
	"$comment": {text, draft07}, "$anchor": {anchor, draft2019}, "$defs": {schemaMap, draft2019},
	"$vocabulary": {vocabulary, draft2019}, "$recursiveRef": {recursiveStart, draft2019},
	"$recursiveAnchor": {recursiveMark, draft2019}, "$dynamicRef": {refText, draft2020},
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

// shapeOf returns what a keyword's value must be in the schema's draft; ok is
// false for a keyword that has no meaning there.
func (c *checker) shapeOf(key string) (s shape, ok bool) {
	k, ok := keywords[key]
	return k.shape, ok && k.since <= c.draft
}

// schema checks one schema and its subschemas.
func (c *checker) schema(v doc.Value) {
	switch v.Kind() {
	case doc.Bool:
		return
	case doc.Object:
	default:
		c.report(v.Place(), "write an object with keywords, true for anything, or false for nothing",
			"a JSON Schema is an object, true or false, not %s", v.Kind())
		return
	}
	if c.extra != nil {
		if c.extra[v] {
			return
		}
		c.extra[v] = true
	}
	for m := range v.Each() {
		if s, ok := c.shapeOf(m.Key()); ok {
			c.keyword(v, m, s)
		}
	}
}

// keyword holds the member m of the schema in to its shape.
func (c *checker) keyword(in, m doc.Value, s shape) {
	switch s {
	case aSchema:
		c.schema(m)
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
			c.refs = append(c.refs, reference{in: in, at: m})
		}
	default:
		c.plain(in, m, s)
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
		c.schema(s)
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
		c.schema(m)
	case c.draft < draft2020:
		c.schemaList(m)
	default:
		c.report(m.Place(), "a list of schemas, one for each place, is called prefixItems", `"items" is one schema for all items, not a list`)
	}
}

func (c *checker) dependencies(m doc.Value) {
	if !c.is(m, doc.Object) {
		return
	}
	for d := range m.Each() {
		if d.Is(doc.Array) {
			c.names(d)
		} else {
			c.schema(d)
		}
	}
}
