package jsonschema

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

var testRule = &diag.Rule{Code: "T001", Severity: diag.Error, Title: "a test rule", Why: "", Fix: ""}

// check returns the diagnostics of Check for a schema. It returns ok = false if the text is not valid JSON.
func check(text string) (found []diag.Diagnostic, ok bool) {
	if !utf8.ValidString(text) {
		return nil, false
	}
	src := diag.NewSource("schema.json", text)
	r := diag.NewReporter(src, false)
	tree, complete := doc.ParseJSON(src, r)
	if !complete || r.Errors() > 0 {
		return nil, false
	}
	usable := Check(tree.Root(), testRule, r)
	found = r.Finish()
	if usable != (len(found) == 0) {
		panic("Check returned true with diagnostics, or false without diagnostics")
	}
	return found, true
}

// doubled returns a schema in which 2 to the power of n schemas apply to one value.
func doubled(n int) string {
	text := `{"$defs":{"d0":{}`
	for i := 1; i <= n; i++ {
		text += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i-1, i-1)
	}
	return text + fmt.Sprintf(`},"$ref":"#/$defs/d%d"}`, n)
}

var good = []string{
	doubled(10),
	`true`, `false`, `{}`,
	`{"type":"object"}`,
	`{"type":["string","null"]}`,
	`{"type":"object","properties":{"a":{"type":"string"},"b":true},"required":["a"],"additionalProperties":false}`,
	`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"string"}`,
	`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":false}`,
	`{"$schema":"https://json-schema.org/draft/2019-09/schema","items":[true],"properties":{"a":{"$ref":"#"}}}`,
	`{"$schema":"https://json-schema.org/draft/2019-09/schema","$anchor":"a:b"}`,
	`{"$schema":"http://json-schema.org/draft-07/schema","enum":["a","b"],"prefixItems":7,"$defs":3}`,
	`{"$id":"https://example.com/a.json"}`, `{"$id":"https://example.com/a.json#"}`,
	`{"$comment":"c","title":"t","description":"d","default":null,"examples":[1],"deprecated":true,"readOnly":false,"writeOnly":true}`,
	`{"enum":[]}`, `{"enum":[1,1]}`, `{"enum":[null,{"a":[1]}]}`, `{"const":{"a":1}}`,
	`{"multipleOf":0.01}`, `{"multipleOf":1e-2}`,
	`{"minimum":-1.5,"maximum":2,"exclusiveMinimum":-3,"exclusiveMaximum":4}`,
	`{"minLength":0,"maxLength":5.0,"minItems":1,"maxItems":1e2,"minProperties":0,"maxProperties":3,"minContains":0,"maxContains":1}`,
	`{"pattern":"^[a-z]+$"}`, `{"pattern":"(?<name>a)"}`, `{"pattern":"\\p{L}+\\d\\/"}`,
	`{"patternProperties":{"^x-":{"type":"string"}}}`,
	`{"uniqueItems":true}`, `{"format":"no-such-format"}`, `{"format":"email"}`,
	`{"contentEncoding":"base64","contentMediaType":"application/json","contentSchema":{"type":"object"}}`,
	`{"prefixItems":[{"type":"string"}],"items":false}`, `{"contains":{"const":1}}`,
	`{"propertyNames":{"pattern":"^a"}}`,
	`{"allOf":[{}],"anyOf":[true],"oneOf":[{"type":"null"}],"not":false}`,
	`{"if":{"required":["a"]},"then":{"required":["b"]},"else":true}`, `{"then":{"type":"null"}}`,
	`{"dependentRequired":{"a":["b","c"]},"dependentSchemas":{"a":{"required":["b"]}}}`,
	`{"dependencies":{"a":["b"],"c":{"type":"object"}}}`,
	`{"unevaluatedProperties":false,"unevaluatedItems":{"type":"string"}}`,
	`{"$defs":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/a"}}}`,
	`{"definitions":{"a b":{"type":"string"}},"properties":{"x":{"$ref":"#/definitions/a%20b"}}}`,
	`{"$defs":{"a/b~c":true},"properties":{"x":{"$ref":"#/$defs/a~1b~0c"}}}`,
	`{"properties":{"child":{"$ref":"#"}}}`, `{"properties":{"child":{"$ref":""}}}`,
	`{"allOf":[{"type":"object"}],"properties":{"a":{"$ref":"#/allOf/0"}}}`,
	`{"x-shared":{"a":{"type":"string"}},"items":{"$ref":"#/x-shared/a"}}`,
	`{"$defs":{"a":{"$anchor":"here"}},"items":{"$ref":"#here"}}`,
	`{"$dynamicAnchor":"node","properties":{"next":{"$dynamicRef":"#node"}}}`,
	`{"$defs":{"a":{"$dynamicAnchor":"t"}},"items":{"$dynamicRef":"#/$defs/a"}}`,
	`{"unknown":{"type":"bogus"},"x":1,"nullable":true,"example":3}`,
	`{"properties":{"type":{"type":"string"},"$ref":{"type":"string"},"$id":{"type":"string"},"required":{}}}`,
	`{"$anchor":"_a-b.c"}`,
}

