package jsonschema

import (
	"net/url"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// This file checks the keywords that contain no subschemas.

var typeNames = []string{"string", "number", "integer", "boolean", "object", "array", "null"}

// foreignTypes maps type names in other languages to type names in JSON Schema.
var foreignTypes = map[string]string{
	"int": "integer", "long": "integer", "float": "number", "double": "number", "decimal": "number", "str": "string",
	"text": "string", "date": "string", "datetime": "string", "bool": "boolean", "dict": "object", "map": "object",
	"list": "array", "tuple": "array", "none": "null", "nil": "null",
}

func (c *checker) number(m doc.Value) bool {
	if m.Is(doc.Number) {
		return true
	}
	hint := ""
	if m.Is(doc.Bool) && strings.HasPrefix(m.Key(), "exclusive") {
		hint = "since draft-06, the value of this keyword is the limit itself, so move the number here from " +
			diag.Quote("m"+m.Key()[len("exclusiveM"):])
	}
	c.report(m.Place(), hint, "%s must be a number, not %s", diag.Quote(m.Key()), m.Kind())
	return false
}

// isPositive reports whether a number is greater than 0. It examines the digits, because a very small number would
// become 0 as a float.
func isPositive(lexeme string) bool {
	if strings.HasPrefix(lexeme, "-") {
		return false
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(lexeme), "e")
	return strings.Trim(mantissa, "0.") != ""
}

func (c *checker) count(m doc.Value) {
	if !m.Is(doc.Number) {
		hint := ""
		if m.Is(doc.String) {
			hint = "write the number without quotes"
		}
		c.report(m.Place(), hint, "%s must be a whole number, not %s", diag.Quote(m.Key()), m.Kind())
		return
	}
	if n, ok := m.Int(); !ok || n < 0 {
		c.report(m.Place(), "", "%s must be a whole number, 0 or above", diag.Quote(m.Key()))
	}
}

// checkNames checks that a value is a list of strings without duplicates.
func (c *checker) checkNames(m doc.Value) {
	if !m.Is(doc.Array) {
		hint := ""
		if m.Is(doc.Bool) && m.Key() == "required" {
			hint = `list the property in the object that contains it: "required": ["NAME"]`
		}
		c.report(m.Place(), hint, "%s must be a list of names, not %s", diag.Quote(m.Key()), m.Kind())
		return
	}
	var seen read.Seen
	for n := range m.Each() {
		switch {
		case !n.Is(doc.String):
			c.report(n.Place(), "", "%s must list names, not %s", diag.Quote(m.Key()), n.Kind())
		case !seen.Add(n.Text()):
			c.report(n.Place(), "remove the second entry", "%s is already in the list", diag.Quote(n.Text()))
		}
	}
}

func (c *checker) enum(m doc.Value) {
	if !c.is(m, doc.Array) || c.draft > draft07 {
		return
	}
	if m.Len() == 0 {
		c.report(m.Place(), "", `"enum" must list at least one value`)
	}
	var seen read.Seen
	for e := range m.Each() {
		if !seen.Add(string(e.Canonical())) {
			c.report(e.Place(), "remove the second entry", "this value is already in the list")
		}
	}
}

func (c *checker) types(m doc.Value) {
	switch m.Kind() {
	case doc.String:
		c.typeName(m)
	case doc.Array:
		if m.Len() == 0 {
			c.report(m.Place(), "", `"type" must name at least one type`)
		}
		var seen read.Seen
		for t := range m.Each() {
			if !t.Is(doc.String) {
				c.report(t.Place(), "", `"type" must list names of types, not %s`, t.Kind())
			} else if c.typeName(t) && !seen.Add(t.Text()) {
				c.report(t.Place(), "remove the second entry", "%s is already in the list", diag.Quote(t.Text()))
			}
		}
	default:
		c.report(m.Place(), "", `"type" must be a type name or a list of type names, not %s`, m.Kind())
	}
}

func (c *checker) typeName(t doc.Value) bool {
	if slices.Contains(typeNames, t.Text()) {
		return true
	}
	hint := ""
	if known := foreignTypes[strings.ToLower(t.Text())]; known != "" {
		hint = "JSON Schema calls it " + diag.Quote(known)
	} else if hint = diag.DidYouMean(t.Text(), typeNames); hint == "" {
		hint = "use " + diag.Words(typeNames, "or")
	}
	c.report(t.Place(), hint, "%s is not a JSON Schema type", diag.Quote(t.Text()))
	return false
}

var drafts = map[string]draft{
	"json-schema.org/schema":               draft2020,
	"json-schema.org/draft/2020-12/schema": draft2020,
	"json-schema.org/draft/2019-09/schema": draft2019,
	"json-schema.org/draft-07/schema":      draft07,
}

// draftOf returns the JSON Schema draft for a value of $schema. The second result reports whether ambit supports that
// draft.
func draftOf(name string) (d draft, ok bool) {
	name = strings.TrimSuffix(name, "#")
	for _, scheme := range []string{"https://", "http://"} {
		if rest, cut := strings.CutPrefix(name, scheme); cut {
			d, ok = drafts[rest]
			return d, ok
		}
	}
	return draft2020, false
}

func (c *checker) edition(m doc.Value) {
	if !c.is(m, doc.String) {
		return
	}
	if _, ok := draftOf(m.Text()); !ok {
		c.report(m.Place(), `write "https://json-schema.org/draft/2020-12/schema", or leave $schema out`,
			"ambit does not support the JSON Schema version %s", diag.Quote(m.Text()))
	}
}

func (c *checker) address(in, m doc.Value) {
	if !c.is(m, doc.String) {
		return
	}
	if in != c.root {
		c.report(m.KeyPlace(), "remove $id, and refer to the schema by its location: #/$defs/NAME",
			"a schema inside another schema cannot have its own $id")
		return
	}
	id := strings.TrimSuffix(m.Text(), "#")
	// Refuse an address without a host, such as s:/a. Resolving a reference against such an address would change the
	// address. Also refuse a URL with an IPv6 host, because no schema needs one.
	u, err := url.Parse(id)
	if err != nil || strings.ContainsAny(id, `#\`) || strings.Contains(u.Hostname(), ":") || u.OmitHost {
		c.report(m.Place(), "", "%s is not an address that ambit accepts as $id", diag.Quote(m.Text()))
	}
}

func (c *checker) anchor(in, m doc.Value) {
	if !c.is(m, doc.String) {
		return
	}
	name := m.Text()
	if !isAnchor(name, c.draft) {
		c.report(m.Place(), "use letters, digits, -, . and _", "%s is not a valid anchor name", diag.Quote(name))
		return
	}
	if other, ok := c.anchors[name]; ok && other != in {
		c.report(m.Place(), "give each schema its own anchor", "another schema already has the anchor %s", diag.Quote(name))
		return
	}
	if c.anchors == nil {
		c.anchors = map[string]doc.Value{}
	}
	c.anchors[name] = in
}

func isAnchor(s string, d draft) bool {
	for i := range len(s) {
		ch := s[i]
		switch {
		case 'a' <= ch && ch <= 'z', 'A' <= ch && ch <= 'Z':
		case ch == '_' && (i > 0 || d == draft2020):
		case i > 0 && ('0' <= ch && ch <= '9' || ch == '-' || ch == '.'):
		case i > 0 && ch == ':' && d == draft2019:
		default:
			return false
		}
	}
	return s != ""
}
