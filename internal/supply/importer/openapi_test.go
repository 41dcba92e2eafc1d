package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/findagent"
)

// importAPI imports an OpenAPI description with the given paths and components, written as JSON members. The map contains
// files to write beside the description.
func importAPI(t *testing.T, members string, files map[string]string, only ...string) (findagent.Manifest, *Result, error) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		write(name, text)
	}
	write("api/api.json", `{"openapi": "3.1.0", "info": {"title": "Shop"}, "servers": [{"url": "https://api.example.com/v1"}], `+members+`}`)
	var m findagent.Manifest
	r, err := Import(filepath.Join(dir, "api", "api.json"), ".", only...)
	if err == nil {
		err = json.Unmarshal(r.Text, &m)
	}
	return m, r, err
}

func toolNames(m findagent.Manifest) []string {
	var names []string
	for _, t := range m.Tools {
		names = append(names, t.Name)
	}
	return names
}

// wantNote fails unless one of the notes contains the text.
func wantNote(t *testing.T, r *Result, want string) {
	t.Helper()
	if !slices.ContainsFunc(r.Notes, func(n Note) bool { return strings.Contains(n.What+": "+n.Detail, want) }) {
		t.Errorf("the notes do not contain %q: %v", want, r.Notes)
	}
}

// A large description is imported in parts that the user chooses.
func TestOnly(t *testing.T) {
	var paths []string
	for i := range 60 {
		tag := []string{"orders", "Carts", "stock"}[i%3]
		paths = append(paths, fmt.Sprintf(`"/%s/p%02d": {"get": {"operationId": "get%02d", "tags": [%q]}}`, strings.ToLower(tag), i, i, tag))
	}
	all := `"paths": {` + strings.Join(paths, ",") + `}`
	for _, tt := range []struct {
		only []string
		want int
	}{{[]string{"carts"}, 20}, {[]string{"/orders/"}, 20}, {[]string{"/orders/p00"}, 1}, {[]string{"get07", "get /carts/p01"}, 2}, {[]string{"carts", "get00", "get01"}, 21}} {
		if m, _, err := importAPI(t, all, nil, tt.only...); err != nil || len(m.Tools) != tt.want {
			t.Errorf("%q: %d tools and the error %v, want %d tools", tt.only, len(m.Tools), err, tt.want)
		}
	}
	for _, tt := range []struct{ only, reason, hint string }{
		{"", "the description has 60 operations, and an agent can have at most 40 tools", "Carts (20), orders (20), stock (20)"},
		{"/", "the description has 60 operations", "--only"},
		{"/order", `has no tag, path or operation "/order"`, "orders (20)"},
		{"refunds", `has no tag, path or operation "refunds"`, "Carts (20)"},
	} {
		_, _, err := importAPI(t, all, nil, slices.DeleteFunc([]string{tt.only}, func(s string) bool { return s == "" })...)
		e, ok := errors.AsType[*Error](err)
		if !ok || !strings.Contains(e.Reason, tt.reason) || !strings.Contains(e.Hint, tt.hint) {
			t.Errorf("%q: got %v, want %q with a hint that contains %q", tt.only, err, tt.reason, tt.hint)
		}
	}
	_, _, err := importAPI(t, strings.ReplaceAll(all, `"tags"`, `"x-tags"`), nil)
	if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Hint, "/carts (20)") {
		t.Errorf("without tags: got %v, want the first segments of the paths in the hint", err)
	}
	// The address belongs to the chosen operations.
	const servers = `"servers": [], "paths": {"/a": {"servers": [{"url": "https://a.example.com"}], "get": {}}, "/b": {"servers": [{"url": "https://b.example.com"}], "get": {}}}`
	if m, _, err := importAPI(t, servers, nil, "/b"); err != nil || len(m.Tools) != 1 || m.Tools[0].Action.URL != "https://b.example.com/b" {
		t.Errorf("got %+v and %v, want the address of the chosen operation", m.Tools, err)
	}
	if _, err := Import("testdata/ok/cursor.json", ".", "orders"); err == nil {
		t.Error("a part of an MCP configuration was imported")
	}
}

