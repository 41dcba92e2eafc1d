package policy

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// judgeOne returns the reasons of some rules for a call by an agent named a.
func judgeOne(t testing.TB, rules string, dialect agent.Dialect, arguments string) []call.Reason {
	t.Helper()
	parsed, err := Parse("p", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	in := &snapshot{rules: parsed, scopes: Scopes{}}
	tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
	return in.judge(Options{Now: now}, &agent.Agent{Dialect: dialect}, "a", tool, &call.Call{Arguments: []byte(arguments)})
}

// A rule that compares an argument with a path or URL sees canonical spellings alone.
func TestComparedPathsAreCanonical(t *testing.T) {
	rules := []string{
		`forbid (principal, action, resource) unless { context.arguments has NAME && context.arguments.NAME like "/data/*" };`,
		`forbid (principal, action, resource) when { context.arguments has NAME && context.arguments.NAME like "/etc/*" };`,
		`forbid (principal, action, resource) when { context.arguments has NAME && context.arguments.NAME == "/etc/passwd" };`,
		`forbid (principal, action, resource) when { context.arguments has NAME && ["/etc/passwd", "/x"].contains(context.arguments.NAME) };`,
		`forbid (principal, action, resource) when { context.paths_any_under.contains("/etc") };`,
	}
	for _, text := range []string{
		"/data/../etc/passwd", "/data/%2e%2e/etc/passwd", "/data/..%2fetc/passwd", `/data/..\..\etc\passwd`, "/data/%252e%252e/etc/passwd",
		"/data/\uff0e\uff0e/etc/passwd", "/data/\u2025/etc/passwd", "/data/.\u200b./etc/passwd", "/data/./../etc/passwd", "/data//../etc/passwd",
		"/data/x\x00/../../etc/passwd", "/data/..;/etc/passwd", "/data/%c0%ae%c0%ae/etc/passwd", "/data/%u002e%u002e/etc/passwd", "/data/.. /etc/passwd",
		"file:///etc/passwd",
	} {
		for _, rule := range rules {
			for _, name := range []string{"path", "target"} {
				if name == "target" && strings.Contains(rule, "any_under") && !strings.ContainsAny(text, "%\x00\u200b") || strings.HasPrefix(text, "file:") && strings.Contains(rule, "any_under") {
					continue // without a name or a comparison, the structure is cleaned
				}
				arguments, _ := json.Marshal(map[string]string{name: text})
				reasons := judgeOne(t, strings.ReplaceAll(rule, "NAME", name), agent.Matrix, string(arguments))
				if first(reasons) != "policy_denied" || !strings.Contains(reasons[0].Detail, fmt.Sprintf("the argument %q is not in its canonical spelling", name)) {
					t.Errorf("%s %q: %+v", strings.ReplaceAll(rule, "NAME", name), text, reasons)
				}
			}
		}
	}
}

// A URL that a rule compares is canonical down to the slash behind its host.
func TestComparedURLsAreCanonical(t *testing.T) {
	const rule = `forbid (principal, action, resource) when { context.arguments has url && context.arguments.url like "https://evil.example/*" };`
	for text, want := range map[string]string{
		"https://evil.example/x": "policy_denied", "HTTPS://evil.example/x": "policy_denied", "https://EVIL.example/x": "policy_denied",
		"https://evil.example": "policy_denied", "https://evil.example:443/x": "policy_denied", "https://evil.example./x": "policy_denied",
		"https://me@evil.example/x": "policy_denied", "https:evil.example/x": "policy_denied", "//evil.example/x": "policy_denied",
		"https://%65vil.example/x": "policy_denied", "https://ev\u00adil.example/x": "policy_denied", "https://good.example/../x": "policy_denied",
		"https://good.example/x": "yes", "https://good.example/%E6%97%A5?u=a%2Fb": "yes", "https://good.example/日本?q=1": "yes",
		"https://good.example:8443/a%20b": "yes", "https://good.example/wiki/Inc.": "yes", "https://good.example/@me/": "yes",
	} {
		arguments, _ := json.Marshal(map[string]string{"url": text})
		if got := first(judgeOne(t, rule, agent.Matrix, string(arguments))); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// Arguments that no rule reads as a place may hold anything.
func TestOtherTextsPass(t *testing.T) {
	for _, tt := range []struct{ condition, arguments string }{
		{`context.arguments has content && context.arguments.content like "*password*"`, `{"content": "// a/../b \\ 50%2e\n"}`},
		{`context.arguments has command && context.arguments.command like "*rm -rf /*"`, `{"command": "cd ../x && ls ./y/ \\\n"}`},
		{`context.arguments has path && context.arguments.path like "/etc/*"`, `{"path": "/srv/x", "content": "../.."}`},
		{`context.arguments has path && context.arguments.path like "/etc/*"`, `{"path": "/srv/a%20b/日本 ２０２４年/می\u200cخواهم/cafe\u0301/100%.txt"}`},
		{`context.arguments has path && context.arguments.path like "/etc/*"`, `{"path": "src/main.go"}`},
		{`context.arguments has path && context.arguments.path like "/etc/*"`, `{"path": "C:/srv/x"}`},
		{`context.paths_any_under.contains("/etc")`, `{"path": "/srv/x", "content": "// one line"}`},
		{`context.paths_any_under.contains("/etc")`, `{"path": "/srv/x", "content": "/* 5% \\n */\n../.."}`},
		{`context.paths_any_under.contains("/etc")`, `{"source": "en", "destination": "de", "text": "…"}`},
		{`context.paths_any_under.contains("/etc")`, `{"source": "https://example.org/x"}`},
		{`context.paths_any_under.contains("/etc")`, `{"cwd": "/srv", "file": "etc/passwd"}`},
		{`context.paths_any_under.contains("/etc")`, `{"token": "ab%2Fcd%3D", "Token": 1}`},
		{`context.hosts_any_under.contains("evil.example")`, `{"address": "12 Main St.", "origin": "Berlin", "url": "https://example.org"}`},
		{`context.hosts_any_under.contains("evil.example")`, `{"host": "::1", "hosts": ["10.0.0.1", "db:5432"], "uri": "file:///srv/x"}`},
		{`context.hosts_any_under.contains("evil.example")`, `{"text": "https://example.org/ is nice …", "url": "mailto:me@example.org"}`},
	} {
		rule := `forbid (principal, action, resource) when { ` + tt.condition + ` };`
		if reasons := judgeOne(t, rule, agent.Matrix, tt.arguments); first(reasons) != "yes" {
			t.Errorf("%s with %s: %+v", tt.condition, tt.arguments, reasons)
		}
	}
}

// A name of an argument counts in every spelling that some program takes for it.
func TestNamesOfArguments(t *testing.T) {
	const forbid = `forbid (principal, action, resource) when { context.arguments has amount && context.arguments.amount > 100 };`
	const deep = `forbid (principal, action, resource) when { context.arguments has o && context.arguments.o has dry_run && context.arguments.o.dry_run };`
	const permit = `permit (principal, action, resource) when { context.arguments has dry_run && context.arguments.dry_run };`
	const both = forbid + `forbid (principal, action, resource) when { context.arguments has Amount && context.arguments.Amount < 0 };`
	for _, tt := range []struct{ rules, arguments, want string }{
		{forbid, `{"amount": 5000}`, "policy_denied"},
		{forbid, `{"Amount": 5000}`, "policy_denied"},
		{forbid, `{"AMOUNT": 5000}`, "policy_denied"},
		{forbid, `{"\uff41mount": 5000}`, "policy_denied"},
		{forbid, `{"amount ": 5000}`, "policy_denied"},
		{forbid, `{"Amount": 50}`, "yes"},
		{forbid, `{"amount": 1, "Amount": 2}`, "policy_denied"},
		{forbid, `{"other": 1, "Other": 2}`, "yes"},
		{deep, `{"o": {"dryRun": true}}`, "policy_denied"},
		{deep, `{"O": {"DRY-RUN": true}}`, "policy_denied"},
		{deep, `{"o": {"dry_run": true, "Dry_Run": false}}`, "policy_denied"},
		{both, `{"Amount": 5000}`, "policy_denied"},
		{both, `{"amount": -1}`, "policy_denied"},
		{permit, `{"dry_run": true}`, "yes"},
		{permit, `{"dryRun": true}`, "scope_not_granted"}, // a tool that knows dry_run alone would do it
	} {
		if got := first(judgeOne(t, tt.rules, agent.GPARS, tt.arguments)); got != tt.want && !(tt.want == "yes" && got == "scope_not_granted" && tt.rules != permit) {
			t.Errorf("%s with %s: %s, want %s", tt.rules, tt.arguments, got, tt.want)
		}
	}
}

// A relative path starts from the folders that the call names, or is refused.
func TestRelativeToAnArgument(t *testing.T) {
	const places = `forbid (principal, action, resource) when { context.paths_any_under.contains("/etc") };`
	const compared = `forbid (principal, action, resource) when { context.arguments has file && context.arguments.file like "/etc/*" };`
	const permit = `permit (principal, action, resource) when { context.paths_all_under.contains("/data") };`
	for _, tt := range []struct {
		rules   string
		dialect agent.Dialect
		args    string
		want    string
	}{
		{places, agent.Matrix, `{"cwd": "/", "file": "etc/passwd"}`, "policy_denied"},
		{places, agent.Matrix, `{"root": "/etc", "file": "passwd"}`, "policy_denied"},
		{places, agent.Matrix, `{"basePath": "/", "file": "etc/passwd"}`, "policy_denied"},
		{places, agent.Matrix, `{"o": {"CWD": "/"}, "file": "etc/passwd"}`, "policy_denied"},
		{places, agent.Matrix, `{"cwd": "/srv", "Cwd": "/", "file": "etc/passwd"}`, "policy_denied"},
		{places, agent.Matrix, `{"file": "etc/passwd"}`, "policy_denied"},
		{places, agent.Matrix, `{"cwd": "srv", "file": "x"}`, "policy_denied"},
		{places, agent.Matrix, `{"cwd": "/srv", "file": "x"}`, "yes"},
		{compared, agent.Matrix, `{"cwd": "/", "file": "etc/passwd"}`, "policy_denied"},
		{compared, agent.Matrix, `{"file": "etc/passwd"}`, "yes"},
		{permit, agent.GPARS, `{"cwd": "/data", "file": "x"}`, "scope_not_granted"}, // a tool may ignore cwd
		{permit, agent.GPARS, `{"cwd": "/data", "file": "/data/x"}`, "yes"},
	} {
		if got := first(judgeOne(t, tt.rules, tt.dialect, tt.args)); got != tt.want {
			t.Errorf("%s with %s: %s, want %s", tt.rules, tt.args, got, tt.want)
		}
	}
}

// A permit asks nothing of agents that need none.
func TestPermitsLeaveOtherAgentsAlone(t *testing.T) {
	const permit = `permit (principal, action, resource) when { context.paths_all_under.contains("/data") };`
	if got := first(judgeOne(t, permit, agent.Matrix, `{"path": "../x"}`)); got != "yes" {
		t.Error(got)
	}
}

// The spelling that a rule reads is judged in linear time.
func BenchmarkCanonical(b *testing.B) {
	for _, n := range []int{1 << 12, 1 << 15, 1 << 18} {
		for name, unit := range map[string]string{"plain": "abcdefg/", "escapes": "%20%3d", "script": "日本語ﷺ", "dots": "a/../"} {
			text := "https://example.org/" + strings.Repeat(unit, n/len(unit))
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					urlFlaw(text, true)
					new(places).addLooks(text[len("https://example.org"):], nil)
				}
			})
		}
	}
}

