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

// The constant gated contains typical rules: an allowed folder, a forbidden folder, domains and databases.
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

// askGated returns a function that evaluates the rules in gated. The function reports whether the named agent
// may make a call.
func askGated(f *testing.F) func(t *testing.T, name string, arguments map[string]any) bool {
	rules, err := Parse("p", []byte(gated))
	if err != nil {
		f.Fatal(err)
	}
	in := &snapshot{fileData: fileData{rules: rules, scopes: Scopes{}}}
	tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
	return func(t *testing.T, name string, arguments map[string]any) bool {
		raw, err := json.Marshal(arguments)
		if err != nil {
			t.Fatal(err)
		}
		return first(in.judge(t.Context(), Options{Now: now}, &agent.Agent{Dialect: agent.GPARS}, name, tool, &call.Call{Arguments: raw})) == "yes"
	}
}

// FuzzNoArgumentOpens checks that no argument gets around the rules. Even a simple parser must read an allowed path
// as a path inside the folder. A forbidden call must stay forbidden with any additional argument.
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
		s = strings.ToValidUTF8(s, "\ufffd") // JSON can contain only valid UTF-8
		if ask(t, "stranger", map[string]any{key: s, "path": "/data/x"}) {
			t.Fatal("an agent without a permit was allowed to make a call")
		}
		for _, agent := range []string{"inside", "named"} {
			if ask(t, agent, map[string]any{"path": s}) {
				for _, reading := range plainReadings(s) {
					if clean := path.Clean(reading); clean != "/data" && !strings.HasPrefix(clean, "/data/") {
						t.Fatalf("%s is allowed to use %q, which can be read as %q", agent, s, clean)
					}
				}
			}
		}
		if ask(t, "web", map[string]any{"url": s}) {
			if u, err := url.Parse(s); err == nil && u.Host != "" {
				if host := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."); host != "example.org" && !strings.HasSuffix(host, ".example.org") {
					t.Fatalf("%q is allowed, but its host is %s", s, host)
				}
			}
		}
		for what, value := range map[string]any{"path": "/etc/passwd", "url": "https://db.internal.example", "database": "prod", "force": true} {
			beside := map[string]any{"force": false, key: s}
			if beside[what] = value; key != what && ask(t, "all", beside) {
				t.Fatalf("%s is forbidden, but allowed with the additional argument %q", what, s)
			}
		}
		if ask(t, "all", map[string]any{"force": false, key: s, "in": map[string]any{"path": "/etc/x"}}) {
			t.Fatalf("a nested path is forbidden, but allowed with the additional argument %q", s)
		}
		if ask(t, "all", map[string]any{"force": s}) {
			t.Fatalf("the string %q in place of a boolean was allowed", s)
		}
	})
}

// FuzzForbiddenAtAnyLength checks that a longer spelling of a forbidden path stays forbidden. It adds "." and ".."
// segments, escapes, a query or a fragment.
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

// plainReadings returns the paths that a careless tool may read in a string. It does not use the code under test.
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

// FuzzParse checks that Parse returns rules or an error for any file. It also evaluates calls with the parsed
// rules.
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
		in := &snapshot{fileData: fileData{rules: rules, scopes: Scopes{}}}
		a, tool := &agent.Agent{Dialect: agent.GPARS}, &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
		reasons := in.judge(t.Context(), Options{Now: now}, a, "a", tool, &call.Call{Arguments: arguments})
		if len(reasons) == 0 {
			t.Fatal("the call of a GPARS agent got no reasons")
		}
	})
}

// FuzzSuite parses any text as a file with test cases. Every parsed case must get a verdict.
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
		in := &snapshot{fileData: fileData{rules: rules, scopes: s.Scopes}}
		for i := range s.Cases {
			if o := s.Cases[i].run(in, Options{}, now()); o.Got != "allow" && o.Got != "deny" {
				t.Fatalf("the case has the outcome %+v", o)
			}
		}
	})
}

// The arguments that a user's schema declares can be merged into ambit's schema.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(Schema))
	f.Add([]byte(`type Arguments = { amount?: Long, "a b"?: Set<String>, deep?: { x: ipaddr } };`))
	f.Add([]byte(`type Arguments = { bad?: Unknown };`))
	f.Add([]byte(`namespace X { type Arguments = {}; }`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		declared, err := ParseSchema("schema", text)
		if err != nil {
			return
		}
		if _, err := schemaFor(declared, nil); err != nil {
			t.Fatalf("no schema fits the arguments %v: %v", declared, err)
		}
	})
}
