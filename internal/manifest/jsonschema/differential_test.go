package jsonschema

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	peer "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// This file compares Check with a validator that compiles schemas. Check must reject every schema that the validator
// rejects. The variable stricter lists all kinds of schemas that only Check rejects.

type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("the test fetches no schemas") }

// compiles returns the validator's error for a schema. The validator ignores subschemas that no reference uses, so
// compiles also compiles each subschema separately.
func compiles(text string) error {
	v, err := peer.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	c := peer.NewCompiler()
	c.UseLoader(noLoader{})
	const at = "mem:///schema.json"
	if err := c.AddResource(at, v); err != nil {
		return err
	}
	if _, err := c.Compile(at); err != nil {
		return err
	}
	obj, _ := v.(map[string]any)
	name, _ := obj["$schema"].(string)
	d, ok := draftOf(name)
	if !ok {
		d = draft2020
	}
	return compileAll(c, at+"#", v, d)
}

var holders = map[string]string{
	"$defs": "map", "definitions": "map", "properties": "map", "patternProperties": "map", "dependentSchemas": "map",
	"dependencies": "map", "allOf": "list", "anyOf": "list", "oneOf": "list", "prefixItems": "list", "not": "one",
	"if": "one", "then": "one", "else": "one", "items": "one", "contains": "one", "additionalProperties": "one",
	"propertyNames": "one", "unevaluatedItems": "one", "unevaluatedProperties": "one", "contentSchema": "one",
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1", "%", "%25")

func compileAll(c *peer.Compiler, at string, v any, d draft) error {
	obj, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	if _, err := c.Compile(at); err != nil {
		return err
	}
	for key, value := range obj {
		kind := holders[key]
		if kind == "" || keywords[key].since > d {
			continue
		}
		below := at + "/" + key
		switch value := value.(type) {
		case map[string]any:
			if kind == "one" {
				if err := compileAll(c, below, value, d); err != nil {
					return err
				}
			}
			if kind == "map" {
				for name, s := range value {
					if err := compileAll(c, below+"/"+escaper.Replace(name), s, d); err != nil {
						return err
					}
				}
			}
		case []any:
			for i, s := range value {
				if err := compileAll(c, below+"/"+itoa(i), s, d); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// The function agree fails the test if Check and the validator disagree about a schema. It allows the
// differences that are listed in the variable stricter.
func agree(t *testing.T, schema string) {
	t.Helper()
	found, ok := check(schema)
	if !ok {
		return // a manifest cannot contain this text
	}
	err := compiles(schema)
	switch {
	case err == nil && strings.Contains(schema, "additionalItems"):
		// The validator ignores additionalItems in 2020-12, but Check rejects a value of the wrong type.
	case err != nil && len(found) == 0:
		t.Errorf("%s: Check accepts the schema, but the validator returns: %v", schema, err)
	case err == nil && len(found) > 0 && !slices.ContainsFunc(found, listed):
		t.Errorf("%s: Check rejects the schema, but it compiles: %s", schema, found[0].Message)
	}
}

func listed(d diag.Diagnostic) bool {
	for _, s := range stricter {
		if strings.Contains(d.Message, s.says) {
			return true
		}
	}
	return false
}

func TestAgainstValidator(t *testing.T) {
	for _, s := range good {
		agree(t, s)
		if err := compiles(s); err != nil {
			t.Errorf("%s: the schema is listed as good, but the validator returns: %v", s, err)
		}
	}
	for _, b := range bad {
		agree(t, b.schema)
		if compiles(b.schema) == nil {
			t.Errorf("%s: the schema is listed as bad, but it compiles", b.schema)
		}
	}
	if len(good)+len(bad) < 60 {
		t.Errorf("the lists contain only %d schemas, want at least 60", len(good)+len(bad))
	}
}

func FuzzAgainstValidator(f *testing.F) {
	for _, s := range good {
		f.Add(s)
	}
	for _, b := range bad {
		f.Add(b.schema)
	}
	for _, s := range stricter {
		if len(s.schema) < 500 {
			f.Add(s.schema)
		}
	}
	f.Fuzz(func(t *testing.T, schema string) {
		if len(schema) > 2000 {
			return
		}
		agree(t, schema)
	})
}

// FuzzGenerated passes the input to a generator. The generator makes one choice for each byte. Nearly every input
// therefore becomes a document that resembles a schema.
func FuzzGenerated(f *testing.F) {
	for seed := range 64 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		b := make([]byte, 200)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 400 {
			return
		}
		g := generator{choices: choices}
		g.schema(0)
		agree(t, g.b.String())
	})
}

type generator struct {
	choices []byte
	b       strings.Builder
}

// pick returns the next choice, a number below n, or 0 if no choices are left.
func (g *generator) pick(n int) int {
	if len(g.choices) == 0 {
		return 0
	}
	c := g.choices[0]
	g.choices = g.choices[1:]
	return int(c) % n
}

var (
	someKeys = func() []string {
		keys := []string{"unknown", "x"}
		for k := range keywords {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		return keys
	}()
	someNames  = []string{"a", "b", "$defs", "properties", "", "a/b", "type"}
	someValues = []string{
		`{}`, `true`, `false`, `null`, `0`, `1`, `-1`, `1.5`, `2.0`, `[]`, `""`, `"a"`, `"#"`, `"#/$defs/a"`, `"#/properties/a"`,
		`"#a"`, `"#/x"`, `"#/allOf/0"`, `"string"`, `["string"]`, `["a","b"]`, `["a","a"]`, `[1]`, `{"a":["b"]}`, `{"a":1}`, `"^a$"`, `"("`,
		`"http://json-schema.org/draft-07/schema#"`, `"https://json-schema.org/draft/2019-09/schema"`, `"https://example.com/x"`,
		`{"https://example.com/v":true}`, `"#/unknown"`, `"#/$defs/a/items"`, `"object"`,
	}
)

func (g *generator) schema(depth int) {
	if depth > 4 {
		g.b.WriteString(someValues[g.pick(len(someValues))])
		return
	}
	g.b.WriteByte('{')
	used := map[string]bool{}
	for range 1 + g.pick(5) {
		key := someKeys[g.pick(len(someKeys))]
		if used[key] {
			continue
		}
		if len(used) > 0 {
			g.b.WriteByte(',')
		}
		used[key] = true
		g.b.WriteString(`"` + key + `":`)
		g.value(key, depth)
	}
	g.b.WriteByte('}')
}

func (g *generator) value(key string, depth int) {
	k := keywords[key]
	// Most values get the shape that the keyword requires; their content can still be wrong.
	if g.pick(8) == 7 {
		g.b.WriteString(someValues[g.pick(len(someValues))])
		return
	}
	switch k.shape {
	case aSchema, itemsSchema:
		g.schema(depth + 1)
	case schemaMap, patternMap, schemaOrNames:
		g.b.WriteString(`{"` + someNames[g.pick(len(someNames))] + `":`)
		g.schema(depth + 1)
		g.b.WriteByte('}')
	case schemaList:
		g.b.WriteByte('[')
		g.schema(depth + 1)
		g.b.WriteByte(']')
	default:
		g.b.WriteString(someValues[g.pick(len(someValues))])
	}
}
