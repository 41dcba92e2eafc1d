package policy

import (
	"encoding/json"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// gated are rules as people write them: a folder that everything must be in, a
// folder that nothing may touch, domains and databases.
const gated = `
permit (principal == Agent::"inside", action, resource) when { context.paths_all_under.contains("/data") };
permit (principal == Agent::"named", action, resource) when { context.path_of has path && context.path_of.path.all_under.contains("/data") };
permit (principal == Agent::"web", action, resource) when { context.hosts_all_under.contains("example.org") };
permit (principal == Agent::"all", action, resource);
forbid (principal, action, resource) when { context.paths_any_under.contains("/etc") };
forbid (principal, action, resource) when { context.hosts_any_under.contains("internal.example") };
forbid (principal, action, resource) when { context.databases.contains("prod") };
forbid (principal == Agent::"all", action, resource) when { context.arguments.force };
`

// askGated asks whether one of the agents of gated may make a call.
func askGated(f *testing.F) func(t *testing.T, name string, arguments map[string]any) bool {
	rules, err := Parse("p", []byte(gated))
	if err != nil {
		f.Fatal(err)
	}
	in := &snapshot{rules: rules, scopes: Scopes{}}
	tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
	return func(t *testing.T, name string, arguments map[string]any) bool {
		raw, err := json.Marshal(arguments)
		if err != nil {
			t.Fatal(err)
		}
		return first(in.judge(Options{Now: now}, &agent.Agent{Dialect: agent.GPARS}, name, tool, &call.Call{Arguments: raw})) == "yes"
	}
}

// FuzzNoArgumentOpens holds that no argument turns a no into a yes: what is
// allowed stays inside by a plain reading of our own, and what was forbidden
// stays so whatever is added.
func FuzzNoArgumentOpens(f *testing.F) {
	for _, s := range []string{
		"/data/x", "/data/../etc/passwd", `/data\..\..\etc`, "/data/%2e%2e/%2e%2e/etc", "/data/\uff0e\uff0e/etc", "/data/..\x00", "https://example.org@evil.com/",
		`https://evil.com\@example.org`, "https://example.org/", "//example.org/..", "~", "", " /data", "file:///data/../etc", "C:\\data", "{}", `"`, "1e400", "null",
	} {
		f.Add(s, "path")
		f.Add(s, "url")
		f.Add(s, "text")
	}
	ask := askGated(f)
	f.Fuzz(func(t *testing.T, s, key string) {
		s = strings.ToValidUTF8(s, "\ufffd") // JSON holds nothing else
		if ask(t, "stranger", map[string]any{key: s, "path": "/data/x"}) {
			t.Fatal("no call was permitted")
		}
		for _, agent := range []string{"inside", "named"} {
			if ask(t, agent, map[string]any{"path": s}) {
				for _, reading := range plainReadings(s) {
					if clean := path.Clean(reading); clean != "/data" && !strings.HasPrefix(clean, "/data/") {
						t.Fatalf("%s may go to %q as %q", agent, s, clean)
					}
				}
			}
		}
		if ask(t, "web", map[string]any{"url": s}) {
			if u, err := url.Parse(s); err == nil && u.Host != "" {
				if host := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."); host != "example.org" && !strings.HasSuffix(host, ".example.org") {
					t.Fatalf("%q leads to %s", s, host)
				}
			}
		}
		for what, value := range map[string]any{"path": "/etc/passwd", "url": "https://db.internal.example", "database": "prod", "force": true} {
			beside := map[string]any{"force": false, key: s}
			if beside[what] = value; key != what && ask(t, "all", beside) {
				t.Fatalf("%s was forbidden, and is not with %q beside it", what, s)
			}
		}
		if ask(t, "all", map[string]any{"force": false, key: s, "in": map[string]any{"path": "/etc/x"}}) {
			t.Fatalf("a path deep inside was forbidden, and is not with %q beside it", s)
		}
		if ask(t, "all", map[string]any{"force": s}) {
			t.Fatalf("a text in place of a truth value opened: %q", s)
		}
	})
}

