package validate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestOfficialSuite runs the test suite of JSON Schema. The module github.com/google/jsonschema-go contains it.
func TestOfficialSuite(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	ran, unusable := 0, 0
	for folder, draft := range map[string]*jsonschema.Draft{"draft7": jsonschema.Draft7, "draft2020-12": jsonschema.Draft2020} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "jsonschema/testdata", folder, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, group := range readSuite(t, file) {
				if object, ok := group.Schema.(map[string]any); ok {
					object["$schema"] = draft.String()
				}
				text, err := json.Marshal(group.Schema)
				if err != nil {
					t.Fatal(err)
				}
				s := New(string(text))
				for _, test := range group.Tests {
					ran++
					problems, err := s.Check(t.Context(), []byte(test.Data))
					switch {
					case err != nil && strings.Contains(err.Error(), "the schema refers to") || err == errDynamic:
						unusable++
					case err != nil || (len(problems) == 0) != test.Valid:
						t.Errorf("%s: %s: %s: got %v, %v, want valid: %v",
							filepath.Base(file), group.Description, test.Description, problems, err, test.Valid)
					}
				}
			}
		}
	}
	t.Logf("%d tests, of which %d use other schemas", ran, unusable)
	if ran < 2000 || unusable > 120 {
		t.Errorf("%d tests ran, of which %d use other schemas", ran, unusable)
	}
}

type suiteGroup struct {
	Description string
	Schema      any
	Tests       []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

func readSuite(t *testing.T, file string) (groups []suiteGroup) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if err := d.Decode(&groups); err != nil {
		t.Fatal(err)
	}
	return groups
}

func items(n int, item func(i int) string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = item(i)
	}
	return "[" + strings.Join(list, ",") + "]"
}

// doubled returns a schema that a value must match 2 to the power of n times.
func doubled(n int) string {
	var b strings.Builder
	b.WriteString(`{"$defs":{"d0":{"type":"object"}`)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, `,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i-1, i-1)
	}
	fmt.Fprintf(&b, `},"$ref":"#/$defs/d%d"}`, n)
	return b.String()
}

const alternatives = `{"$ref":"#/$defs/n","$defs":{"n":{"oneOf":[
	{"properties":{"k":{"const":"a"},"next":{"$ref":"#/$defs/n"}}},
	{"properties":{"k":{"const":"b"},"next":{"$ref":"#/$defs/n"}}}]}}}`

func TestWorkIsBounded(t *testing.T) {
	for _, tt := range []struct{ name, schema, value, want string }{
		{"references", doubled(40), `{}`, ErrTooMuchWork.Error()},
		{"references that fail", doubled(40), `1`, "must be object, not number"},
		{"alternatives", alternatives, strings.Repeat(`{"next":`, 60) + "1" + strings.Repeat("}", 60), ErrTooMuchWork.Error()},
		{"endless reference", `{"$ref":"#"}`, `{}`, ErrTooMuchWork.Error()},
		{"endless not", `{"not":{"$ref":"#"}}`, `{}`, ErrTooMuchWork.Error()},
		{"pattern", `{"pattern":"(x?){1000}y"}`, `"` + strings.Repeat("x", 1<<20) + `"`, ErrTooMuchWork.Error()},
		{"names", `{"patternProperties":{"(x?){1000}y":{}}}`, `{"` + strings.Repeat("x", 1<<20) + `":1}`, ErrTooMuchWork.Error()},
		{
			"enum", `{"items":{"enum":` + items(4000, func(i int) string { return fmt.Sprint(i) }) + `}}`,
			items(90_000, func(int) string { return "3999" }), ErrTooMuchWork.Error(),
		},
		{
			// The check finds that the value does not match, but has no work left to find out why.
			"reasons", strings.Replace(doubled(16), `"$ref":"#/$defs/d16"}`, `"allOf":[{"anyOf":[{"allOf":[{"$ref":"#/$defs/d16"},{"$ref":"#/$defs/d15"}]}]},{"required":["b"]}]}`, 1),
			`{"a":1}`, "<nil>;  does not match the schema",
		},
		{"exponent", `{"minimum":1}`, `1e999999999`, "contains a number with an exponent beyond 400"},
		{"negative exponent", `{"minimum":1}`, `[1e-401]`, "exponent beyond 400"},
		{"huge exponent", `{"minimum":1}`, `1e99999999999999999999`, "exponent beyond 400"},
		{"digits", `{"minimum":1}`, strings.Repeat("1", 1001), "a number with more than 1000 digits"},
		{"values", `{"minimum":1}`, items(100_001, func(int) string { return "1" }), "contains more than 100000 values"},
		{"nested objects", `{"minimum":1}`, items(700, func(int) string { return strings.Repeat(`{"a":`, 90) + "1" + strings.Repeat("}", 90) }), "contains more than 60000 objects"},
		{"exponent in the schema", `{"minimum":1e999999999}`, `1`, "the schema contains a number with an exponent beyond"},
		{"patterns of the schema", `{"allOf":` + items(200, func(i int) string { return fmt.Sprintf(`{"pattern":"(abcdefgh%d){100}"}`, i) }) + `}`, `1`, errPatterns.Error()},
		{"large schema", `{"description":"` + strings.Repeat("x", 256<<10) + `"}`, `1`, "the schema has 262162 bytes"},
		{"many schemas", `{"allOf":` + items(5000, func(int) string { return "true" }) + `}`, `1`, "the schema contains more than 5000 values"},
		{"deep schema", strings.Repeat(`{"not":`, 101) + "true" + strings.Repeat("}", 101), `1`, "the schema is nested more than 100 levels deep"},
		{"invalid schema", `{"allOf":` + items(2000, func(int) string { return `{"type":5}` }) + `}`, `1`, "the schema is invalid at \"/allOf/"},
		{"nested repetition", `{"pattern":"((a{100}){100}){100}"}`, `1`, "invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			problems, err := New(tt.schema).Check(t.Context(), []byte(tt.value))
			got := fmt.Sprint(err)
			for _, p := range problems {
				got += "; " + p.Pointer + " " + p.Message
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %.300s, want %s", got, tt.want)
			}
		})
	}
}

// TestLargeValuesMatch checks that a value at the limits passes an ordinary schema.
func TestLargeValuesMatch(t *testing.T) {
	s := New(`{"uniqueItems":true,"items":{"type":"object","required":["id"],"additionalProperties":false,
		"properties":{"id":{"type":"integer","minimum":0},"name":{"type":"string","maxLength":64,"pattern":"^[a-z ]+$"}}}}`)
	value := items(30_000, func(i int) string { return fmt.Sprintf(`{"id":%d,"name":"a name of letters"}`, i) })
	if problems, err := s.Check(t.Context(), []byte(value)); err != nil || problems != nil {
		t.Errorf("got %v, %v", problems, err)
	}
	long := New(`{"pattern":"^[A-Za-z0-9+/]*={0,2}$","minLength":1}`)
	if problems, err := long.Check(t.Context(), []byte(`"`+strings.Repeat("QUJD", 1<<19)+`"`)); err != nil || problems != nil {
		t.Errorf("got %v, %v", problems, err)
	}
}

// polled is a context that ends after it has been checked a few times, so that the check of the value has begun by
// then.
type polled struct {
	context.Context
	left int
}

func (p *polled) Err() error {
	if p.left--; p.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestStopsWhenTheCallerLeaves(t *testing.T) {
	for _, tt := range []struct{ name, schema, value string }{
		{"references", doubled(40), `{}`},
		{"items", `{"items":{"type":"number","multipleOf":0.25}}`, items(99_000, func(int) string { return "1.25" })},
		{"pattern", `{"pattern":"(ab|cd)*(ef|gh)*x"}`, `"` + strings.Repeat("abcd", 1<<15) + `x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := &polled{t.Context(), 2}
			if problems, err := New(tt.schema).Check(ctx, []byte(tt.value)); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, %v, want %v", problems, err, context.Canceled)
			}
			if ctx.left < -20 {
				t.Errorf("the check continued after its context had ended")
			}
		})
	}
}

