package validatetest

import (
	"fmt"
	"strings"
)

// ordinary contains schemas like those of real tools. Every value is checked against one of them. The member "x" of a
// value is hostile.
var ordinary = []struct{ name, schema string }{
	{"a form", `{"type":"object","required":["x","y"],"additionalProperties":false,"properties":{"x":{"type":["string","number","array","object"]},"y":{"type":"string"}}}`},
	{"a set", `{"properties":{"x":{"type":"array","uniqueItems":true}}}`},
	{"a list", `{"properties":{"x":{"type":"array","items":{"anyOf":[{"type":"integer","minimum":0},{"type":"string","maxLength":100,"pattern":"^[A-Za-z0-9 _-]+$"},{"type":"object","required":["id"]}]}}}}`},
	{"a tree", `{"$defs":{"node":{"properties":{"x":{"$ref":"#/$defs/node"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}}}},"$ref":"#/$defs/node"}`},
	{"amounts", `{"properties":{"x":{"anyOf":[{"multipleOf":0.01,"maximum":1000000},{"items":{"type":"number","multipleOf":0.01,"exclusiveMinimum":0}}]}}}`},
	{"a map", `{"properties":{"x":{"type":"object","propertyNames":{"pattern":"^[a-z][a-z0-9]*$"},"additionalProperties":{"type":["number","string"]}}}}`},
	{"a choice", `{"properties":{"x":{"enum":["red","green","blue",1,2,3.5,{"other":true}]}},"if":{"required":["y"]},"then":{"required":["z"]}}`},
	{"kinds of shapes", `{"oneOf":[{"properties":{"x":{"type":"array","contains":{"type":"object"}}},"required":["x"]},{"properties":{"x":{"type":"object","minProperties":2}},"required":["x"]},{"properties":{"x":{"type":"string","format":"uri"}},"required":["x"]}],"unevaluatedProperties":false}`},
	{"texts", `{"properties":{"x":{"type":"string","minLength":1,"maxLength":5000000,"pattern":"^([A-Za-z0-9+/]{4})*(==|=)?$"}}}`},
	{"everything checked", `{"unevaluatedProperties":false,"allOf":[{"properties":{"x":{"unevaluatedItems":{"type":"number"},"unevaluatedProperties":{"type":"number"}}}}]}`},
}

// texts contains functions that generate the member "x" of a hostile value.
var texts = []struct {
	name string
	make func(g *generator) string
}{
	{"numbers", func(g *generator) string { return list(g.between(1, 90_000), numbered("%d")) }},
	{"numbers with exponents", func(g *generator) string {
		number := fmt.Sprintf("1.%%de%d", g.between(-400, 400))
		return list(g.between(1, 50_000), numbered(number))
	}},
	{"long numbers", func(g *generator) string {
		digits := strings.Repeat("3", g.between(1, 980))
		return list(g.between(1, maxValue/(len(digits)+8)), numbered("%d."+digits))
	}},
	{"equal numbers", func(g *generator) string {
		return list(g.between(1, 2000), func(i int) string { return "1" + strings.Repeat("0", i%300) + "e-" + fmt.Sprint(i%300) })
	}},
	{"a huge exponent", func(g *generator) string { return fmt.Sprintf("[1e%d]", g.between(401, 1<<40)) }},
	{"a number with very many digits", func(g *generator) string { return strings.Repeat("9", g.between(1001, maxValue)) }},
	{"too many values", func(g *generator) string { return list(g.between(100_000, 400_000), same("1")) }},
	{"empty objects", func(g *generator) string { return list(g.between(1, 49_000), same("{}")) }},
	{"objects", func(g *generator) string {
		return list(g.between(1, 30_000), numbered(`{"id":%d,"n":"x"}`))
	}},
	{"objects of objects", func(g *generator) string {
		n := g.between(1, 90)
		return list(g.between(1, 49_000/n), same(strings.Repeat(`{"x":`, n)+"1"+strings.Repeat("}", n)))
	}},
	{"nested objects", func(g *generator) string {
		n := g.between(1, 98)
		return strings.Repeat(`{"x":`, n) + "1" + strings.Repeat("}", n)
	}},
	{"nested lists", func(g *generator) string {
		n := g.between(1, 98)
		return list(g.between(1, 90_000/n), same(strings.Repeat("[", n)+strings.Repeat("]", n)))
	}},
	{"very deep lists", func(g *generator) string {
		n := g.between(1000, 49_000)
		return strings.Repeat("[", n) + strings.Repeat("]", n)
	}},
	{"children", func(g *generator) string {
		n := g.between(1, 30)
		return strings.Repeat(`{"children":[{},{},`, n) + "{}" + strings.Repeat("]}", n)
	}},
	{"members", func(g *generator) string { return members(g.between(1, 90_000), numbered("m%d"), "1") }},
	{"long names", func(g *generator) string {
		name := strings.Repeat("a", g.between(1, 5000))
		return members(g.between(1, maxValue/(len(name)+8)), numbered(name+"%d"), "1")
	}},
	{"a long text", func(g *generator) string {
		return `"` + strings.Repeat([]string{"QUJD", "aaaa", `\u00e9`, `\\`, "=", "é"}[g.IntN(6)], g.between(1, maxText/6)) + `"`
	}},
	{"texts", func(g *generator) string {
		text := strings.Repeat("a", g.between(1, 2000))
		return list(g.between(1, maxValue/(len(text)+8)), numbered(`"`+text+`%d"`))
	}},
	{"not JSON", func(g *generator) string { return strings.Repeat("[", g.between(1, 50_000)) + `"\u12` }},
	{"the same member many times", func(g *generator) string { return members(g.between(1, 90_000), same("m"), "1") }},
}

func (g *generator) value(i int) Case {
	part, schema := texts[i%len(texts)], ordinary[g.IntN(len(ordinary))]
	return Case{part.name + ", for " + schema.name, schema.schema, `{"x":` + part.make(g) + `}`}
}
