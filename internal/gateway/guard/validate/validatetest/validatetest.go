// Package validatetest generates schemas and values that are made to take as much work as possible. The same seed
// always gives the same cases. Tests check that the work for each case is bounded, and a benchmark measures this work.
package validatetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Case is a schema and a value to check against it.
type Case struct{ Name, Schema, Value string }

// The sizes of generated texts are just below the limits of the package validate. Larger texts would be refused before
// any work.
const (
	maxSchema       = 250 << 10
	maxSchemaValues = 4900
	maxValue        = 1 << 20
	maxText         = 4 << 20
	maxValues       = 95_000
)

// Schemas returns hostile schemas, each with a value that is expensive to check.
func Schemas(seed uint64, n int) []Case {
	cases := make([]Case, 0, n)
	for i := 0; len(cases) < n; i++ {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(i)))}
		if c := g.schema(i); len(c.Schema) <= maxSchema && values(c.Schema) <= maxSchemaValues && len(c.Value) <= maxValue && values(c.Value) <= maxValues {
			cases = append(cases, c)
		}
	}
	return cases
}

// Values returns hostile values, each with the schema of an ordinary tool.
func Values(seed uint64, n int) []Case {
	cases := make([]Case, n)
	for i := range cases {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(i)))}
		cases[i] = g.value(i)
	}
	return cases
}

// Plain returns an ordinary value of about the given size, with its schema.
func Plain(size int) Case {
	const schema = `{"type":"object","required":["items"],"additionalProperties":false,"properties":{"items":{"type":"array","items":{
		"type":"object","required":["id","name"],"properties":{"id":{"type":"integer","minimum":0},"name":{"type":"string","maxLength":200}}}}}}`
	const each = `{"id":12,"name":"a name of some letters, as people write them in a form that asks them for their name"}`
	return Case{"plain", schema, `{"items":` + list(max(1, size/len(each)), func(int) string { return each }) + `}`}
}

// values counts the values of a JSON text in the same way as the package validate.
func values(text string) int {
	return strings.Count(text, ",") + strings.Count(text, "{") + strings.Count(text, "[")
}

func list(n int, item func(i int) string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(i)
	}
	return "[" + strings.Join(items, ",") + "]"
}

func members(n int, name func(i int) string, value string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = `"` + name(i) + `":` + value
	}
	return "{" + strings.Join(all, ",") + "}"
}

func same(text string) func(int) string { return func(int) string { return text } }

func numbered(format string) func(int) string {
	return func(i int) string { return fmt.Sprintf(format, i) }
}

type generator struct {
	*rand.Rand
	defs []string
}

// between returns a number from low to high. Small numbers are as likely as large ones.
func (g *generator) between(low, high int) int {
	for size := high - low + 1; ; size = size/2 + 1 {
		if size <= 2 || g.IntN(3) > 0 {
			return low + g.IntN(size)
		}
	}
}

// define adds a definition and returns a reference to it.
func (g *generator) define(schema string) string {
	g.defs = append(g.defs, fmt.Sprintf(`"d%d":%s`, len(g.defs), schema))
	return fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, len(g.defs)-1)
}

func (g *generator) schema(i int) Case {
	leaf := leaves[i%len(leaves)]
	draft := ""
	if leaf.draft7 {
		draft = `"$schema":"http://json-schema.org/draft-07/schema#",`
	}
	schema, value := leaf.make(g)
	name := leaf.name
	for range 1 + g.IntN(2) {
		w := wraps[g.IntN(len(wraps))]
		schema, value = w.make(g, g.define(schema), value)
		name += ", " + w.name
	}
	if g.IntN(2) == 0 { // the value fails only after all work is done, and the report of the problems repeats the work
		schema = `{"allOf":[` + schema + `,{"not":{}}]}`
		name += ", fails"
	}
	return Case{name, fmt.Sprintf(`{%s"allOf":[%s],"$defs":{%s}}`, draft, schema, strings.Join(g.defs, ",")), value}
}

