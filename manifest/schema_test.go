package manifest_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/schema"
	"github.com/ambit-run/ambit/manifest"
)

func compileSchema(t *testing.T, d agent.Dialect) *jsonschema.Schema {
	t.Helper()
	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Of(d)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", raw); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const goodFolder, badFolder = "testdata/good", "testdata/bad"

// valid returns the valid manifests of a dialect as JSON values, by file name. These are the shipped manifests, the
// manifests under testdata/good, and the manifests under testdata/bad that have only warnings. The manifests under
// testdata/good use every field.
func valid(t *testing.T, d agent.Dialect) map[string]any {
	t.Helper()
	docs := map[string]any{}
	add := func(file string) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := manifest.Parse(file, src, manifest.Options{})
		if m.Dialect != d {
			return
		}
		if !m.Valid() {
			if !strings.HasPrefix(file, badFolder) {
				t.Errorf("%s is not valid:\n%s", file, listing(m))
			}
			return
		}
		docs[file] = decodeAny(t, file, []byte(m.Source.Text))
	}
	for _, root := range []string{"../agents", goodFolder, badFolder} {
		err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			if ext := filepath.Ext(path); err == nil && (ext == ".json" || ext == ".toml") {
				add(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(docs) == 0 {
		t.Fatalf("there is no valid %s manifest to start from", d)
	}
	return docs
}

func decodeAny(t *testing.T, file string, src []byte) any {
	t.Helper()
	if strings.HasSuffix(file, ".toml") {
		var v map[string]any
		if err := toml.Unmarshal(src, &v); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		src = b
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(src))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// encode encodes a JSON value in the syntax of the dialect d. It returns ok = false if the syntax cannot express
// the value, such as null in TOML.
func encode(d agent.Dialect, v any) (name string, src []byte, ok bool) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", nil, false
	}
	if d != agent.Covenant {
		return "mutant.json", b, true
	}
	if bytes.Contains(b, []byte("null")) {
		return "", nil, false
	}
	var plain any
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	if err := decoder.Decode(&plain); err != nil {
		return "", nil, false
	}
	m, isObject := numbers(plain).(map[string]any)
	if !isObject {
		return "", nil, false
	}
	b, err = toml.Marshal(m)
	return "mutant.toml", b, err == nil
}

// numbers converts every json.Number in v to an int64 or a float64.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}

// TestSchemasAcceptValidManifests checks that the schemas accept every manifest that the rules accept.
func TestSchemasAcceptValidManifests(t *testing.T) {
	for _, d := range agent.Dialects {
		s := compileSchema(t, d)
		for file, doc := range valid(t, d) {
			if err := s.Validate(doc); err != nil {
				t.Errorf("%s: the schema rejects the manifest: %v", file, err)
			}
		}
	}
}

// beyondSchema lists the errors that a JSON Schema cannot detect in every case. It maps each code to what a schema
// cannot check.
var beyondSchema = map[string]string{
	"AM108": "a name in any spelling",
	"AM110": "whether a text looks like a secret",
	"MX011": "entries with the same name",
	"MX023": "whether two fields are equal",
	"MX032": "entries with the same name",
	"MX041": "entries with the same name",
	"MX042": "names that are typical of secrets",
	"MX043": "references of other formats",
	"MX051": "entries with the same name",
	"CV006": "where a path leads",
	"CV040": "a value that depends on another field",
	"GP013": "entries with the same name",
	"FA010": "whether any tool has an action",
	"FA021": "entries with the same name",
	"FA035": "entries with the same name",
	"FA037": "names that are typical of secrets",
	"FA039": "a text after its placeholders are replaced",
	"FA040": "a name that must exist elsewhere",
	"FA041": "whether one list of hosts covers another",
	"FA052": "a name that must exist elsewhere",
	"FA053": "the argument that a placeholder refers to",
	"FA054": "the argument that a placeholder refers to",
	"FA055": "the argument that a placeholder refers to",
	"FA056": "a name that must exist elsewhere",
	"FA057": "a name in any spelling",
	"FA058": "where a placeholder is in a text",
	"FA071": "entries with the same name",
	"FA073": "entries with the same name",
	"FA080": "whether a pattern compiles",
	"FA102": "entries with the same name",
	"FA103": "a name that must exist elsewhere",
	"FA117": "entries with the same name",
	"FA118": "names that are typical of secrets",
	"FA119": "the content type of a body with placeholders",
}

// TestSchemasRefuseBadManifests checks that the schema rejects every manifest that the rules reject. The test skips
// a manifest if all its errors are in beyondSchema.
func TestSchemasRefuseBadManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*/*")
	if err != nil {
		t.Fatal(err)
	}
	schemas := map[agent.Dialect]*jsonschema.Schema{}
	for _, d := range agent.Dialects {
		schemas[d] = compileSchema(t, d)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := manifest.Parse(file, src, manifest.Options{})
		if strings.HasSuffix(file, ".golden") || m.Dialect == "" {
			continue
		}
		var seen []string
		unread := false
		for _, d := range m.Diagnostics {
			unread = unread || strings.HasPrefix(d.Code, "AM0") && d.Severity == diag.Error
			if d.Severity == diag.Error && beyondSchema[d.Code] == "" {
				seen = append(seen, d.Code)
			}
		}
		if len(seen) > 0 && !unread && schemas[m.Dialect].Validate(decodeAny(t, file, []byte(m.Source.Text))) == nil {
			t.Errorf("%s: the rules reject the manifest (%s), but the schema accepts it", file, strings.Join(seen, " "))
		}
	}
}

// TestSchemaAndRulesAgree breaks the constraints of every schema one by one. It breaks a constraint at each place of
// a valid manifest where the constraint applies. The rules must reject every mutant that the schema rejects. The
// test also fails for a constraint that no mutant breaks. Either this constraint is wrong, or no manifest has a
// value to which the constraint applies.
func TestSchemaAndRulesAgree(t *testing.T) {
	for _, d := range agent.Dialects {
		t.Run(string(d), func(t *testing.T) {
			compiled := compileSchema(t, d)
			root, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Of(d)))
			if err != nil {
				t.Fatal(err)
			}
			m := &mutator{t: t, dialect: d, root: root.(map[string]any), schema: compiled, broken: map[string]bool{}, tried: map[string]int{}, all: map[string]bool{}}
			docs := valid(t, d)
			files := make([]string, 0, len(docs))
			for file := range docs {
				files = append(files, file)
			}
			// The manifests that use every field come first, and those with warnings last.
			slices.SortFunc(files, func(a, b string) int {
				return cmp.Or(strings.Index(b, goodFolder)-strings.Index(a, goodFolder), strings.Index(a, badFolder)-strings.Index(b, badFolder), strings.Compare(a, b))
			})
			for _, file := range files {
				if compiled.Validate(docs[file]) != nil {
					continue // TestSchemasAcceptValidManifests reports this
				}
				m.file, m.last = file, strings.HasPrefix(file, badFolder)
				m.walk("#", m.root, docs[file], func(v any) any { return v })
			}
			m.collect("#", m.root)
			if d == agent.Covenant {
				delete(m.all, "#/type") // a TOML document is always a table
			}
			for _, where := range sorted(m.all) {
				if !m.broken[where] {
					t.Errorf("no mutant of any valid manifest breaks the constraint %s", where)
				}
			}
			t.Logf("%s has %d constraints, which %d mutants broke", d, len(m.all), m.mutants)
		})
	}
}

func sorted(set map[string]bool) []string {
	var out []string
	for s := range set {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}
