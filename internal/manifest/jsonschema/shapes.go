package jsonschema

import (
	"net/url"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// This file checks the keywords that hold no schemas.

var typeNames = []string{"string", "number", "integer", "boolean", "object", "array", "null"}

// What other languages call these types.
var foreignTypes = map[string]string{
	"int": "integer", "long": "integer", "float": "number", "double": "number", "decimal": "number", "str": "string",
	"text": "string", "date": "string", "datetime": "string", "bool": "boolean", "dict": "object", "map": "object",
	"list": "array", "tuple": "array", "none": "null", "nil": "null",
}

// plain holds the member m of the schema in to a shape without schemas.
func (c *checker) plain(in, m doc.Value, s shape) {
	switch s {
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
		c.names(m)
	case namesMap:
		if c.is(m, doc.Object) {
			for n := range m.Each() {
				c.names(n)
			}
		}
	case typeWords:
		c.types(m)
	case regex:
		if c.is(m, doc.String) {
			c.pattern(m.Text(), m.Place())
		}
	case address:
		c.address(in, m)
	case anchor:
		c.anchor(in, m)
	case edition:
		c.edition(m)
	case vocabulary:
		c.vocabulary(m)
	case recursiveMark:
		c.recursiveMark(m)
	case recursiveStart:
		c.recursiveStart(in, m)
	}
}

func (c *checker) number(m doc.Value) bool {
	if m.Is(doc.Number) {
		return true
	}
	hint := ""
	if m.Is(doc.Bool) && strings.HasPrefix(m.Key(), "exclusive") {
		hint = "since draft-06 it is the bound itself, in place of " + diag.Quote("m"+m.Key()[len("exclusiveM"):])
	}
	c.report(m.Place(), hint, "%s must be a number, not %s", diag.Quote(m.Key()), m.Kind())
	return false
}

// isPositive reports by its digits whether a number is above 0.
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

// names checks a list of different strings.
func (c *checker) names(m doc.Value) {
	if !m.Is(doc.Array) {
		hint := ""
		if m.Is(doc.Bool) && m.Key() == "required" {
			hint = `the object that holds the property lists it: "required": ["NAME"]`
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
			c.report(n.Place(), "remove the second one", "%s is already in the list", diag.Quote(n.Text()))
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
		if !seen.Add(string(e.AppendCanonical(nil))) {
			c.report(e.Place(), "remove the second one", "this value is already in the list")
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
				c.report(t.Place(), "", `"type" lists names of types, not %s`, t.Kind())
			} else if c.typeName(t) && !seen.Add(t.Text()) {
				c.report(t.Place(), "remove the second one", "%s is already in the list", diag.Quote(t.Text()))
			}
		}
	default:
		c.report(m.Place(), "", `"type" must be the name of a type or a list of them, not %s`, m.Kind())
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
	c.report(t.Place(), hint, "%s is not a type that JSON Schema knows", diag.Quote(t.Text()))
	return false
}

var drafts = map[string]draft{
	"json-schema.org/schema":               draft2020,
	"json-schema.org/draft/2020-12/schema": draft2020,
	"json-schema.org/draft/2019-09/schema": draft2019,
	"json-schema.org/draft-07/schema":      draft07,
}

// draftOf returns the draft that a text names.
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
			"%s is not an edition of JSON Schema that can be used here", diag.Quote(m.Text()))
	}
}

func (c *checker) address(in, m doc.Value) {
	if !c.is(m, doc.String) {
		return
	}
	if in != c.root {
		c.report(m.KeyPlace(), "remove it, and refer to the schema by its place: #/$defs/NAME",
			"a schema inside another cannot have an address of its own")
		return
	}
	id := strings.TrimSuffix(m.Text(), "#")
	// What names no machine and no place on one (s:/a) becomes another address where
	// references are resolved.
	if u, err := url.Parse(id); err != nil || strings.ContainsAny(id, `#\`) || ipv6Host(id) || u.OmitHost {
		c.report(m.Place(), "", "%s is not an address that a schema can have", diag.Quote(m.Text()))
	}
}

// ipv6Host reports whether an address names a machine by an IPv6 address,
// which no schema needs.
func ipv6Host(id string) bool {
	u, err := url.Parse(id)
	return err == nil && strings.Contains(u.Hostname(), ":")
}

func (c *checker) anchor(in, m doc.Value) {
	if !c.is(m, doc.String) {
		return
	}
	name := m.Text()
	if !isAnchor(name, c.draft) {
		c.report(m.Place(), "use letters, digits, - . and _", "%s is not a name that a reference can use", diag.Quote(name))
		return
	}
	if other, ok := c.anchors[name]; ok && other != in {
		c.report(m.Place(), "give each schema a name of its own", "another schema already has the name %s", diag.Quote(name))
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

func (c *checker) vocabulary(m doc.Value) {
	if !c.is(m, doc.Object) {
		return
	}
	for v := range m.Each() {
		if u, err := url.Parse(v.Key()); err != nil || !u.IsAbs() || ipv6Host(v.Key()) {
			c.report(v.KeyPlace(), "", "%s is not the address of a vocabulary", diag.Quote(v.Key()))
		}
		c.is(v, doc.Bool)
	}
}

// recursiveMark and recursiveStart check what 2019-09 had in place of dynamic
// references.
func (c *checker) recursiveMark(m doc.Value) {
	if c.draft == draft2019 {
		c.is(m, doc.Bool)
	} else if c.is(m, doc.String) && !isAnchor(m.Text(), c.draft) {
		c.report(m.Place(), "use letters, digits, - . and _", "%s is not a name that a reference can use", diag.Quote(m.Text()))
	}
}

func (c *checker) recursiveStart(in, m doc.Value) {
	switch {
	case !c.is(m, doc.String):
	case m.Text() != "#":
		c.report(m.Place(), "", `"$recursiveRef" can only be "#"`)
	case c.draft == draft2019:
		c.refs = append(c.refs, reference{in: in, at: m})
	}
}