// leaves contains functions that generate a schema and a value that is expensive to check.
var leaves = []struct {
	name   string
	draft7 bool
	make   func(g *generator) (schema, value string)
}{
	{"enum of numbers", false, func(g *generator) (string, string) {
		return `{"enum":` + list(g.between(10, 2000), numbered("%d.5")) + `}`, `1.25`
	}},
	{"enum of long texts", false, func(g *generator) (string, string) {
		text := strings.Repeat("x", g.between(10, 2000))
		return `{"enum":` + list(g.between(2, 100), numbered(`"`+text+`%03d"`)) + `}`, `"` + text + `999"`
	}},
	{"enum of objects", false, func(g *generator) (string, string) {
		object := members(g.between(1, 40), numbered("m%d"), "[1,[2,[3]]]")
		return `{"enum":` + list(g.between(2, 20), func(i int) string { return fmt.Sprintf(`{"a":%s,"z":%d}`, object, i) }) + `}`, `{"a":` + object + `,"z":-1}`
	}},
	{"const", false, func(g *generator) (string, string) {
		array := list(g.between(10, 2000), numbered("%d"))
		return `{"const":` + array + `}`, array
	}},
	{"multipleOf", false, func(g *generator) (string, string) {
		return `{"multipleOf":` + g.number() + `}`, g.number()
	}},
	{"range", false, func(g *generator) (string, string) {
		return `{"minimum":` + g.number() + `,"maximum":-` + g.number() + `,"exclusiveMinimum":` + g.number() + `}`, g.number()
	}},
	{"integers", false, func(g *generator) (string, string) {
		return `{"type":"integer"}`, `1.0e` + fmt.Sprint(g.between(1, 400))
	}},
	{"pattern", false, func(g *generator) (string, string) {
		return `{"pattern":"` + g.pattern() + `"}`, `"` + strings.Repeat("x", g.between(1, 1<<17)) + `"`
	}},
	{"patterns", false, func(g *generator) (string, string) {
		pattern := g.pattern()
		return `{"allOf":` + list(g.between(2, 40), func(i int) string { return fmt.Sprintf(`{"pattern":"%s|%d"}`, pattern, i) }) + `}`, `"` + strings.Repeat("x", g.between(1, 1<<12)) + `"`
	}},
	{"patternProperties", false, func(g *generator) (string, string) {
		return `{"patternProperties":` + members(g.between(1, 500), numbered("^[a-z]%d"), "true") + `}`, members(g.between(1, 10_000), numbered("x%d"), "1")
	}},
	{"propertyNames", false, func(g *generator) (string, string) {
		return `{"propertyNames":{"anyOf":[{"maxLength":2},{"pattern":"` + g.pattern() + `"},{"enum":` + list(g.between(1, 500), numbered(`"x%d"`)) + `}]}}`,
			members(g.between(1, 5000), numbered("x%d"), "1")
	}},
	{"required", false, func(g *generator) (string, string) {
		n := g.between(10, 2000)
		return `{"required":` + list(n, numbered(`"x%d"`)) + `}`, members(n-1, numbered("x%d"), "1")
	}},
	{"dependentRequired", false, func(g *generator) (string, string) {
		n := g.between(10, 1000)
		return `{"dependentRequired":{"x0":` + list(n, numbered(`"x%d"`)) + `}}`, members(g.between(1, n), numbered("x%d"), "1")
	}},
	{"dependentSchemas", false, func(g *generator) (string, string) {
		n := g.between(1, 500)
		return `{"dependentSchemas":` + members(n, numbered("x%d"), `{"maxProperties":5000}`) + `}`, members(n, numbered("x%d"), "1")
	}},
	{"dependencies", true, func(g *generator) (string, string) {
		n := g.between(10, 1000)
		return `{"dependencies":{"x0":` + list(n, numbered(`"x%d"`)) + `,"x1":{"minProperties":1}}}`, members(g.between(1, n), numbered("x%d"), "1")
	}},
	{"formats", true, func(g *generator) (string, string) {
		format := []string{"email", "uri", "date-time", "ipv6", "hostname", "regex", "uri-template", "json-pointer", "idn-email", "regex"}[g.IntN(10)]
		return `{"format":"` + format + `"}`, `"` + strings.Repeat([]string{"a.", "a", "(", "%", ":", "x{1000}"}[g.IntN(6)], g.between(1, 1<<15)) + `"`
	}},
	{"uniqueItems", false, func(g *generator) (string, string) {
		item := []string{"%d", "%d.5", `"text number %d"`, `{"a":[%d],"b":{"c":1}}`, "1e-%d"}[g.IntN(5)]
		return `{"uniqueItems":true}`, list(g.between(2, 300), numbered(item))
	}},
	{"contains", false, func(g *generator) (string, string) {
		return `{"contains":{"enum":[true,` + g.number() + `]},"minContains":10000,"maxContains":2}`, list(g.between(1, 5000), numbered("%d"))
	}},
	{"many members", false, func(g *generator) (string, string) {
		return `{"minProperties":1}`, members(g.between(100, 60_000), numbered("member%d"), "1")
	}},
	{"many members of a few kinds", false, func(g *generator) (string, string) {
		return `{"properties":{"x":true},"additionalProperties":{"type":"integer"}}`, members(g.between(100, 60_000), numbered("member%d"), "1")
	}},
	{"unevaluatedProperties", false, func(g *generator) (string, string) {
		n := g.between(1, 500)
		return `{"anyOf":` + list(g.between(1, 40), func(i int) string {
			return fmt.Sprintf(`{"properties":{"x%d":true},"patternProperties":{"^x":true}}`, i)
		}) + `,"unevaluatedProperties":false}`, members(n, numbered("x%d"), "1")
	}},
	{"unevaluatedItems", false, func(g *generator) (string, string) {
		return `{"anyOf":` + list(g.between(1, 40), same(`{"prefixItems":[true,true],"contains":true}`)) + `,"unevaluatedItems":false}`, list(g.between(1, 2000), numbered("%d"))
	}},
	{"alternatives", false, func(g *generator) (string, string) {
		of, n := []string{"oneOf", "anyOf", "allOf"}[g.IntN(3)], g.between(5, 90)
		d := fmt.Sprintf("#/$defs/d%d", len(g.defs))
		branch := func(i int) string {
			return fmt.Sprintf(`{"properties":{"k":{"const":%d},"next":{"$ref":"%s"}}}`, i, d)
		}
		g.define(`{"` + of + `":` + list(2+g.IntN(3), branch) + `}`)
		return `{"$ref":"` + d + `"}`, strings.Repeat(`{"next":`, n) + "1" + strings.Repeat("}", n)
	}},
	{"dynamic references", false, func(g *generator) (string, string) {
		anchor, n := fmt.Sprintf("a%d", len(g.defs)), g.between(5, 90)
		ref := `{"$dynamicRef":"#` + anchor + `"}`
		g.define(`{"$dynamicAnchor":"` + anchor + `","items":{"allOf":[` + ref + `,` + ref + `]}}`)
		return ref, strings.Repeat("[", n) + strings.Repeat("]", n)
	}},
	{"many definitions", false, func(g *generator) (string, string) {
		n := g.between(10, 600)
		for i := range n {
			g.define(fmt.Sprintf(`{"properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"items":{"$ref":"#"}}}}`, (i*7)%n))
		}
		return `{"$ref":"#/$defs/d0"}`, strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)
	}},
	{"many titles", false, func(g *generator) (string, string) {
		return `{"allOf":` + list(g.between(10, 1000), numbered(`{"title":"title %d","description":"`+strings.Repeat("x", 100)+`"}`)) + `}`, `1`
	}},
	{"endless", false, func(g *generator) (string, string) {
		d := fmt.Sprintf("#/$defs/d%d", len(g.defs))
		g.define(`{"` + []string{"not", "if", "allOf\":[{\"$ref\":\"" + d + "\"}],\"not"}[g.IntN(3)] + `":{"$ref":"` + d + `"},"minProperties":1}`)
		return `{"$ref":"` + d + `"}`, `{"a":1}`
	}},
}

