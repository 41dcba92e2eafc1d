package gpars

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

func parse(t *testing.T, text string, strict bool) (*Manifest, []diag.Diagnostic) {
	t.Helper()
	src := diag.NewSource("agent.json", text)
	rep := diag.NewReporter(src, strict)
	tree, ok := doc.ParseJSON(src, rep)
	if !ok {
		t.Fatalf("not JSON: %s: %v", text, rep.Finish())
	}
	m := Parse(tree.Root(), rep)
	return m, rep.Finish()
}

// brief formats each diagnostic as CODE line:column.
func brief(list []diag.Diagnostic) []string {
	var out []string
	for _, d := range list {
		out = append(out, fmt.Sprintf("%s %d:%d", d.Code, d.Line, d.Column))
	}
	return out
}

// The examples in the documentation of the dialect.
const (
	minimal = `{
  "id": "org:example/agent:researcher-v1",
  "required_mcp_servers": []
}`
	withServers = `{
  "id": "org:example/agent:researcher-v1",
  "required_mcp_servers": [
    {
      "server_id": "registry.openmcp.org/bash",
      "version": ">=1.0.0",
      "permission_scopes": ["execute"]
    },
    {
      "server_id": "registry.openmcp.org/filesystem",
      "version": ">=1.0.0",
      "permission_scopes": ["read", "write"]
    }
  ]
}`
)

func TestSeedExamples(t *testing.T) {
	for _, text := range []string{minimal, withServers} {
		for _, strict := range []bool{false, true} {
			if _, list := parse(t, text, strict); len(list) > 0 {
				t.Errorf("%s\nhas problems: %+v", text, list)
			}
		}
	}
	m, _ := parse(t, withServers, true)
	want := ServerEntry{"registry.openmcp.org/filesystem", ">=1.0.0", []string{"read", "write"}}
	if got := m.RequiredMCPServers[1]; got.ServerID != want.ServerID || got.Version != want.Version || !slices.Equal(got.PermissionScopes, want.PermissionScopes) {
		t.Errorf("second server: %+v", got)
	}
}

// at returns a manifest that ends with the given lines, which start at line 3.
func at(lines string) string {
	return "{\"id\": \"a\",\n\"required_mcp_servers\": [],\n" + lines + "}"
}

// entry returns a manifest with a required entry on line 2.
func entry(fields string) string {
	return "{\"id\": \"a\", \"required_mcp_servers\": [\n{" + fields + "}]}"
}

// id returns a manifest with a complete entry that has the server id s.
func id(s string) string {
	return entry(`"server_id": "` + s + `", "version": "1.x", "permission_scopes": ["read"]`)
}

func version(s string) string {
	return entry(`"server_id": "r.io/x", "version": "` + s + `", "permission_scopes": ["read"]`)
}

func scopes(s string) string {
	return entry(`"server_id": "r.io/x", "version": "1.x", "permission_scopes": ` + s)
}

const full = `{"server_id": "r.io/x", "version": "1.x", "permission_scopes": ["read"]}`

