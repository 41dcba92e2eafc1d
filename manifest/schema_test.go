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

// compileSchema compiles a dialect's schema.
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

// valid lists the valid manifests of a dialect as JSON values: those that ship,
// fuller ones under testdata/good that use every field, and those under
// testdata/bad that only get warnings.
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

// encode writes a JSON value in the syntax of its dialect; false if it has no
// such form (TOML knows no null).
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

// numbers makes integers and floats of JSON's numbers.
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

// TestSchemasAcceptValidManifests: whatever ships passes both.
func TestSchemasAcceptValidManifests(t *testing.T) {
	for _, d := range agent.Dialects {
		s := compileSchema(t, d)
		for file, doc := range valid(t, d) {
			if err := s.Validate(doc); err != nil {
				t.Errorf("%s: the schema refuses it: %v", file, err)
			}
		}
	}
}

// beyondSchema lists the codes of errors that a schema cannot see, or not in
// every case, with the reason.
var beyondSchema = map[string]string{
	"AM108": "a name in any spelling",
	"AM110": "what looks like a secret",
	"MX011": "two entries with one name",
	"MX023": "two fields that differ",
	"MX032": "two entries with one name",
	"MX041": "two entries with one name",
	"MX042": "names that stand for secrets",
	"MX043": "references of other formats",
	"MX051": "two entries with one name",
	"GP013": "two entries with one name",
	"FA010": "whether any tool has an action",
	"FA021": "two entries with one name",
	"FA035": "two entries with one name",
	"FA037": "names that stand for secrets",
	"FA039": "what a text is once it is filled in",
	"FA040": "a name that must exist elsewhere",
	"FA041": "hosts that do not cover one another",
	"FA052": "a name that must exist elsewhere",
	"FA053": "what a placeholder stands for",
	"FA054": "what a placeholder stands for",
	"FA055": "what a placeholder stands for",
	"FA071": "two entries with one name",
	"FA073": "two entries with one name",
	"FA080": "whether a pattern can be read",
	"FA102": "two entries with one name",
	"FA103": "a name that must exist elsewhere",
	"FA117": "two entries with one name",
	"FA118": "names that stand for secrets",
}

// TestSchemasRefuseBadManifests: what the rules refuse, the schema refuses,
// unless every error is of a kind that a schema cannot see.
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
			t.Errorf("%s: the rules refuse it (%s), but the schema accepts it", file, strings.Join(seen, " "))
		}
	}
}

// TestSchemaAndRulesAgree breaks every constraint of every schema, one at a
// time, wherever it holds in a valid manifest, and wants a no from the schema
// and from the rules. A constraint that no manifest could be made to break is a failure too:
// then either the constraint or the manifests are missing something.
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
			// The fuller ones first, those with warnings last.
			slices.SortFunc(files, func(a, b string) int {
				return cmp.Or(strings.Index(b, goodFolder)-strings.Index(a, goodFolder), strings.Index(a, badFolder)-strings.Index(b, badFolder), strings.Compare(a, b))
			})
			for _, file := range files {
				if compiled.Validate(docs[file]) != nil {
					continue // TestSchemasAcceptValidManifests says so
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
					t.Errorf("%s: no valid manifest could be made to break it", where)
				}
			}
			t.Logf("%s: %d constraints, each broken at least once, %d violations in all", d, len(m.all), m.mutants)
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