// The variable bad contains invalid schemas. Each entry has the location of the first mistake and a part
// of the message or hint.
var bad = []struct{ schema, at, says string }{
	{`null`, "1:1", "a JSON Schema must be an object or a boolean, not null"},
	{`[]`, "1:1", "not a list"},
	{`"string"`, "1:1", "not a string"},
	{`3`, "1:1", "not a number"},
	{`{"type":"strng"}`, "1:9", `did you mean "string"?`},
	{`{"type":"int"}`, "1:9", `JSON Schema calls it "integer"`},
	{`{"type":"file"}`, "1:9", "is not a JSON Schema type"},
	{`{"type":[]}`, "1:9", "at least one type"},
	{`{"type":["string","string"]}`, "1:19", "already in the list"},
	{`{"type":["string",3]}`, "1:19", "not a number"},
	{`{"type":{"a":1}}`, "1:9", "must be a type name"},
	{`{"type":null}`, "1:9", "must be a type name"},
	{`{"properties":[]}`, "1:15", `"properties" must be an object, not a list`},
	{`{"properties":{"a":"string"}}`, "1:20", "not a string"},
	{`{"properties":{"a":{"type":"nope"}}}`, "1:28", "is not a JSON Schema type"},
	{`{"$defs":{"a":null}}`, "1:15", "not null"},
	{`{"definitions":{"a":[]}}`, "1:21", "not a list"},
	{`{"dependentSchemas":{"a":1}}`, "1:26", "not a number"},
	{`{"dependencies":{"a":"b"}}`, "1:22", "not a string"},
	{`{"dependencies":{"a":["b","b"]}}`, "1:27", "already in the list"},
	{`{"items":[{"type":"string"}]}`, "1:10", `use "prefixItems"`},
	{`{"items":"string"}`, "1:10", "not a string"},
	{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[]}`, "1:62", "at least one schema"},
	{`{"$schema":"http://json-schema.org/draft-07/schema#","enum":[]}`, "1:61", "at least one value"},
	{`{"$schema":"http://json-schema.org/draft-07/schema#","enum":[1,1.0]}`, "1:64", "already in the list"},
	{`{"not":[]}`, "1:8", "not a list"},
	{`{"if":1}`, "1:7", "not a number"},
	{`{"then":null}`, "1:9", "not null"},
	{`{"else":"x"}`, "1:9", "not a string"},
	{`{"contains":[]}`, "1:13", "not a list"},
	{`{"propertyNames":"^a"}`, "1:18", "not a string"},
	{`{"additionalProperties":"no"}`, "1:25", "not a string"},
	{`{"unevaluatedProperties":0}`, "1:26", "not a number"},
	{`{"unevaluatedItems":[]}`, "1:21", "not a list"},
	{`{"prefixItems":[]}`, "1:16", "at least one schema"},
	{`{"prefixItems":{}}`, "1:16", "must be a list"},
	{`{"allOf":[]}`, "1:10", "at least one schema"},
	{`{"anyOf":{}}`, "1:10", "must be a list"},
	{`{"oneOf":[3]}`, "1:11", "not a number"},
	{`{"required":true}`, "1:13", "list the property in the object that contains it"},
	{`{"required":"a"}`, "1:13", "must be a list of names"},
	{`{"required":["a","a"]}`, "1:18", "already in the list"},
	{`{"required":[1]}`, "1:14", "must list names"},
	{`{"dependentRequired":{"a":"b"}}`, "1:27", "must be a list of names"},
	{`{"dependentRequired":[]}`, "1:22", "must be an object"},
	{`{"enum":"a"}`, "1:9", "must be a list"},
	{`{"minLength":-1}`, "1:14", "0 or above"},
	{`{"maxLength":1.5}`, "1:14", "whole number"},
	{`{"minItems":"1"}`, "1:13", "without quotes"},
	{`{"maxContains":null}`, "1:16", "whole number"},
	{`{"minimum":"1"}`, "1:12", "must be a number"},
	{`{"exclusiveMinimum":true,"minimum":0}`, "1:21", `so move the number here from "minimum"`},
	{`{"multipleOf":0}`, "1:15", "above 0"},
	{`{"multipleOf":-0.0}`, "1:15", "above 0"},
	{`{"multipleOf":0e5}`, "1:15", "above 0"},
	{`{"multipleOf":"1"}`, "1:15", "must be a number"},
	{`{"pattern":3}`, "1:12", "must be a string"},
	{`{"pattern":"["}`, "1:12", "bracket that is not closed"},
	{`{"pattern":"(a"}`, "1:12", "parenthesis that is not closed"},
	{`{"pattern":"^(?=a)b"}`, "1:12", "contains a lookahead or lookbehind"},
	{`{"pattern":"(?<!a)b"}`, "1:12", "contains a lookahead or lookbehind"},
	{`{"pattern":"(a)\\1"}`, "1:12", "contains a backreference"},
	{`{"pattern":"\\u00e9"}`, "1:12", `write \x{…}`},
	{`{"pattern":"a**"}`, "1:12", "is invalid"},
	{`{"pattern":"a{1001}"}`, "1:12", "too large"},
	{`{"patternProperties":{"(":{}}}`, "1:23", "parenthesis that is not closed"},
	{`{"patternProperties":[]}`, "1:22", "must be an object"},
	{`{"uniqueItems":1}`, "1:16", "must be a boolean"},
	{`{"format":1}`, "1:11", "must be a string"},
	{`{"title":1,"description":[]}`, "1:10", "must be a string"},
	{`{"examples":1}`, "1:13", "must be a list"},
	{`{"deprecated":"yes"}`, "1:15", "must be a boolean"},
	{`{"contentSchema":1}`, "1:18", "not a number"},
	{`{"$comment":1}`, "1:13", "must be a string"},
	{`{"$schema":1}`, "1:12", "must be a string"},
	{`{"$schema":"https://example.com/my-schema"}`, "1:12", "does not support the JSON Schema version"},
	{`{"$schema":"draft-07"}`, "1:12", "does not support the JSON Schema version"},
	{`{"$id":1}`, "1:8", "must be a string"},
	{`{"$id":"https://example.com/a#b"}`, "1:8", "not an address"},
	{`{"$id":"%zz"}`, "1:8", "not an address"},
	{`{"$ref":1}`, "1:9", "must be a string"},
	{`{"$ref":"#/$defs/unti","$defs":{"unit":{}}}`, "1:9", `did you mean "unit"?`},
	{`{"$ref":"#nowhere"}`, "1:9", "is not an anchor"},
	{`{"$ref":"#/a~2"}`, "1:9", "write ~ as ~0"},
	{`{"$ref":"#/%zz"}`, "1:9", "is not a reference"},
	{`{"$ref":"#/required","required":["a"]}`, "1:33", "not a list"},
	{`{"$ref":"#/x","x":{"type":"nope"}}`, "1:27", "is not a JSON Schema type"},
	{`{"items":{"$ref":"#/properties"},"properties":{"type":{"type":"string"}}}`, "1:55", "must be a type name"},
	{`{"$ref":"#/allOf/1","allOf":[{}]}`, "1:9", "does not exist"},
	{`{"$dynamicRef":"#nowhere"}`, "1:16", "is not an anchor"},
	{`{"$anchor":"1a"}`, "1:12", "not a valid anchor name"},
	{`{"$anchor":"a","$defs":{"b":{"$anchor":"a"}}}`, "1:40", "already has the anchor"},
	{`{"$dynamicAnchor":"a b"}`, "1:19", "not a valid anchor name"},
	{`{"$vocabulary":{"x":true}}`, "1:2", "does not support the keyword"},
	{`{"$recursiveAnchor":true}`, "1:2", "does not support the keyword"},
}

// The variable stricter contains schemas that only Check rejects. The validator accepts these schemas. Each entry
// has a part of the message. The list covers all kinds of such schemas, because the fuzz test allows no other
// difference.
var stricter = []struct{ says, schema string }{
	{"refers to another document", `{"$ref":"https://example.com/other.json"}`},
	{"refers to another document", `{"$id":"https://example.com/a.json","$ref":"a.json#/$defs/x","$defs":{"x":{}}}`},
	{"refers to another document", `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`},
	{"cannot have its own $id", `{"$defs":{"a":{"$id":"a.json"}},"items":{"$ref":"#/$defs/a"}}`},
	{"is not an address that ambit accepts as $id", `{"$schema":"http://json-schema.org/draft-07/schema#","$id":"#root"}`},
	{"does not support the JSON Schema version", `{"$schema":"http://json-schema.org/draft-04/schema#"}`},
	{"does not support the JSON Schema version", `{"$schema":"http://json-schema.org/draft-06/schema#"}`},
	{"leads back to itself", `{"$ref":"#"}`},
	{"more than 10000 schemas apply to one value", doubled(14)},
	{"more than 5000 values", `{"enum":[` + strings.Repeat("1,", 5000) + `1]}`},
	{"leads back to itself", `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}}}`},
	{"a chain of references has more than", chain(maxChain + 2)},
	{"expands to too many steps", `{"pattern":"(abcdefghijklmnop){1000}"}`},
	{"ambit does not support the keyword", `{"$recursiveRef":"#"}`},
	{"ambit does not support the keyword", `{"$vocabulary":{"https://example.com/v":true}}`},
}

func chain(n int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/n0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"n%d":{"$ref":"#/$defs/n%d"},`, i, i+1)
	}
	fmt.Fprintf(&b, `"n%d":true}}`, n)
	return b.String()
}