// FuzzCanonical: a canonical spelling means the same to every careless reader.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		"x", "a b/日本.txt", "%20", "100%", "..", "%2e%2e/etc", "..%2f", `..\`, "\uff0e\uff0e/x", "\u2025", "x;y", "..;/x", ".\u200b./", "a\u200cb",
		"x/../..", "//x", "x/", "x,/etc", "%c0%ae", "%u002e", "\x00", "@evil.example/", "?@evil", "#", "example.org:80", "0x7f.1", "ﬁle", "%E6%97%A5",
	} {
		f.Add(s, uint16(1))
		f.Add(s, uint16(3000))
	}
	f.Fuzz(func(t *testing.T, s string, times uint16) {
		s = strings.ToValidUTF8(s, "\ufffd")
		if len(s) > 0 {
			s = strings.Repeat(s, 1+int(times)%(1+(1<<15)/len(s)))
		}
		if text := "/data/" + s; pathFlaw(text).what == "" {
			for _, reading := range plainReadings(text) {
				if clean := path.Clean(norm.NFKC.String(reading)); !strings.HasPrefix(clean, "/data/") {
					t.Fatalf("%q is canonical, and another parser reads %q", text, clean)
				}
			}
		}
		for _, text := range []string{"https://" + s, "https://example.org" + s, "https://example.org/" + s} {
			host, flaw := urlFlaw(text, true)
			if flaw.what != "" {
				continue
			}
			if at := strings.IndexAny(text, "?#"); at >= 0 {
				text = text[:at]
			}
			u, err := url.Parse(text)
			if err != nil || u.Hostname() != host || u.User != nil || host != strings.ToLower(host) || !strings.HasPrefix(u.Path, "/") {
				t.Fatalf("%q has the host %q, and is %+v, %v", text, host, u, err)
			}
			if clean := path.Clean(u.Path); clean != u.Path && clean+"/" != u.Path {
				t.Fatalf("%q has the path %q", text, u.Path)
			}
		}
		if host, flaw := hostFlaw(s, ""); flaw.what == "" && (host != strings.ToLower(host) || strings.ContainsAny(host, "@/\\%? ")) {
			t.Fatalf("%q has the host %q", s, host)
		}
	})
}
