package jsonschema

import (
	"slices"

	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Properties lists the properties that a schema names, in its own properties
// and in the schemas that judge the same value. open is true where names do
// not tell all: patterns describe them, or nothing is named and nothing ruled
// out.
func Properties(v doc.Value) (names []string, open bool) {
	if len(v.Raw()) > maxBytes {
		return nil, true // Check refuses it
	}
	p := &properties{checker: checker{root: v, draft: draft2020}}
	p.collect(v, 0)
	if len(p.names) == 0 && !p.closed {
		return nil, true
	}
	return p.names, p.open
}

type properties struct {
	checker
	names  []string
	open   bool
	closed bool
	seen   []doc.Value
}

func (p *properties) collect(v doc.Value, depth int) {
	if !v.Is(doc.Object) || depth > maxChain || slices.Contains(p.seen, v) {
		return
	}
	for m := range v.Each() {
		switch m.Key() {
		case "properties":
			p.names = slices.Grow(p.names, m.Len())
			for n := range m.Each() {
				p.names = append(p.names, n.Key())
			}
		case "patternProperties":
			p.open = p.open || m.Len() > 0
		case "additionalProperties", "unevaluatedProperties":
			p.closed = p.closed || m.Is(doc.Bool) && m.Text() == "false"
		case "allOf", "anyOf", "oneOf", "dependentSchemas":
			for s := range m.Each() {
				p.collect(s, depth+1)
			}
		case "then", "else":
			p.collect(m, depth+1)
		case "$ref", "$dynamicRef":
			// A few schemas at most refer on; more are of no use to a person.
			if len(p.seen) < 50 {
				p.seen = append(p.seen, v)
				p.collect(p.target(m), depth+1)
			}
		}
	}
}

// target finds what a reference points to. Check has said if it is nothing.
func (p *properties) target(m doc.Value) doc.Value {
	fragment, ok := local(m.Text())
	if !ok || fragment != "" && fragment[0] != '/' {
		p.open = true // a name could be anywhere
		return doc.Value{}
	}
	v := p.root
	for fragment != "" {
		var part string
		part, fragment = cutPart(fragment[1:])
		name, _ := unescape(part)
		v = p.child(v, name)
	}
	return v
}

func cutPart(s string) (part, rest string) {
	for i := range len(s) {
		if s[i] == '/' {
			return s[:i], s[i:]
		}
	}
	return s, ""
}