// wraps contains functions that generate a schema that applies another schema several times.
var wraps = []struct {
	name string
	make func(g *generator, ref, value string) (schema, newValue string)
}{
	{"doubled", func(g *generator, ref, value string) (string, string) {
		for range g.between(3, 40) {
			ref = g.define(`{"allOf":[` + ref + `,` + ref + `]}`)
		}
		return ref, value
	}},
	{"many times", func(g *generator, ref, value string) (string, string) {
		return `{"allOf":` + list(g.between(10, 1000), same(ref)) + `}`, value
	}},
	{"anyOf without a match", func(g *generator, ref, value string) (string, string) {
		return `{"anyOf":` + list(g.between(10, 500), same(`{"allOf":[`+ref+`,false]}`)) + `}`, value
	}},
	{"oneOf with one match", func(g *generator, ref, value string) (string, string) {
		return `{"oneOf":` + list(g.between(10, 500), same(`{"not":`+ref+`}`)) + `}`, value
	}},
	{"items", func(g *generator, ref, value string) (string, string) {
		return `{"items":` + ref + `}`, list(g.copies(value), same(value))
	}},
	{"contained", func(g *generator, ref, value string) (string, string) {
		n := g.copies(value)
		return fmt.Sprintf(`{"contains":%s,"minContains":%d}`, ref, n+1), list(n, same(value))
	}},
	{"members", func(g *generator, ref, value string) (string, string) {
		return `{"additionalProperties":` + ref + `}`, members(g.copies(value), numbered("m%d"), value)
	}},
	{"unevaluated", func(g *generator, ref, value string) (string, string) {
		return `{"anyOf":` + list(g.between(1, 200), same(ref)) + `,"unevaluatedProperties":` + ref + `,"unevaluatedItems":` + ref + `}`, value
	}},
	{"nested unevaluated keywords", func(g *generator, ref, value string) (string, string) {
		for range g.between(3, 60) {
			ref = g.define(`{"allOf":[` + ref + `],"unevaluatedProperties":true,"unevaluatedItems":true}`)
		}
		return ref, value
	}},
	{"conditions", func(g *generator, ref, value string) (string, string) {
		for range g.between(3, 40) {
			ref = g.define(`{"if":` + ref + `,"then":` + ref + `,"else":` + ref + `}`)
		}
		return ref, value
	}},
}

// copies returns how many copies of a value to make.
func (g *generator) copies(value string) int {
	return g.between(1, max(1, min(maxValue/(len(value)+12), maxValues/(values(value)+1))))
}

// number returns a number that is long, or has a large exponent.
func (g *generator) number() string {
	switch g.IntN(4) {
	case 0:
		return fmt.Sprintf("1.5e%d", g.between(1, 400))
	case 1:
		return fmt.Sprintf("3e-%d", g.between(1, 400))
	case 2:
		return "7" + strings.Repeat("3", g.between(1, 990))
	}
	return "0." + strings.Repeat("0", g.between(1, 400)) + strings.Repeat("7", g.between(1, 500))
}

func (g *generator) pattern() string {
	return fmt.Sprintf([]string{"(x?){%d}y", "(x+x+)+y{0,%d}z", "^(a|x|xx){1,%d}$", "[a-w]{%d}|.*y", "x*x*x*x{%d}y", "(x|y|(z|x)*){%d}$"}[g.IntN(6)], g.between(1, 300))
}
