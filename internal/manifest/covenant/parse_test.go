package covenant

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

func parse(t *testing.T, text string, strict bool) (*Manifest, []diag.Diagnostic) {
	t.Helper()
	src := diag.NewSource("agent.toml", text)
	rep := diag.NewReporter(src, strict)
	tree, ok := doc.ParseTOML(src, rep)
	if !ok {
		t.Fatalf("not TOML: %s: %v", text, rep.Finish())
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

// example is the example in the documentation of the dialect.
const example = `[agent]
id      = "research@local"
name    = "research"
version = "0.1.0"
runtime = "rust-bin"
entry   = "target/release/research"

[capabilities]
required = ["tool.web_search"]
optional = ["memory.write"]

[resources]
cpu_ms_per_task = 30000
memory_mb       = 512
disk_mb         = 100
network         = "outbound-https-only"

[settlement]
budget_credits_per_hour = 1000
priority                = "normal"
`

func TestSeedExample(t *testing.T) {
	for _, strict := range []bool{false, true} {
		m, list := parse(t, example, strict)
		if len(list) > 0 {
			t.Errorf("with Strict = %v, the example has problems: %+v", strict, list)
		}
		want := &Manifest{
			Agent:        Agent{"research@local", "research", "0.1.0", "rust-bin", "target/release/research"},
			Capabilities: Capabilities{[]string{"tool.web_search"}, []string{"memory.write"}},
			Resources:    Resources{30_000, 512, 100, "outbound-https-only"},
			Settlement:   Settlement{1000, "normal"},
		}
		if !reflect.DeepEqual(m, want) {
			t.Errorf("got  %+v\nwant %+v", m, want)
		}
	}
}

// agentLines is a complete [agent] section of six lines.
const agentLines = `[agent]
id = "a@local"
name = "a"
version = "0.1.0"
runtime = "node"
entry = "main.js"
`

func TestDefaults(t *testing.T) {
	m, list := parse(t, agentLines, true)
	if len(list) > 0 || m.Resources != (Resources{30_000, 512, 100, "outbound-https-only"}) || m.Settlement != (Settlement{0, "normal"}) {
		t.Errorf("got the manifest %+v with the diagnostics %+v, want the defaults and no diagnostics", m, list)
	}
	m, list = parse(t, agentLines+"[resources]\nmemory_mb = 64\n[settlement]\n[capabilities]\n", true)
	if len(list) > 0 || m.Resources != (Resources{30_000, 64, 100, "outbound-https-only"}) || m.Settlement.Priority != "normal" {
		t.Errorf("got the manifest %+v with the diagnostics %+v, want the given memory_mb and defaults for all other fields",
			m, list)
	}
}

// with returns agentLines with the line for key replaced.
func with(key, line string) string {
	lines := strings.Split(agentLines, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, key+" ") {
			lines[i] = line
		}
	}
	return strings.Join(lines, "\n")
}

// after appends lines to agentLines; the first appended line is line 7.
func after(lines string) string { return agentLines + lines }

var ruleTests = []struct {
	name, manifest string
	want           []string
}{
	{"nothing", "", []string{"AM102 1:1"}},
	{"empty agent", "[agent]\n", []string{"AM102 1:2", "AM102 1:2", "AM102 1:2", "AM102 1:2", "AM102 1:2"}},
	{"agent is a text", `agent = "a@local"`, []string{"AM101 1:9"}},
	{"agent is a list", "[[agent]]\nid = \"a@local\"", []string{"AM101 1:3"}},
	{"agent inline", `agent = {id = "a@local", name = "a", version = "0.1.0", runtime = "node", entry = "main.js"}`, nil},
	{"agent dotted", "agent.id = \"a@local\"\nagent.name = \"a\"\nagent.version = \"0.1.0\"\nagent.runtime = \"node\"\nagent.entry = \"main.js\"\n", nil},

	{"no id", with("id", ""), []string{"AM102 1:2"}},
	{"no name", with("name", ""), []string{"AM102 1:2"}},
	{"no version", with("version", ""), []string{"AM102 1:2"}},
	{"no runtime", with("runtime", ""), []string{"AM102 1:2"}},
	{"no entry", with("entry", ""), []string{"AM102 1:2"}},
	{"empty id", with("id", `id = ""`), []string{"AM105 2:6"}},
	{"empty name", with("name", `name = ""`), []string{"AM105 3:8"}},
	{"blank name", with("name", `name = " \t"`), []string{"AM105 3:8"}},
	{"empty version", with("version", `version = ""`), []string{"AM105 4:11"}},
	{"empty runtime", with("runtime", `runtime = ""`), []string{"AM105 5:11"}},
	{"empty entry", with("entry", `entry = ""`), []string{"AM105 6:9"}},
	{"id is a number", with("id", `id = 7`), []string{"AM101 2:6"}},
	{"name is a date", with("name", `name = 2026-01-01`), []string{"AM101 3:8"}},

	{"id with every allowed character", with("id", `id = "Re_s.e-1@my.host_1-2"`), nil},
	{"id without a host", with("id", `id = "research"`), []string{"CV002 2:6"}},
	{"id with two hosts", with("id", `id = "a@b@c"`), []string{"CV001 2:6"}},
	{"id without a name", with("id", `id = "@local"`), []string{"CV001 2:6"}},
	{"id with an empty host", with("id", `id = "a@"`), []string{"CV001 2:6"}},
	{"id with a space", with("id", `id = "my agent@local"`), []string{"CV001 2:6"}},
	{"plain id with a space", with("id", `id = "my agent"`), []string{"CV001 2:6"}},
	{"id with a slash", with("id", `id = "a/b@local"`), []string{"CV001 2:6"}},
	{"id with non-ASCII letters", with("id", `id = "ж@local"`), []string{"CV001 2:6"}},
	{"blank id", with("id", `id = "  "`), []string{"AM105 2:6"}},

	{"name with spaces and non-ASCII letters", with("name", `name = "Research, für alle"`), nil},
	{"version of a prerelease", with("version", `version = "1.0.0-rc.1+5"`), nil},
	{"version of two numbers", with("version", `version = "1.0"`), []string{"CV003 4:11"}},
	{"version with v", with("version", `version = "v1.0.0"`), []string{"CV003 4:11"}},
	{"version is a word", with("version", `version = "newest"`), []string{"CV003 4:11"}},
	{"version is a number", with("version", `version = 1.0`), []string{"AM101 4:11"}},
	{"another name of a runtime", with("runtime", `runtime = "python"`), []string{"AM104 5:11"}},
	{"runtime in upper case", with("runtime", `runtime = "Node"`), []string{"AM104 5:11"}},
	{"runtime of later releases", with("runtime", `runtime = "hermes"`), []string{"AM104 5:11"}},

	{"absolute entry", with("entry", `entry = "/usr/local/bin/research"`), nil},
	{"entry with dots that stay inside", with("entry", `entry = "./src/../bin/..research"`), nil},
	{"entry that leads out of the folder", with("entry", `entry = "src/../../bin/research"`), []string{"CV006 6:9"}},
	{"absolute entry with dots", with("entry", `entry = "/opt/../../bin/research"`), nil},
	{"entry with a line break", with("entry", `entry = "main\n.js"`), []string{"CV004 6:9"}},
	{"entry with NUL", with("entry", `entry = "main\u0000.js"`), []string{"CV004 6:9"}},
	{"entry with DEL", with("entry", `entry = "main\u007f.js"`), []string{"CV004 6:9"}},
	{"Windows path with an escape sequence", with("entry", `entry = "target\release"`), []string{"CV004 6:9"}},
	{"Windows path", with("entry", `entry = 'target\research.exe'`), []string{"CV007 6:9"}},
	{"entry is a folder", with("entry", `entry = "target/release/"`), []string{"CV005 6:9"}},
	{"entry is the manifest's folder", with("entry", `entry = "."`), []string{"CV005 6:9"}},
	{"entry is a parent folder", with("entry", `entry = "bin/.."`), []string{"CV005 6:9"}},
	{"entry ends in blanks", with("entry", `entry = "bin/ "`), []string{"CV005 6:9"}},
	{"entry with the extension of another runtime", with("entry", `entry = "main.py"`), nil},

	{"unknown field", with("entry", "entry = \"main.js\"\ncolour = \"red\""), []string{"AM103 7:1"}},
	{"unknown sections", "other = 1\n" + after("[sandbox]\nrequired = true\n[hermes]\n[[list]]\nx = 1\n"), nil},
	{"unknown fields everywhere", after("[capabilities]\nrequird = []\n[resources]\ncpu = 1\n[settlement]\nbugdet = 1\n"), []string{"AM103 8:1", "AM103 10:1", "AM103 12:1"}},
	{"section is a number", "capabilities = 1\nresources = [1]\nsettlement = \"x\"\n" + agentLines, []string{"AM101 1:16", "AM101 2:1", "AM101 3:14"}},

	{"actions of every namespace", after("[capabilities]\nrequired = [\"intent.a\", \"memory.b.c\", \"identity.d\", \"tool.e-f_g\", \"agent.h/i\"]\n"), nil},
	{"actions is a text", after("[capabilities]\nrequired = \"tool.web\"\n"), []string{"AM101 8:12"}},
	{"action is a number", after("[capabilities]\noptional = [1, \"tool.web\"]\n"), []string{"AM101 8:13"}},
	{"action outside the namespaces", after("[capabilities]\nrequired = [\"tools.web\",\n\"web\",\n\"\"]\noptional = [\"Tool.web\"]\n"), []string{"CV010 8:13", "CV010 9:1", "CV010 10:1", "CV010 11:13"}},
	{"action is a namespace", after("[capabilities]\nrequired = [\"tool.\",\n\"tool\"]\noptional = [\"memory\"]\n"), []string{"CV011 8:13", "CV011 9:1", "CV011 10:13"}},
	{"action with an empty part", after("[capabilities]\nrequired = [\"tool..web\",\n\"tool.web.\",\n\"tool.a..b\"]\n"), []string{"CV011 8:13", "CV011 9:1", "CV011 10:1"}},
	{"action with invalid characters", after("[capabilities]\nrequired = [\"tool.*\",\n\"tool.web search\"]\n"), []string{"CV012 8:13", "CV012 9:1"}},
	{"action twice", after("[capabilities]\nrequired = [\"tool.a\",\n\"tool.a\"]\noptional = [\"tool.b\",\n\"tool.b\"]\n"), []string{"AM107 9:1", "AM107 11:1"}},
	{"action in both lists", after("[capabilities]\noptional = [\"tool.b\",\n\"tool.a\"]\nrequired = [\"tool.a\"]\n"), []string{"CV013 9:1"}},

	{"no time", after("[resources]\ncpu_ms_per_task = 0\n"), []string{"CV020 8:19"}},
	{"no memory", after("[resources]\nmemory_mb = 0\n"), []string{"CV020 8:13"}},
	{"misspelled section", after("[resource]\nmemory_mb = 1\n"), []string{"CV030 7:2"}},
	{"unknown section", after("[telemetry]\nurl = \"x\"\n"), nil},
	{"sandbox", after("[sandbox]\nrequired = true\nbackend = \"linux-gvisor\"\nfilesystem = \"ephemeral\"\n"), nil},
	{"no sandbox", after("[sandbox]\nrequired = false\nbackend = \"trusted-local\"\n"), nil},
	{"a required sandbox with a backend that is not a sandbox", after("[sandbox]\nrequired = true\nbackend = \"trusted-local\"\n"), []string{"CV040 9:11"}},
	{"the host's file system", after("[sandbox]\nfilesystem = \"host\"\n"), []string{"CV041 8:14"}},
	{"unknown backend", after("[sandbox]\nbackend = \"docker\"\n"), []string{"AM104 8:11"}},
	{"misspelled sandbox", after("[sandbx]\nrequired = true\n"), []string{"CV030 7:2"}},
	{"no disk", after("[resources]\ndisk_mb = 0\n"), nil},
	{"no budget", after("[settlement]\nbudget_credits_per_hour = 0\n"), nil},
	{"largest amounts", after("[resources]\ncpu_ms_per_task = 9223372036854775807\nmemory_mb = 9_223_372_036_854_775_807\n"), nil},
	{"below zero", after("[resources]\ncpu_ms_per_task = -1\nmemory_mb = -1\ndisk_mb = -1\n[settlement]\nbudget_credits_per_hour = -1\n"), []string{"AM106 8:19", "AM106 9:13", "AM106 10:11", "AM106 12:27"}},
	{"not whole", after("[resources]\nmemory_mb = 0.5\n"), []string{"AM106 8:13"}},
	{"amount is a text", after("[resources]\nmemory_mb = \"512\"\n"), []string{"AM101 8:13"}},
	{"full network", after("[resources]\nnetwork = \"full\"\n"), nil},
	{"no network", after("[resources]\nnetwork = \"off\"\n"), nil},
	{"another network", after("[resources]\nnetwork = \"none\"\n"), []string{"AM104 8:11"}},
	{"network is a boolean", after("[resources]\nnetwork = false\n"), []string{"AM101 8:11"}},
	{"low priority", after("[settlement]\npriority = \"low\"\n"), nil},
	{"high priority", after("[settlement]\npriority = \"high\"\n"), nil},
	{"another priority", after("[settlement]\npriority = \"urgent\"\n"), []string{"AM104 8:12"}},
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

// TestEveryRuleHasACase checks that at least one case of ruleTests breaks each rule.
func TestEveryRuleHasACase(t *testing.T) {
	broken := map[string]bool{}
	for _, test := range ruleTests {
		for _, w := range test.want {
			broken[strings.Fields(w)[0]] = true
		}
	}
	seen := map[string]bool{}
	for _, r := range Rules {
		if !broken[r.Code] || seen[r.Code] || !strings.HasPrefix(r.Code, "CV") || r.Title == "" || r.Why == "" || r.Fix == "" {
			t.Errorf("no case breaks this rule, or the rule is listed twice or not explained: %+v", r)
		}
		seen[r.Code] = true
	}
}

func TestHints(t *testing.T) {
	required := func(action string) string { return after("[capabilities]\nrequired = [\"" + action + "\"]\n") }
	tests := []struct{ name, manifest, hint string }{
		{"fields without a section", "id = \"a@local\"\nname = \"a\"\n", "put the line [agent] above id"},
		{"field above the section", "version = \"1.0.0\"\n" + with("version", ""), `move "version" from the top of the file to below [agent]`},
		{"misspelled section", strings.Replace(agentLines, "[agent]", "[agents]", 1), `is "agents" meant to be "agent"?`},
		{"misspelled field", with("entry", `entri = "main.js"`), `is "entri" meant to be "entry"?`},
		{"field of another format", with("entry", `main = "main.js"`), `is "main" meant to be "entry"?`},
		{"no host", with("id", `id = "research"`), `"research@local"`},
		{"version with v", with("version", `version = "v1.0.0"`), `"1.0.0"`},
		{"version of one number", with("version", `version = "1"`), `"1.0.0"`},
		{"python", with("runtime", `runtime = "python"`), `write "python3"`},
		{"node.js", with("runtime", `runtime = "Node.js"`), `write "node"`},
		{"rust", with("runtime", `runtime = "rust"`), `write "rust-bin"`},
		{"hermes", with("runtime", `runtime = "hermes"`), "later Covenant releases"},
		{"misspelled runtime", with("runtime", `runtime = "pyhton3"`), `did you mean "python3"?`},
		{"network", after("[resources]\nnetwork = \"https\"\n"), `write "outbound-https-only"`},
		{"network that is on", after("[resources]\nnetwork = \"on\"\n"), httpsFirst},
		{"priority", after("[settlement]\npriority = \"medium\"\n"), `write "normal"`},
		{"tools", required("tools.web"), `did you mean "tool.web"?`},
		{"upper case", required("Memory.write"), `did you mean "memory.write"?`},
		{"colon", required("tool:web"), `did you mean "tool.web"?`},
		{"no namespace", required("web_search"), "start the action with intent., memory., identity., tool. or agent."},
		{"other namespace", required("filesystem.read"), "start the action with intent., memory., identity., tool. or agent."},
		{"timeout", after("[resources]\ntimeout_ms = 5\n"), `the field is named "cpu_ms_per_task"`},
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

func TestNamespacesAreListed(t *testing.T) {
	_, list := parse(t, after("[capabilities]\nrequired = [\"net.open\"]\n"), false)
	want := `"net.open" is outside the reserved namespaces intent., memory., identity., tool. and agent.`
	if len(list) != 1 || list[0].Message != want {
		t.Errorf("unexpected diagnostics: %+v", list)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	const secret = "ghp_" + "9aKq3ZtXw7LmB2vRn5Yc8HdJf1GsUe4PoTi6"
	for _, text := range []string{
		with("id", `id = "`+secret+` "`), with("version", `version = "`+secret+`"`), with("runtime", `runtime = "`+secret+`"`),
		with("entry", `entry = "../`+secret+`"`), after("[capabilities]\nrequired = [\"" + secret + "\", \"tool." + secret + ".\"]\n"),
		after("[resources]\n" + secret + " = 1\n"),
	} {
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

// pattern returns the pattern at a path in the dialect's JSON Schema.
func pattern(path ...string) *regexp.Regexp {
	b, err := os.ReadFile("../schema/covenant.json")
	if err != nil {
		panic(err)
	}
	var at any
	if err := json.Unmarshal(b, &at); err != nil {
		panic(err)
	}
	for _, key := range append(path, "pattern") {
		at = at.(map[string]any)[key]
	}
	return regexp.MustCompile(at.(string))
}

// The rules and the schema must agree. The rules accept a text if and only if the schema's pattern
// matches the text.
func FuzzSchema(f *testing.F) {
	fields := map[string]*regexp.Regexp{"action": pattern("$defs", "action")}
	for _, key := range []string{"id", "name", "version", "entry"} {
		fields[key] = pattern("properties", "agent", "properties", key)
	}
	for _, s := range []string{
		"a@local", "a", "a@b@c", "research", " ", "", "0.1.0", "main.py", "../main.py", "bin/", "bin/..", "...", " .", "a\nb", "a\\b", "\x7f",
		"tool.web", "tool.", "tool", "tool..a", "tool.a.", "tools.a", "tool.\n", "agent.x y",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "?")
		quoted, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for key, re := range fields {
			if key == "entry" && strings.HasPrefix(path.Clean(s), "../") {
				continue // a pattern cannot tell where a path leads
			}
			text := with(key, key+" = "+string(quoted))
			if key == "action" {
				text = after("[capabilities]\nrequired = [" + string(quoted) + "]\n")
			}
			src := diag.NewSource("agent.toml", text)
			rep := diag.NewReporter(src, false)
			tree, ok := doc.ParseTOML(src, rep)
			if !ok {
				continue // a TOML string does not allow all characters of a JSON string
			}
			Parse(tree.Root(), rep)
			if refused := rep.Errors() > 0; refused == re.MatchString(s) {
				t.Errorf("%s %q: rejected by the rules: %v, by the schema: %v", key, s, refused, !refused)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	for _, test := range ruleTests {
		f.Add([]byte(test.manifest))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		src := diag.NewSource("agent.toml", string(b))
		rep := diag.NewReporter(src, false)
		tree, ok := doc.ParseTOML(src, rep)
		m := Parse(tree.Root(), rep)
		for _, d := range rep.Finish() {
			src.Frame(d)
		}
		if !ok || rep.Errors() > 0 {
			return
		}
		if a := m.Compile(); a.ID == "" || a.Name == "" || a.Program.Runtime == "" || a.Program.Entry == "" || a.Tools[0].Name == "" {
			t.Errorf("the agent of a valid manifest is incomplete: %+v", a)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		src := diag.NewSource("agent.toml", example)
		rep := diag.NewReporter(src, false)
		tree, _ := doc.ParseTOML(src, rep)
		if Parse(tree.Root(), rep); rep.Errors() > 0 {
			b.Fatal(rep.Finish())
		}
	}
}