func TestGood(t *testing.T) {
	for _, s := range good {
		found, ok := check(s)
		if !ok || len(found) > 0 {
			t.Errorf("%s: Check reports %+v", s, found)
		}
	}
}

func TestBad(t *testing.T) {
	for _, b := range bad {
		found, ok := check(b.schema)
		if !ok || len(found) == 0 {
			t.Errorf("%s: Check accepts the schema", b.schema)
			continue
		}
		d := found[0]
		at := itoa(d.Line) + ":" + itoa(d.Column)
		if says := d.Message + "; " + d.Hint; at != b.at || !strings.Contains(says, b.says) {
			t.Errorf("%s: got %s %q, want %s %q", b.schema, at, says, b.at, b.says)
		}
	}
}

func itoa(n int) string { return string(appendInt(nil, n)) }

func appendInt(b []byte, n int) []byte {
	if n >= 10 {
		b = appendInt(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

func TestEveryProblemIsReported(t *testing.T) {
	found, _ := check(`{"type":"nope","minLength":-1,"properties":{"a":3},"$ref":"#/x"}`)
	if len(found) != 4 {
		t.Errorf("got %d problems, want 4: %+v", len(found), found)
	}
}

func TestManyReferencesStayLinear(t *testing.T) {
	const n = 20_000
	var b strings.Builder
	b.WriteString(`{"$defs":{`)
	for i := range n {
		b.WriteString(`"d` + itoa(i) + `":{"items":{"$ref":"#/$defs/d` + itoa(n-1-i) + `"}},`)
	}
	b.WriteString(`"last":{"type":"nope"}}}`)
	if found, ok := check(b.String()); !ok || len(found) != 1 {
		t.Errorf("got %d problems, want 1", len(found))
	}
}

func TestProperties(t *testing.T) {
	for _, c := range []struct {
		schema string
		names  string
		open   bool
	}{
		{`{"properties":{"a":{},"b":{}}}`, "a b", false},
		{`{}`, "", true},
		{`true`, "", true},
		{`{"properties":{}}`, "", true},
		{`{"additionalProperties":false}`, "", false},
		{`{"additionalProperties":{"type":"string"}}`, "", true},
		{`{"properties":{"a":{}},"patternProperties":{"^x":{}}}`, "a", true},
		{`{"allOf":[{"properties":{"a":{}}},{"$ref":"#/$defs/d"}],"$defs":{"d":{"properties":{"b":{}}}}}`, "a b", false},
		{`{"if":{},"then":{"properties":{"a":{}}},"else":{"properties":{"b":{}}}}`, "a b", false},
		{`{"$ref":"#"}`, "", true},
		{`{"properties":{"a":{}},"$ref":"#there"}`, "a", true},
	} {
		src := diag.NewSource("", c.schema)
		tree, _ := doc.ParseJSON(src, diag.NewReporter(src, false))
		names, open := Properties(tree.Root())
		if got := strings.Join(names, " "); got != c.names || open != c.open {
			t.Errorf("%s: %q %v, want %q %v", c.schema, got, open, c.names, c.open)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	src := diag.NewSource("", `{"type":"object","properties":{"range":{"type":"string"},"limit":{"type":"integer","minimum":1}},"required":["range"]}`)
	tree, _ := doc.ParseJSON(src, diag.NewReporter(src, false))
	r := diag.NewReporter(src, false)
	b.ReportAllocs()
	for b.Loop() {
		Check(tree.Root(), testRule, r)
	}
}

func TestStricterIsReported(t *testing.T) {
	for _, s := range stricter {
		found, ok := check(s.schema)
		if !ok || !slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return strings.Contains(d.Message, s.says) }) {
			t.Errorf("%.80s: %+v, want %q", s.schema, found, s.says)
		}
	}
}