// TestPanic checks that a panic in a check becomes an error and does not end the process.
func TestPanic(t *testing.T) {
	s := New(`{"type":"object"}`)
	s.once.Do(func() {}) // the schema is never compiled, so Check panics
	if problems, err := s.Check(t.Context(), []byte(`{}`)); err == nil {
		t.Errorf("Check returned no error for a schema that was not compiled: %v", problems)
	}
}

// FuzzMatchesLibrary compares the evaluation with that of the library that compiles the schemas.
func FuzzMatchesLibrary(f *testing.F) {
	for _, schema := range []string{
		`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","minimum":1}},"additionalProperties":false}`,
		`{"anyOf":[{"properties":{"a":true}},{"properties":{"b":true}}],"unevaluatedProperties":false}`,
		`{"prefixItems":[{"const":1}],"contains":{"type":"string"},"maxContains":1,"unevaluatedItems":false,"uniqueItems":true}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"null"}],"additionalItems":{"multipleOf":0.5},"dependencies":{"a":["b"]}}`,
		`{"if":{"required":["a"]},"then":{"maxProperties":1},"else":{"propertyNames":{"pattern":"^b"}},"patternProperties":{"^b":{"enum":[1,"x",null,[1.0],{"a":1e0}]}}}`,
		`{"not":{"oneOf":[{"minLength":2},{"maxLength":3},{"$ref":"#/$defs/x"}]},"$defs":{"x":{"dependentSchemas":{"a":{"minProperties":2}},"dependentRequired":{"b":["a"]}}}}`,
	} {
		for _, value := range []string{`{"a":1}`, `{"b":1,"a":2}`, `["x",1,1.0]`, `[1,"x"]`, `null`, `"abc"`, `12.5`, `{"bb":{"a":1}}`} {
			f.Add(schema, value)
		}
	}
	f.Fuzz(func(t *testing.T, schema, value string) {
		s := New(schema)
		problems, err := s.Check(t.Context(), []byte(value))
		if err != nil || s.Empty() || len(schema) > 2000 || len(value) > 2000 {
			return // the library has no limits
		}
		doc, notJSON := jsonschema.UnmarshalJSON(strings.NewReader(value))
		want := notJSON == nil && Bounds([]byte(value)) == nil && s.schema.Validate(doc) == nil
		if want != (len(problems) == 0) {
			t.Errorf("schema %s, value %s: got %v, the library says %v", schema, value, problems, want)
		}
	})
}