// FuzzForbiddenAtAnyLength holds that a path which is forbidden stays so, whatever
// detours, steps up, escapes, query and fragment make it longer.
func FuzzForbiddenAtAnyLength(f *testing.F) {
	for _, times := range []uint16{0, 1, 1362, 3000} {
		for encoded := range uint8(6) {
			f.Add("a", times, encoded, "")
			f.Add("/../../data/x", times, encoded, "?")
			f.Add("%23", times, encoded, "#")
		}
	}
	ask := askGated(f)
	f.Fuzz(func(t *testing.T, more string, times uint16, encoded uint8, end string) {
		n := int(times) % 5000
		text := strings.Repeat("/.", n) + "/etc/passwd"
		if encoded%6 >= 3 {
			text = strings.Repeat("../", n+1) + "etc/passwd"
		}
		for range encoded % 3 {
			text = strings.NewReplacer("%", "%25", "/", "%2f", ".", "%2e").Replace(text)
		}
		if end == "?" || end == "#" {
			text = "file://" + text + end + strings.Repeat(strings.ToValidUTF8(more, "\ufffd"), min(n, 64<<10/(1+len(more))))
		}
		for _, arguments := range []map[string]any{{"uri": text}, {"text": text}, {text: 1}, {"in": map[string]any{text: "x"}}} {
			arguments["force"] = false
			if ask(t, "all", arguments) {
				t.Fatalf("%.100q of %d bytes is not forbidden", text, len(text))
			}
		}
	})
}

// plainReadings are what a careless tool may take a text for, worked out apart
// from the code that is tested.
func plainReadings(s string) []string {
	all := []string{s, strings.ReplaceAll(s, `\`, "/")}
	if d, err := url.PathUnescape(s); err == nil {
		all = append(all, d, strings.ReplaceAll(d, `\`, "/"))
		if d, err := url.PathUnescape(d); err == nil {
			all = append(all, d)
		}
	}
	before, _, _ := strings.Cut(s, "\x00")
	return append(all, before)
}

// FuzzParse: whatever the file holds, it is rules or an error, and judging by it
// ends.
func FuzzParse(f *testing.F) {
	f.Add([]byte(gated), []byte(`{"path": "/x", "a": [1, null, 1.5, {"b": "c"}]}`))
	f.Add([]byte(Starter), []byte(`{}`))
	f.Add([]byte(`@id("x") permit (principal is Agent in Agent::"a", action in [Action::"call"], resource) unless { context == {} };`), []byte(`{"a": 1e5}`))
	f.Fuzz(func(t *testing.T, text, arguments []byte) {
		rules, err := Parse("p", text)
		if err != nil {
			return
		}
		rules.Check(Checking{Agents: []Known{{"a", &agent.Agent{Dialect: agent.GPARS, Requirements: []agent.Requirement{{Server: "s"}}}}}})
		in := &snapshot{rules: rules, scopes: Scopes{}}
		a, tool := &agent.Agent{Dialect: agent.GPARS}, &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
		reasons := in.judge(Options{Now: now}, a, "a", tool, &call.Call{Arguments: arguments})
		if len(reasons) == 0 {
			t.Fatal("there is no word on a GPARS agent's call")
		}
	})
}

// FuzzSuite: whatever a file of cases holds, it is cases or an error, and every
// case gets a verdict.
func FuzzSuite(f *testing.F) {
	f.Add("[[case]]\nname = \"x\"\nagent = \"a\"\ndialect = \"gpars\"\ntool = \"s/t\"\narguments = '{\"path\": \"/x\"}'\nexpect = \"deny\"\n")
	f.Add("[scopes.s]\nread = [\"t\"]\n[[case]]\nagent = \"a\"\ndialect = \"matrix\"\ntool = \"s/t\"\nexpect = \"allow\"\nannotations = {destructive = true}\n")
	rules, err := Parse("p", []byte(gated))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSuite([]byte(text))
		if err != nil {
			return
		}
		in := &snapshot{rules: rules, scopes: s.Scopes}
		for i := range s.Cases {
			if o := s.Cases[i].run(in, Options{}, now()); o.Got != "allow" && o.Got != "deny" {
				t.Fatalf("%+v", o)
			}
		}
	})
}

// A schema that is taken declares arguments by types that can be written into the
// schema, where they are read again as what they were.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(Schema))
	f.Add([]byte(`type Arguments = { amount?: Long, "a b"?: Set<String>, deep?: { x: ipaddr } };`))
	f.Add([]byte(`type Arguments = { bad?: Nobody };`))
	f.Add([]byte(`namespace X { type Arguments = {}; }`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		declared, err := ParseSchema("schema", text)
		if err != nil {
			return
		}
		for name, kind := range declared {
			again, err := ParseSchema("schema", []byte("type Arguments = { x?: "+kind+" };"))
			if err != nil || again["x"] != kind {
				t.Fatalf("%q has the type %s, which is read as %v, %v", name, kind, again, err)
			}
		}
	})
}