var ruleTests = []struct {
	name, manifest string
	want           []string
}{
	{"not an object", `[]`, []string{"AM101 1:1"}},
	{"nothing", `{}`, []string{"AM102 1:1", "AM102 1:1"}},
	{"null lists", `{"id": "a", "required_mcp_servers": null}`, []string{"AM101 1:37"}},
	{"empty id", `{"id": "", "required_mcp_servers": []}`, []string{"AM105 1:8"}},
	{"blank id", `{"id": " \t\n", "required_mcp_servers": []}`, []string{"AM105 1:8"}},
	{"id is a number", `{"id": 7, "required_mcp_servers": []}`, []string{"AM101 1:8"}},
	{"untidy id", `{"id": "a ", "required_mcp_servers": []}`, []string{"GP003 1:8"}},
	{"id with a space in it", `{"id": "my agent", "required_mcp_servers": []}`, nil},

	{"version", at(`"version": "1.2.3"`), nil},
	{"version with leading zeros", at(`"version": "01.2.3"`), nil},
	{"version of two numbers", at(`"version": "1.2"`), []string{"GP002 3:12"}},
	{"version of four numbers", at(`"version": "1.2.3.4"`), []string{"GP002 3:12"}},
	{"version with v", at(`"version": "v1.2.3"`), []string{"GP002 3:12"}},
	{"version of a prerelease", at(`"version": "1.2.3-beta"`), []string{"GP002 3:12"}},
	{"empty version", at(`"version": ""`), []string{"GP002 3:12"}},
	{"version is a number", at(`"version": 1`), []string{"AM101 3:12"}},

	{"unknown field", at(`"colour": "red"`), []string{"GP001 3:1"}},
	{"schema", at(`"$schema": "https://ambit.run/schema/gpars.json"`), []string{"GP001 3:1"}},
	{"capabilities", `{"id": "a", "capabilities": []}`, []string{"AM102 1:1", "GP001 1:13"}},
	{"unknown field in an entry", entry(`"server_id": "r.io/x", "version": "1", "permission_scopes": ["a"], "alias": "x"`), []string{"GP001 2:69"}},
	{"extensions in an entry", entry(`"server_id": "r.io/x", "version": "1", "permission_scopes": ["a"], "extensions": {}`), []string{"GP001 2:69"}},

	{"extensions", at(`"extensions": {"com.example": 1, "org.example-2.x_y": {"deep": [null]}}`), nil},
	{"extensions is a list", at(`"extensions": []`), []string{"AM101 3:15"}},
	{"extensions is null", at(`"extensions": null`), []string{"AM101 3:15"}},
	{"extension keys", at("\"extensions\": {\"plain\": 1,\n\"\": 1,\n\"a..b\": 1,\n\"com.example/x\": 1}"), []string{"GP004 3:16", "GP004 4:1", "GP004 5:1", "GP004 6:1"}},

	{"entry is a text", `{"id": "a", "required_mcp_servers": ["r.io/x"]}`, []string{"AM101 1:38"}},
	{"entry without anything", entry(""), []string{"AM102 2:1", "AM102 2:1", "AM102 2:1"}},
	{"entry without version", entry(`"server_id": "r.io/x", "permission_scopes": ["a"]`), []string{"AM102 2:1"}},
	{"entry without scopes", entry(`"server_id": "r.io/x", "version": "1"`), []string{"AM102 2:1"}},

	{"server id with a port", id("localhost:8080/x"), nil},
	{"server id of a namespace", id("io.github.user/server"), nil},
	{"server id with a scope", id("registry.example.org/@scope/name"), nil},
	{"empty server id", id(""), []string{"AM105 2:15"}},
	{"server id is a number", entry(`"server_id": 1, "version": "1.x", "permission_scopes": ["a"]`), []string{"AM101 2:15"}},
	{"server id with a space", id("r.io/my server"), []string{"GP010 2:15"}},
	{"server id with white space around", id(" r.io/x"), []string{"GP010 2:15"}},
	{"server id with a line break", id(`r.io/x\n`), []string{"GP010 2:15"}},
	{"server id is a URL", id("https://r.io/x"), []string{"GP010 2:15"}},
	{"server id with a version", id("r.io/x@1.0.0"), []string{"GP010 2:15"}},
	{"server id ends in a slash", id("r.io/"), []string{"GP010 2:15"}},
	{"server id without a host name", id("/x"), []string{"GP010 2:15"}},
	{"server id with ..", id("r.io/../x"), []string{"GP010 2:15"}},
	{"server id with a query", id("r.io/x?y"), []string{"GP010 2:15"}},
	{"server id with non-ASCII letters", id("r.io/ж"), []string{"GP010 2:15"}},
	{"server id without a registry", id("bash"), []string{"GP011 2:15"}},
	{"server id with an owner only", id("openmcp/bash"), []string{"GP011 2:15"}},
	{"server id of npm", id("@scope.x/bash"), []string{"GP011 2:15"}},
	{"server id in upper case", id("Registry.OpenMCP.org/Bash"), []string{"GP012 2:15"}},

	{"server twice", `{"id": "a", "required_mcp_servers": [` + full + ",\n" + full + `]}`, []string{"GP013 2:15"}},
	{"optional server twice", at(`"optional_mcp_servers": [` + full + ",\n" + full + `]`), []string{"GP013 4:15"}},
	{"server in both lists", `{"id": "a", "required_mcp_servers": [` + full + "],\n\"optional_mcp_servers\": [\n" + full + ",\n" + full + `]}`, []string{"GP014 3:15", "GP013 4:15"}},

	{"constraint", version("^1.2.0 || >=3"), nil},
	{"latest", version("latest"), []string{"GP020 2:36"}},
	{"no constraint", version("one"), []string{"GP020 2:36"}},
	{"empty constraint", version(""), []string{"AM105 2:36"}},
	{"constraint with a comma", version(">=1, <2"), []string{"GP021 2:36"}},
	{"constraint is a number", entry(`"server_id": "r.io/x", "version": 1, "permission_scopes": ["a"]`), []string{"AM101 2:36"}},

	{"no scopes", scopes(`[]`), []string{"GP030 2:64"}},
	{"proposed rights for a server that is not listed", `{"id": "x", "required_mcp_servers": [], "extensions": {"run.ambit": {"reach": {"a.example/b": {}}}}}`, []string{"GP040 1:80"}},
	{"scopes is a text", scopes(`"read"`), []string{"AM101 2:64"}},
	{"empty scope", scopes(`["read", ""]`), []string{"AM105 2:73"}},
	{"scope is a number", scopes(`[1, null]`), []string{"AM101 2:65", "AM101 2:68"}},
	{"scope twice", scopes(`["read", "write", "read"]`), []string{"AM107 2:82"}},
	{"untidy scope", scopes(`["read "]`), []string{"GP003 2:65"}},

	{"optional server with all fields", at(`"optional_mcp_servers": [` + full + `]`), nil},
	{"optional server with only an id", at("\"optional_mcp_servers\": [\n{\"server_id\": \"r.io/x\"}]"), []string{"AM102 4:1", "AM102 4:1"}},
	{"optional server without scopes", at("\"optional_mcp_servers\": [\n{\"server_id\": \"r.io/x\", \"version\": \"1\"}]"), []string{"AM102 4:1"}},
	{"optional server with three problems", at("\"optional_mcp_servers\": [\n{\"server_id\": \"a b\", \"version\": \"latest\", \"permission_scopes\": [\"\"]}]"), []string{"GP010 4:15", "GP020 4:33", "AM105 4:65"}},
	{"optional server without id", at("\"optional_mcp_servers\": [\n{}]"), []string{"AM102 4:1", "AM102 4:1", "AM102 4:1"}},
	{"optional servers as an object", at(`"optional_mcp_servers": {}`), []string{"AM101 3:25"}},
}

