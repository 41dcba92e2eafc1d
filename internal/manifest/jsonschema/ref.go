package jsonschema

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// reference is a $ref or $dynamicRef.
type reference struct {
	in, at doc.Value // the schema that contains the keyword, and the value of the keyword
	to     doc.Value // the schema to which the keyword refers
}

// references resolves each $ref and $dynamicRef and checks its target. A target can be below an unknown keyword, where
// the first walk of the schema checked nothing. Such a target can contain more references.
func (c *checker) references() {
	if len(c.refs) == 0 {
		return
	}
	// Find the schemas that the first walk has checked, so that no schema is checked twice.
	walk := &checker{root: c.root, rule: c.rule, r: diag.NewReporter(c.r.Source, false), draft: c.draft}
	walk.visited = map[doc.Value]bool{}
	walk.checkSchema(c.root)
	c.visited = walk.visited
	for i := 0; i < len(c.refs); i++ { // checking a target can append to c.refs
		at := c.refs[i].at
		if fragment, ok := c.fragment(at); ok && (fragment == "" || fragment[0] == '/') {
			c.refs[i].to = c.followPointer(at, jsontext.Pointer(fragment))
		}
	}
	for i := range c.refs { // all anchors are known now
		ref := &c.refs[i]
		if fragment, ok := localFragment(ref.at.Text()); ok && fragment != "" && fragment[0] != '/' {
			if ref.to, ok = c.anchors[fragment]; !ok {
				var names []string
				for name := range c.anchors {
					names = append(names, "#"+name)
				}
				slices.Sort(names)
				hint := c.r.DidYouMean("#"+fragment, names)
				c.report(ref.at.Place(), hint, "%s is not an anchor in this schema", diag.Quote(ref.at.Text()))
			}
		}
	}
	c.checkApplied()
}

// localFragment returns the fragment of a reference. The second result is false if the reference is invalid or points
// to another document.
func localFragment(ref string) (fragment string, ok bool) {
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
	fragment, ok := localFragment(at.Text())
	switch {
	case ok:
	case strings.HasPrefix(at.Text(), "#"):
		c.report(at.Place(), "write #/$defs/NAME", "%s is not a reference", diag.Quote(at.Text()))
	default:
		c.report(at.Place(), "copy the other schema into \"$defs\" of this schema, and write #/$defs/NAME",
			"%s refers to another document, which ambit never fetches", diag.Quote(at.Text()))
	}
	return fragment, ok
}

// followPointer follows a JSON pointer to a schema and returns the schema. It also checks the schema, unless the schema
// has been checked before.
func (c *checker) followPointer(at doc.Value, pointer jsontext.Pointer) doc.Value {
	if !pointer.IsValid() {
		c.report(at.Place(), "in a reference, write ~ as ~0 and / as ~1", "%s is not a reference",
			diag.Quote(at.Text()))
		return doc.Value{}
	}
	v := c.root
	for name := range pointer.Tokens() {
		next := c.child(v, name)
		if !next.Ok() {
			var siblings []string
			for m := range v.Each() {
				siblings = append(siblings, m.Key())
			}
			hint := c.r.DidYouMean(name, siblings)
			c.report(at.Place(), hint, "%s does not exist in this schema", diag.Quote(at.Text()))
			return doc.Value{}
		}
		v = next
	}
	c.checkSchema(v)
	return v
}

// child returns the member or item with the given name. The items of each list are collected only once, so that many
// references into one list take linear time.
func (c *checker) child(v doc.Value, name string) doc.Value {
	if !v.Is(doc.Array) {
		return v.Get(name)
	}
	items, ok := c.lists[v]
	if !ok {
		items = slices.Collect(v.Each())
		if c.lists == nil {
			c.lists = map[doc.Value][]doc.Value{}
		}
		c.lists[v] = items
	}
	i, err := strconv.Atoi(name)
	if err != nil || i < 0 || i >= len(items) {
		return doc.Value{}
	}
	return items[i]
}

// maxChain is the maximum length of a chain of references. maxApplied is the maximum number of schemas that may apply
// to one value. Even a small schema can exceed maxApplied, because every reference that occurs twice doubles the
// number.
const (
	maxChain   = 1000
	maxApplied = 10_000
)

// onPath marks a schema whose applied schemas are being counted.
const onPath = -1

// checkApplied reports each cycle of references in which all schemas apply to the same value. A validator would follow
// such a cycle forever, because there is no "properties" or "items" between the references. It also reports a schema in
// which too many schemas apply to the same value.
func (c *checker) checkApplied() {
	to := make(map[doc.Value][]reference, len(c.refs))
	for _, r := range c.refs {
		if r.to.Is(doc.Object) {
			to[r.in] = append(to[r.in], r)
		}
	}
	applied := make(map[doc.Value]int, len(to)) // the number of schemas that apply to the same value as the key
	stop := false
	var visit func(v doc.Value, depth int) int
	visit = func(v doc.Value, depth int) (n int) {
		if stop || !v.Is(doc.Object) {
			return 1
		}
		if applied[v] != 0 {
			return applied[v]
		}
		applied[v] = onPath
		n = 1
		defer func() { applied[v] = n }()
		for _, r := range to[v] {
			switch {
			case applied[r.to] == onPath:
				c.report(r.at.Place(), "remove the reference, or move it below \"properties\" or \"items\"",
					"%s leads back to itself, so validation would never end", diag.Quote(r.at.Text()))
			case depth >= maxChain:
				c.report(r.at.Place(), "", "a chain of references has more than %d links", maxChain)
				stop = true
				return n
			default:
				n += visit(r.to, depth+1)
			}
			if n > maxApplied && !stop {
				c.report(r.at.Place(), "refer to each schema once", "more than %d schemas apply to one value", maxApplied)
				stop = true
				return n
			}
		}
		if c.draft == draft07 && v.Get("$ref").Ok() {
			return n // in draft-07, $ref disables the keywords next to it
		}
		for m := range v.Each() {
			switch m.Key() {
			case "not", "if", "then", "else":
				n += visit(m, depth)
			case "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies":
				for s := range m.Each() {
					n += visit(s, depth)
				}
			}
		}
		return n
	}
	for _, r := range c.refs {
		visit(r.in, 0)
	}
}