// Optional parameters, lists, objects and forms become parts of the request.
func TestRequestParts(t *testing.T) {
	parameter := func(members string) string { return `"get": {"parameters": [{` + members + `}]}` }
	body := func(kind, members string) string {
		return `"post": {"requestBody": {"required": true, "content": {"` + kind + `": {` + members + `}}}}`
	}
	for _, tt := range []struct{ name, operation, want, kind, required string }{
		{"an optional query parameter", parameter(`"in": "query", "name": "q", "schema": {"type": "string"}`), "/x?q={q?}", "", ""},
		{"a required query parameter", parameter(`"in": "query", "name": "q", "required": true, "schema": {"type": "string"}`), "/x?q={q}", "", "q"},
		{"an optional header", parameter(`"in": "header", "name": "X-Page", "schema": {"type": "integer"}`), "/x X-Page={X-Page?}", "", ""},
		{"a header that OpenAPI does not treat as a parameter", parameter(`"in": "header", "name": "authorization", "required": true, "schema": {}`), "/x", "", ""},
		{"a list", parameter(`"in": "query", "name": "q", "schema": {"type": "array", "items": {"type": "string"}}`), "/x?q={q*}", "", ""},
		{"a list or null", parameter(`"in": "query", "name": "q", "schema": {"anyOf": [{"type": "array"}, {"type": "null"}]}`), "/x?q={q*}", "", ""},
		{"a list sent as one string", parameter(`"in": "query", "name": "q", "explode": false, "schema": {"type": "array"}`), "/x?q={q?}", "", ""},
		{"a list with brackets", parameter(`"in": "query", "name": "expand[]", "schema": {"type": "array"}`), "/x?expand%5B%5D={expand*}", "", ""},
		{"a list in another style", parameter(`"in": "query", "name": "expand", "style": "deepObject", "schema": {"type": "array"}`), "/x?expand%5B%5D={expand*}", "", ""},
		{"an object in another style", parameter(`"in": "query", "name": "created", "style": "deepObject", "schema": {"type": "object", "properties": {"gte": {"type": "integer"}}}`), "/x?created={created*}", "", ""},
		{"an object", parameter(`"in": "query", "name": "pageable", "required": true, "schema": {"type": "object", "required": ["size"], "properties": {"page": {"type": "integer"}, "size": {"type": "integer"}}}`), "/x?page={page?}&size={size}", "", "size"},
		{"JSON in the query", parameter(`"in": "query", "name": "filter", "content": {"application/json": {"schema": {"type": "object"}}}`), "/x?filter={filter?}", "", ""},
		{"parameter names that cannot be placeholders", parameter(`"in": "query", "name": "$top", "schema": {}}, {"in": "query", "name": "filter[status]", "schema": {}}, {"in": "query", "name": "credential", "schema": {}}, {"in": "query", "name": "2fa", "schema": {}`), "/x?%24top={top?}&2fa={p_2fa?}&credential={p_credential?}&filter%5Bstatus%5D={filter_status?}", "", ""},
		{"the same name twice", parameter(`"in": "query", "name": "id", "schema": {}}, {"in": "header", "name": "id", "schema": {}`), "/x?id={id_2?} id={id?}", "", ""},
		{"JSON", body("application/json", `"schema": {"type": "object"}`), "/x {body}", "application/json", "body"},
		{"a patch", body("application/merge-patch+json; charset=utf-8", `"schema": {"type": "object"}`), "/x {body}", "application/merge-patch+json", "body"},
		{"optional JSON", `"post": {"requestBody": {"content": {"application/json": {}}}}`, "/x {body?}", "application/json", ""},
		{"any type", body("*/*", `"schema": {"type": "object"}`), "/x {body}", "application/json", "body"},
		{"any type of text", body("*/*", `"schema": {"type": "string"}`), "/x {body}", "text/plain", "body"},
		{"text", body("text/plain", `"schema": {"type": "string"}`), "/x {body}", "text/plain", "body"},
		{
			"a form", body("application/x-www-form-urlencoded", `"schema": {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}, "note": {"type": "string"},
			"metadata": {"type": "object"}, "expand": {"type": "array", "items": {"type": "string"}}, "items": {"type": "array", "items": {"type": "object"}}}}, "encoding": {"expand": {"style": "deepObject"}, "items": {"style": "deepObject"}}`),
			"/x amount={amount}&expand%5B%5D={expand*}&items={items*}&metadata={metadata*}&note={note?}", "application/x-www-form-urlencoded", "amount",
		},
		{"a form with several kinds of fields", body("application/x-www-form-urlencoded", `"schema": {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}}]}`), "/x a={a}&b={b?}", "application/x-www-form-urlencoded", "a"},
		{"JSON rather than a form", `"post": {"requestBody": {"content": {"application/x-www-form-urlencoded": {}, "application/json": {}, "multipart/form-data": {}}}}`, "/x {body?}", "application/json", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, r, err := importAPI(t, `"paths": {"/x": {`+tt.operation+`}}`, nil)
			if err != nil {
				t.Fatal(err)
			}
			a := m.Tools[0].Action
			got := strings.TrimPrefix(a.URL, "https://api.example.com/v1")
			for name, value := range a.Headers {
				if name != "Content-Type" {
					got += " " + name + "=" + value
				}
			}
			if got = strings.TrimSpace(got + " " + a.BodyTemplate); got != tt.want || a.Headers["Content-Type"] != tt.kind {
				t.Errorf("got %s as %q, want %s as %q\n%v", got, a.Headers["Content-Type"], tt.want, tt.kind, r.Notes)
			}
			var schema struct{ Required []string }
			if err := json.Unmarshal(m.Tools[0].InputSchema, &schema); err != nil || strings.Join(schema.Required, " ") != tt.required {
				t.Errorf("required: %v, want %q (%v)", schema.Required, tt.required, err)
			}
		})
	}
}