func TestRules(t *testing.T) {
	for _, test := range ruleTests {
		t.Run(test.name, func(t *testing.T) {
			if _, list := parse(t, test.manifest, false); !slices.Equal(brief(list), test.want) {
				t.Errorf("%s\ngot  %v\nwant %v\n%+v", test.manifest, brief(list), test.want, list)
			}
		})
	}
}

// TestEveryRuleHasACase checks that each rule is broken by at least one case in ruleTests.
func TestEveryRuleHasACase(t *testing.T) {
	broken := map[string]bool{"GP031": true} // ambit validate reports it, because it depends on the catalogue
	for _, test := range ruleTests {
		for _, w := range test.want {
			broken[strings.Fields(w)[0]] = true
		}
	}
	seen := map[string]bool{}
	for _, r := range Rules {
		if !broken[r.Code] || seen[r.Code] || !strings.HasPrefix(r.Code, "GP") || r.Title == "" || r.Why == "" || r.Fix == "" {
			t.Errorf("no case breaks this rule, or the rule is listed twice or not explained: %+v", r)
		}
		seen[r.Code] = true
	}
}

func TestHints(t *testing.T) {
	tests := []struct{ name, manifest, hint string }{
		{"custom fields", at(`"colour": "red"`), `under "extensions"`},
		{"custom fields in an entry", entry(`"server_id": "r.io/x", "version": "1", "permission_scopes": ["a"], "colour": 1`), `"extensions" of the manifest`},
		{"a field of the later draft", at(`"capabilities": []`), "required_mcp_servers"},
		{"the later draft, without the required list", `{"id": "a", "capabilities": []}`, `is "capabilities" meant to be "required_mcp_servers"?`},
		{"schema", at(`"$schema": ""`), "remove $schema"},
		{"mcp.json", `{"id": "a", "mcpServers": {}}`, `is "mcpServers" meant to be "required_mcp_servers"?`},
		{"name", at(`"name": "a"`), `the field is named "id"`},
		{"name in an entry", entry(`"name": "r.io/x", "version": "1", "permission_scopes": ["a"]`), `is "name" meant to be "server_id"?`},
		{"scopes", entry(`"server_id": "r.io/x", "version": "1", "scopes": ["a"]`), `is "scopes" meant to be "permission_scopes"?`},
		{"typo", `{"id": "a", "required_mcp_server": []}`, `is "required_mcp_server" meant to be "required_mcp_servers"?`},
		{"schema without a dollar", at(`"schema": ""`), `under "extensions"`},
		{"v", at(`"version": "v1.2.3"`), "remove the v"},
		{"URL", id("https://r.io/x"), `"r.io/x"`},
		{"version in the id", id("r.io/@s/x@1.0.0"), `"r.io/@s/x"`},
		{"white space", id(" r.io/x "), `write "r.io/x"`},
		{"upper case", id("R.io/X"), `write "r.io/X"`},
		{"latest", version("latest"), ">=1.0.0"},
		{"any version", version(""), `"*"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, list := parse(t, test.manifest, false)
			if len(list) == 0 || !strings.Contains(list[0].Hint, test.hint) {
				t.Errorf("want a hint with %s, got %+v", test.hint, list)
			}
		})
	}
}

// An optional server has the schema of a required one, and an unknown field is an error only in strict mode.
func TestSeverities(t *testing.T) {
	for _, tt := range []struct {
		manifest string
		strict   bool
		want     diag.Severity
	}{
		{at(`"optional_mcp_servers": [{"server_id": "r.io/x", "version": "1"}]`), false, diag.Error},
		{entry(`"server_id": "r.io/x", "version": "1"`), false, diag.Error},
		{at(`"description": "finds things"`), false, diag.Warning},
		{entry(`"server_id": "r.io/x", "version": "1", "permission_scopes": ["a"], "description": "x"`), false, diag.Warning},
		{at(`"description": "finds things"`), true, diag.Error},
	} {
		if _, list := parse(t, tt.manifest, tt.strict); len(list) != 1 || list[0].Severity != tt.want {
			t.Errorf("%s, strict %t: got %+v, want one %s", tt.manifest, tt.strict, list, tt.want)
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	secret := "ghp_" + "9aKq3ZtXw7LmB2vRn5Yc8HdJf1GsUe4PoTi6"
	for _, text := range []string{id("r.io/ " + secret), version(secret), at(`"` + secret + `": 1`), scopes(`["` + secret + `","` + secret + `"]`)} {
		_, list := parse(t, text, false)
		for _, d := range list {
			if strings.Contains(d.Message+d.Hint, secret) {
				t.Errorf("%s shows the secret: %+v", d.Code, d)
			}
		}
		if len(list) == 0 {
			t.Errorf("no problem is reported for %s", text)
		}
	}
}

// Parsing a long list must not take quadratic time.
func TestManyEntries(t *testing.T) {
	const n = 20_000
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"server_id": "r.io/x%d", "version": "1.x", "permission_scopes": ["a"]},`, i)
	}
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, `"s%d",`, i)
	}
	text := `{"id": "a", "required_mcp_servers": [` + b.String() + `{"server_id": "r.io/y", "version": "1", "permission_scopes": [` + s.String() + `"z"]}]}`
	m, list := parse(t, text, false)
	if len(list) > 0 || len(m.RequiredMCPServers) != n+1 {
		t.Errorf("got %d servers and %d problems, want 20001 servers and no problems",
			len(m.RequiredMCPServers), len(list))
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(withServers))
	f.Add([]byte(at(`"optional_mcp_servers": [{"server_id": "r.io/x"}], "extensions": {"com.example": 1e2}`)))
	f.Fuzz(func(t *testing.T, b []byte) {
		src := diag.NewSource("agent.json", string(b))
		rep := diag.NewReporter(src, false)
		tree, ok := doc.ParseJSON(src, rep)
		m := Parse(tree.Root(), rep)
		for _, d := range rep.Finish() {
			src.Frame(d)
		}
		if !ok || rep.Errors() > 0 {
			return
		}
		if a := m.Compile(); a.ID == "" || a.Name == "" {
			t.Errorf("the agent of a valid manifest has no id or no name: %+v", a)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		src := diag.NewSource("agent.json", withServers)
		rep := diag.NewReporter(src, false)
		tree, _ := doc.ParseJSON(src, rep)
		if Parse(tree.Root(), rep); rep.Errors() > 0 {
			b.Fatal(rep.Finish())
		}
	}
}
