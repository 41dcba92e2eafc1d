package jsonschema

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// reference is a keyword that refers to a schema, and the schema that contains it.
type reference struct {
	in, at doc.Value
	to     doc.Value
}

// references resolves every reference. Its target is a schema, also below an
// unknown keyword, so it is checked too, and may contain references itself.
func (c *checker) references() {
	if len(c.refs) == 0 {
		return
	}
	c.extra = map[doc.Value]bool{}
	for i := 0; i < len(c.refs); i++ { // the list grows
		at := c.refs[i].at
		if fragment, ok := c.fragment(at); ok && (fragment == "" || fragment[0] == '/') {
			to := c.pointed(at, fragment)
			c.refs[i].to = to
		}
	}
	for i := range c.refs { // now all names are known
		ref := &c.refs[i]
		if fragment, ok := local(ref.at.Text()); ok && fragment != "" && fragment[0] != '/' {
			if ref.to, ok = c.anchors[fragment]; !ok {
				names := make([]string, 0, len(c.anchors))
				for n := range c.anchors {
					names = append(names, n)
				}
				c.report(ref.at.Place(), c.didYouMean("#"+fragment, "#", diag.Sorted(names)), "%s names nothing in this schema", diag.Quote(ref.at.Text()))
			}
		}
	}
	c.endless()
}

// local is the fragment of a reference within the schema.
func local(ref string) (fragment string, ok bool) {
	if ref == "" {
		return "", true
	}
	if ref[0] != '#' || strings.ContainsRune(ref, '\\') {
		return "", false
	}
	if _, err := url.Parse(ref); err != nil {
		return "", false
	}
	fragment, err := url.PathUnescape(ref[1:])
	return fragment, err == nil
}

func (c *checker) fragment(at doc.Value) (string, bool) {
	fragment, ok := local(at.Text())
	switch {
	case ok:
	case strings.HasPrefix(at.Text(), "#"):
		c.report(at.Place(), "write #/$defs/NAME", "%s is not a reference", diag.Quote(at.Text()))
	default:
		c.report(at.Place(), "copy it here under $defs and write #/$defs/NAME",
			"%s refers to another document, and nothing is ever fetched", diag.Quote(at.Text()))
	}
	return fragment, ok
}

// pointed follows a JSON pointer, and checks what it finds there unless the
// walk over the schema comes by anyway.
func (c *checker) pointed(at doc.Value, pointer string) doc.Value {
	v, walked := c.root, true
	// s is the shape of the keyword that v is the value of; v is a schema
	// where inside is false.
	var s shape
	inside := false
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		name, ok := unescape(part)
		if !ok {
			c.report(at.Place(), "in a reference ~ is written ~0 and / is written ~1", "%s is not a reference", diag.Quote(at.Text()))
			return doc.Value{}
		}
		next := c.child(v, name)
		if !next.Ok() {
			var siblings []string
			if v.Is(doc.Object) {
				for m := range v.Each() {
					siblings = append(siblings, m.Key())
				}
			}
			c.report(at.Place(), c.didYouMean(name, "", siblings), "%s points to nothing in this schema", diag.Quote(at.Text()))
			return doc.Value{}
		}
		if !inside {
			s, ok = c.shapeOf(name)
			list := v.Is(doc.Array)
			walked = walked && ok && !list && s <= itemsSchema
			inside = walked && !(s == aSchema || s == itemsSchema && !next.Is(doc.Array))
		} else {
			walked = walked && !(s == schemaOrNames && next.Is(doc.Array))
			inside = false
		}
		v = next
	}
	if !walked || inside {
		c.schema(v)
	}
	return v
}

func unescape(part string) (string, bool) {
	if !strings.Contains(part, "~") {
		return part, true
	}
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		if part[i] != '~' {
			b.WriteByte(part[i])
			continue
		}
		i++
		switch {
		case i < len(part) && part[i] == '0':
			b.WriteByte('~')
		case i < len(part) && part[i] == '1':
			b.WriteByte('/')
		default:
			return "", false
		}
	}
	return b.String(), true
}

// child returns the member or item of that name. Large objects and lists are
// indexed when first asked, so that many references stay linear.
func (c *checker) child(v doc.Value, name string) doc.Value {
	switch {
	case v.Is(doc.Array):
		n, err := strconv.Atoi(name)
		if err != nil {
			return doc.Value{}
		}
		name = strconv.Itoa(n)
	case !v.Is(doc.Object):
		return doc.Value{}
	case v.Len() <= 16:
		return v.Get(name)
	}
	names, ok := c.index[v]
	if !ok {
		names = make(map[string]doc.Value, v.Len())
		i := 0
		for m := range v.Each() {
			key := m.Key()
			if v.Is(doc.Array) {
				key = strconv.Itoa(i)
			}
			if _, twice := names[key]; !twice {
				names[key] = m
			}
			i++
		}
		if c.index == nil {
			c.index = map[doc.Value]map[string]doc.Value{}
		}
		c.index[v] = names
	}
	return names[name]
}

func (c *checker) didYouMean(s, prefix string, candidates []string) string {
	if len(candidates) > 100 || c.r.Errors() > 100 {
		return ""
	}
	if best := diag.Closest(strings.TrimPrefix(s, prefix), candidates); best != "" {
		return "did you mean " + diag.Quote(prefix+best) + "?"
	}
	return ""
}

// maxChain bounds how many references may lead from one to the next.
const maxChain = 1000

const (
	onPath = 1
	done   = 2
)

// endless reports references that lead back to themselves without going
// into the value that is judged: no value could ever be judged by them.
func (c *checker) endless() {
	to := make(map[doc.Value][]reference, len(c.refs))
	for _, r := range c.refs {
		if r.to.Is(doc.Object) {
			to[r.in] = append(to[r.in], r)
		}
	}
	state := make(map[doc.Value]uint8, len(to))
	stop := false
	var visit func(v doc.Value, depth int)
	visit = func(v doc.Value, depth int) {
		if stop || !v.Is(doc.Object) || state[v] != 0 {
			return
		}
		state[v] = onPath
		defer func() { state[v] = done }()
		for _, r := range to[v] {
			switch {
			case state[r.to] == onPath:
				c.report(r.at.Place(), "move the reference below properties or items, or remove it",
					"%s leads back to itself, so no value could ever be judged", diag.Quote(r.at.Text()))
			case depth >= maxChain:
				c.report(r.at.Place(), "", "more than %d references lead from one to the next", maxChain)
				stop = true
				return
			default:
				visit(r.to, depth+1)
			}
		}
		if c.draft == draft07 && v.Get("$ref").Ok() {
			return // there $ref excludes its siblings
		}
		for m := range v.Each() {
			switch m.Key() {
			case "not", "if", "then", "else":
				visit(m, depth)
			case "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies":
				for s := range m.Each() {
					visit(s, depth)
				}
			}
		}
	}
	for _, r := range c.refs {
		visit(r.in, 0)
	}
}