// The description of a renamed property contains the name of its parameter.
func TestRenamedParameters(t *testing.T) {
	m, _, err := importAPI(t, `"paths": {"/x": {"get": {"parameters": [{"name": "sent<", "in": "query", "schema": {}}, {"name": "sent>", "in": "query", "schema": {}, "description": "From when."}]}}}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]struct{ Description string }
	}
	if err := json.Unmarshal(m.Tools[0].InputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	if got := schema.Properties["sent"].Description + "|" + schema.Properties["sent_2"].Description; got != "The API calls it sent<.|From when. The API calls it sent>." {
		t.Errorf("got the descriptions %q, want the original name of the parameter in each", got)
	}
}

// An operation that cannot become a tool is left out with a note. The others are imported.
func TestBadOperations(t *testing.T) {
	var many, deep strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&many, `"field%04d": {"type": "string", "description": "a field with a long description"},`, i)
		fmt.Fprintf(&deep, `"f%03d": {"type": "object", "properties": {"a": {"type": "string", "description": "%s"}}},`, i%500, strings.Repeat("long ", 20))
	}
	operation := func(body string) string {
		return `{"post": {"requestBody": {"content": {` + body + `}}}}`
	}
	inJSON := func(schema string) string { return operation(`"application/json": {"schema": {` + schema + `}}`) }
	m, r, err := importAPI(t, `"paths": {
		"/good": {"get": {}},
		"/int64": {"get": {"parameters": [{"name": "id", "in": "query", "schema": {"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807, "enum": [1, 9007199254740993]}}]}},
		"/large": `+inJSON(`"properties": {`+strings.TrimSuffix(many.String(), ",")+`}`)+`,
		"/deep": `+inJSON(`"properties": {`+strings.TrimSuffix(deep.String(), ",")+`}`)+`,
		"/upload": `+operation(`"multipart/form-data": {}`)+`,
		"/xml": `+operation(`"application/xml": {}`)+`,
		"/nothing": {"post": {"requestBody": {"$ref": "#/components/requestBodies/None"}}},
		"/parameter": {"get": {"parameters": [{"$ref": "#/components/parameters/None"}]}},
		"/cookie": {"get": {"parameters": [{"name": "session", "in": "cookie", "required": true}]}},
		"/empty": `+operation(`"application/x-www-form-urlencoded": {"schema": {"type": "object"}}`)+`,
		"/elsewhere": {"servers": [{"url": "https://upload.example.com"}], "get": {}},
		"/other": {"servers": [{"url": "https://api.example.com/v2"}], "get": {}},
		"/branches": `+inJSON(`"oneOf": [{"type": "object"}, {"type": "object", "properties": {"a": {"type": "string"}}}]`)+`,
		"/list": {"get": {"parameters": [{"$ref": "#/paths/~1int64/get/parameters/0"}]}}}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"post_branches", "post_deep", "get_good", "get_int64", "get_list", "get_other"}
	if got := toolNames(m); !slices.Equal(got, want) {
		t.Errorf("got the tools %v, want %v", got, want)
	}
	for _, note := range []string{
		"operation POST /large: the operation is left out: the schema has 93181 bytes, but at most 65536 are allowed",
		"operation POST /deep: the schema of the input is too large, so only its first levels are copied",
		"operation POST /upload: the operation uploads files as multipart/form-data, which ambit does not send",
		"operation POST /xml: the operation needs a body of the type application/xml",
		"operation POST /nothing: the body of the operation is not described",
		"operation GET /parameter: a required parameter has no usable name, or its reference leads nowhere",
		"operation GET /cookie: the operation requires the cookie session",
		"operation POST /empty: the operation sends a form whose fields are not described",
		"operation GET /elsewhere: the operation is at another host, upload.example.com",
	} {
		wantNote(t, r, note)
	}
	if strings.Contains(string(r.Text), "9223372036854775807") || !strings.Contains(string(r.Text), "https://api.example.com/v2/other") || strings.Contains(string(r.Text), "oneOf") {
		t.Errorf("got %s", r.Text)
	}
}

// A description can consist of several files in its folder. No other file is read, and nothing is fetched.
func TestReferences(t *testing.T) {
	files := map[string]string{
		"api/paths/orders.yaml": "get:\n  operationId: listOrders\n  parameters:\n    - $ref: '../parts/page.yaml#/Page'\n    - $ref: '#/x-own'\nx-own: {name: own, in: query, schema: {$ref: ../api.json#/components/schemas/Own}}\n",
		"api/parts/page.yaml":   "Page: {name: page, in: query, schema: {$ref: './number.json'}}\n",
		"api/parts/number.json": `{"type": "integer", "description": "The number of a page."}`,
		"api/parts/broken.json": `{"type": `,
		"outside.json":          `{"type": "string", "description": "outside"}`,
	}
	const components = `, "components": {"schemas": {"Own": {"type": "boolean"}}}`
	m, _, err := importAPI(t, `"paths": {"/orders": {"$ref": "paths/orders.yaml"}}`+components, files)
	if err != nil || len(m.Tools) != 1 || m.Tools[0].Action.URL != "https://api.example.com/v1/orders?own={own?}&page={page?}" {
		t.Fatalf("got %+v and %v, want one tool with two parameters", m.Tools, err)
	}
	if schema := string(m.Tools[0].InputSchema); !strings.Contains(schema, "The number of a page.") || !strings.Contains(schema, "boolean") {
		t.Errorf("got the schema %s, want the schemas of the other files", schema)
	}
	for ref, want := range map[string]string{
		"https://schemas.example.com/a.json#/B": "refers to https://schemas.example.com/a.json#/B, but an import downloads nothing",
		"//schemas.example.com/a.json":          "an import downloads nothing",
		"../outside.json":                       "which is not a file in the folder of the description",
		"parts/../../outside.json":              "which is not a file in the folder of the description",
		"%2e%2e/outside.json":                   "which is not a file in the folder of the description",
		"/etc/passwd.json":                      "which is not a file in the folder of the description",
		"parts/none.json":                       "which is not a file in the folder of the description",
		"parts/broken.json":                     "which cannot be parsed",
		"/etc/passwd":                           "neither JSON nor YAML",
	} {
		_, _, err := importAPI(t, `"paths": {"/a": {"get": {}}, "/x": {"get": {"parameters": [{"name": "q", "in": "query", "schema": {"$ref": "`+ref+`"}}]}}}`, files)
		e, ok := errors.AsType[*Error](err)
		if !ok || !strings.Contains(e.Reason, want) || !strings.Contains(e.Hint, "redocly/cli bundle") {
			t.Errorf("%s: got %v, want %q", ref, err, want)
		}
	}
	// A reference that no operation needs is not followed.
	if _, _, err := importAPI(t, `"paths": {"/a": {"get": {"responses": {"200": {"$ref": "https://schemas.example.com/a.json"}}}}}`, nil); err != nil {
		t.Error(err)
	}
}

// A schema that many operations refer to is converted once, whether or not it is too large for a manifest.
func TestSharedSchemaIsConvertedOnce(t *testing.T) {
	for _, description := range []string{"short", strings.Repeat("long ", 40)} {
		work := func(operations int) float64 {
			var paths, properties []string
			for i := range operations {
				paths = append(paths, fmt.Sprintf(`"/x%d": {"post": {"requestBody": {"content": {"application/json": {"schema":
					{"type": "array", "items": {"$ref": "#/components/schemas/Large"}}}}}}}`, i))
			}
			for i := range 500 {
				properties = append(properties, fmt.Sprintf(`"p%d": {"type": "string", "description": %q}`, i, description))
			}
			path := filepath.Join(t.TempDir(), "api.json")
			text := `{"openapi": "3.1.0", "info": {"title": "A"}, "servers": [{"url": "https://api.example.com"}], "paths": {
				"/ping": {"get": {}}, ` + strings.Join(paths, ", ") + `}, "components": {"schemas": {"Large": {"properties": {` +
				strings.Join(properties, ", ") + `}}}}}`
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return testing.AllocsPerRun(1, func() {
				if _, err := Import(path, "."); err != nil {
					t.Fatal(err)
				}
			})
		}
		const more = 35
		if each := (work(more+1) - work(1)) / more; each > 5000 {
			t.Errorf("%.10q: importing an operation takes %.0f allocations, want few", description, each)
		}
	}
}
