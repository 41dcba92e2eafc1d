package jsonschema

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Properties returns the property names that a schema defines. Properties also searches other schemas that apply to
// the same value, such as those in "allOf" and "$ref". The second result reports whether other names are possible
// too. Other names are possible if the schema has patternProperties, or if it neither names nor forbids properties.
func Properties(v doc.Value) (names []string, open bool) {
	if len(v.Raw()) > maxBytes {
		return nil, true // a schema of this size is invalid (see Check)
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
			// Follow at most 50 references. No schema that a person writes needs more.
			if len(p.seen) < 50 {
				p.seen = append(p.seen, v)
				p.collect(p.resolveRef(m), depth+1)
			}
		}
	}
}

// resolveRef returns the schema to which a reference points. A missing schema is not reported here, because Check
// reports it.
func (p *properties) resolveRef(m doc.Value) doc.Value {
	fragment, ok := localFragment(m.Text())
	if !ok || fragment != "" && fragment[0] != '/' {
		p.open = true // finding an anchor would require a search of the whole schema
		return doc.Value{}
	}
	v := p.root
	for name := range jsontext.Pointer(fragment).Tokens() {
		v = p.child(v, name)
	}
	return v
}
