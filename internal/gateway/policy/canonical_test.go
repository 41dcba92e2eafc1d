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

// judgeOne evaluates rules for a call by an agent named "a" and returns the reasons.
func judgeOne(t testing.TB, rules string, dialect agent.Dialect, arguments string) []call.Reason {
	t.Helper()
	parsed, err := Parse("p", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	in := &snapshot{fileData: fileData{rules: parsed, scopes: Scopes{}}}
	tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
	return in.judge(t.Context(), Options{Now: now}, &agent.Agent{Dialect: dialect}, "a", tool, &call.Call{Arguments: []byte(arguments)})
}

// If a rule compares an argument with a path or URL, the argument must have the canonical spelling. Any other
// spelling is refused.
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
					continue // no rule reads this argument as a path, so the path is cleaned and not refused
				}
				arguments, _ := json.Marshal(map[string]string{name: text})
				reasons := judgeOne(t, strings.ReplaceAll(rule, "NAME", name), agent.Matrix, string(arguments))
				if first(reasons) != "policy_denied" || !strings.Contains(reasons[0].Detail, fmt.Sprintf("the argument %q is not in its canonical spelling", name)) {
					t.Errorf("%s with %q: got the reasons %+v", strings.ReplaceAll(rule, "NAME", name), text, reasons)
				}
			}
		}
	}
}

// A URL that a rule compares must be canonical, including the slash after its host.
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

// A comparison cannot be avoided with another type, another normalization or a part that servers ignore.
func TestComparisonsAreComplete(t *testing.T) {
	for _, tt := range []struct{ condition, arguments, want string }{
		{`context.arguments has target && context.arguments.target like "/srv/My Data/*"`, `{"target": "/srv//My Data/x"}`, "policy_denied"},
		{`context.arguments has target && context.arguments.target like "C:/My Data/*"`, `{"target": "C:/x/../My Data/x"}`, "policy_denied"},
		{`context.arguments has target && context.arguments.target like "https://h.example/a b/*"`, `{"target": "https://H.example/x"}`, "policy_denied"},
		{`context.arguments has target && context.arguments.target like "/srv/My Data/*"`, `{"target": "/srv/Other Data/x"}`, "yes"},
		{`context.arguments has target && context.arguments.target like "see a/b *"`, `{"target": "x // y"}`, "yes"},
		{`context.arguments has path && context.arguments.path == "/etc/passwd"`, `{"path": ["/etc/passwd"]}`, "policy_denied"},
		{`context.arguments has path && "/etc/passwd" == context.arguments.path`, `{"path": {"x": "/etc/passwd"}}`, "policy_denied"},
		{`context.arguments has x && ["/etc/passwd"].contains(context.arguments.x)`, `{"X": ["/etc/passwd"]}`, "policy_denied"},
		{`context.arguments has o && context.arguments.o has x && context.arguments.o.x == "/etc/passwd"`, `{"o": {"x": ["/etc/passwd"]}}`, "policy_denied"},
		{`context.arguments has xs && context.arguments.xs.containsAny(["/etc/passwd"])`, `{"xs": [["/etc/passwd"]]}`, "policy_denied"},
		{`context.arguments has host && context.arguments.host == "evil.example"`, `{"host": ["evil.example"]}`, "policy_denied"},
		{`context.arguments has database && context.arguments.database == "prod"`, `{"database": ["prod"]}`, "policy_denied"},
		{`context.arguments has xs && context.arguments.xs.containsAny(["/etc/passwd"])`, `{"xs": ["/srv/x", "/srv/y"]}`, "yes"},
		{`context.arguments has xs && context.arguments.xs.contains("/etc/passwd")`, `{"xs": ["/srv/x"]}`, "yes"},
		{`context.arguments has path && context.arguments.path == "/etc/passwd"`, `{"path": null, "x": ["/etc/passwd"]}`, "yes"},
		{`context.arguments has xs && context.arguments.xs == ["/etc/passwd"]`, `{"xs": ["/srv/x"]}`, "yes"},
		{`context.arguments has mode && context.arguments.mode == "fast"`, `{"mode": ["slow"]}`, "yes"},
		{`context.arguments has url && context.arguments.url == "https://h.example/admin"`, `{"url": "https://h.example/admin#"}`, "policy_denied"},
		{`context.arguments has url && context.arguments.url == "https://h.example/admin"`, `{"url": "https://h.example/admin#x"}`, "policy_denied"},
		{`context.arguments has url && context.arguments.url == "https://h.example/admin"`, `{"url": "https://h.example/admin?"}`, "policy_denied"},
		{`context.arguments has url && context.arguments.url like "https://h.example/admin/*"`, `{"url": "https://h.example/admin;x/y"}`, "policy_denied"},
		{`context.arguments has link && context.arguments.link like "https://h.example/admin/*"`, `{"link": "https://h.example/admin;x/y"}`, "policy_denied"},
		{`context.arguments has url && context.arguments.url like "https://h.example/admin/*"`, `{"url": "https://h.example/x?a=b;c"}`, "yes"},
		{`context.hosts.contains("evil.example")`, `{"url": "https://h.example/a;x?b#c"}`, "yes"},
		{`context.arguments has path && context.arguments.path like "/data/caf\u{e9}/*"`, `{"path": "/data/cafe\u0301/x"}`, "policy_denied"},
		{`context.arguments has path && context.arguments.path like "/data/caf\u{e9}/*"`, `{"path": "/data/\u00e9t\u00e9/x"}`, "yes"},
	} {
		rule := `forbid (principal, action, resource) when { ` + tt.condition + ` };`
		if reasons := judgeOne(t, rule, agent.Matrix, tt.arguments); first(reasons) != tt.want {
			t.Errorf("%s with %s: %+v, want %s", tt.condition, tt.arguments, reasons, tt.want)
		}
	}
}

// An argument that no rule reads as a path, URL or host may contain any text.
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

// Some programs accept several spellings of an argument name. A rule about an argument applies to
// all these spellings.
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
		{permit, `{"dryRun": true}`, "scope_not_granted"}, // a tool that knows only dry_run would ignore dryRun
	} {
		if got := first(judgeOne(t, tt.rules, agent.GPARS, tt.arguments)); got != tt.want && !(tt.want == "yes" && got == "scope_not_granted" && tt.rules != permit) {
			t.Errorf("%s with %s: %s, want %s", tt.rules, tt.arguments, got, tt.want)
		}
	}
}

// A name that declares a path, host or database does so in any letter case and with any separators.
func TestNamesOfPlaces(t *testing.T) {
	const forbid = `forbid (principal, action, resource) when {
  context.paths_any_under.contains("/etc") || context.hosts_any_under.contains("evil.example") || context.databases.contains("prod") };`
	const star = `forbid (principal, action, resource) when { context.arguments has path && context.arguments.path like "*/.ssh/id" };`
	const web = `permit (principal, action, resource) when { context.hosts_all_under.contains("example.org") };`
	const inside = `permit (principal, action, resource) when { context.paths_all_under.contains("/data") };`
	const base = `permit (principal, action, resource) when { ["staging"].containsAll(context.databases) };`
	for _, tt := range []struct {
		rules   string
		dialect agent.Dialect
		args    string
		want    string
	}{
		{forbid, agent.Matrix, `{"hOst": "evil.example"}`, "policy_denied"},
		{forbid, agent.Matrix, `{"h_ost": "evil.example"}`, "policy_denied"},
		{forbid, agent.Matrix, `{"h.o-s t": "evil.example"}`, "policy_denied"},
		{forbid, agent.Matrix, `{"remotehOstName": "evil.example"}`, "policy_denied"},
		{forbid, agent.Matrix, `{"o": {"HoSt": ["evil.example"]}}`, "policy_denied"},
		{forbid, agent.Matrix, `{"ｈost": "evil.example"}`, "policy_denied"},
		{forbid, agent.Matrix, `{"hOst": 2130706433}`, "policy_denied"},
		{forbid, agent.Matrix, `{"dAtabase": "prod"}`, "policy_denied"},
		{forbid, agent.Matrix, `{"dB": "prod"}`, "policy_denied"},
		{forbid, agent.Matrix, `{"srcpAth": "etc/passwd"}`, "policy_denied"},
		{forbid, agent.Matrix, `{"dir": "/a", "cWd": "/", "path": "etc/passwd"}`, "policy_denied"},
		{forbid, agent.Matrix, `{"url": "https://example.org/", "uRl": "https://example.org/"}`, "policy_denied"},
		{star, agent.Matrix, `{"pAth": "/home/.ssh//id"}`, "policy_denied"},
		{web, agent.GPARS, `{"host": "example.org"}`, "yes"},
		{web, agent.GPARS, `{"host": "example.org", "hOst": "evil.example"}`, "policy_denied"},
		{inside, agent.GPARS, `{"path": "/data/x", "in": {"pAth": "etc/passwd"}}`, "policy_denied"},
		{base, agent.GPARS, `{"database": "staging", "in": {"dAtabase": "prod"}}`, "scope_not_granted"},
		{forbid, agent.Matrix, `{"token": "a", "Token": "b", "userProfile": "x y.", "hourLimit": "a/b", "codeStyle": "a.", "curl": "-s x", "fieldB": "a, b", "id_b": "a;b"}`, "yes"},
	} {
		if got := first(judgeOne(t, tt.rules, tt.dialect, tt.args)); got != tt.want {
			t.Errorf("%s with %s: %s, want %s", tt.rules, tt.args, got, tt.want)
		}
	}
}

// A relative path is resolved against the folders that the call names. If the call names none, the path is refused.
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

// A rule that forbids a path also sees the path of a URL that can name a file. No permit sees it.
func TestPathsOfOtherURLs(t *testing.T) {
	const places = `forbid (principal, action, resource) when { context.paths_any_under.contains("/etc") };`
	for _, tt := range []struct{ value, want string }{
		{"fs://etc/passwd", "policy_denied"},
		{"fs://host/etc/passwd", "policy_denied"},
		{"fs:///etc/passwd", "policy_denied"},
		{"fs:/etc/passwd", "policy_denied"},
		{"FS://etc/passwd", "policy_denied"},
		{"git+file:///etc/passwd", "policy_denied"},
		{"blob:file:///etc/passwd", "policy_denied"},
		{"vscode://file/etc/passwd#1", "policy_denied"},
		{"fs://srv/../etc/passwd", "policy_denied"},
		{"fs://etc%2fpasswd", "policy_denied"},
		{`fs:\\etc\passwd`, "policy_denied"},
		{"  fs://etc/passwd please", "policy_denied"},
		{"fs://srv/etc", "policy_denied"},
		{"fs://srv/my/etc", "yes"},
		{"https://example.org/etc/passwd", "yes"},
		{"git+https://example.org/etc/passwd", "yes"},
		{"note: see /etc", "yes"},
	} {
		for _, argument := range []string{"uri", "text"} {
			args := `{"` + argument + `": "` + strings.ReplaceAll(tt.value, `\\`, `\`) + `"}`
			if got := first(judgeOne(t, places, agent.Matrix, args)); got != tt.want {
				t.Errorf("%s: %s, want %s", args, got, tt.want)
			}
		}
	}
	const forbidOne = `forbid (principal, action, resource) when { context.path_of has path && context.path_of.path.any_under.contains("/etc") };`
	if got := first(judgeOne(t, forbidOne, agent.Matrix, `{"path": "fs://etc/passwd"}`)); got != "policy_denied" {
		t.Errorf("a rule over one argument: %s", got)
	}
	const permit = `permit (principal, action, resource) when { context.paths_all_under.contains("/etc") };`
	if got := first(judgeOne(t, permit, agent.GPARS, `{"path": "fs://etc/passwd"}`)); got != "scope_not_granted" {
		t.Errorf("a permit: %s", got)
	}
}

// A rule that compares an argument with a URL does not hide the file URLs in this argument from rules about paths.
func TestFileURLsBesideRulesOverURLs(t *testing.T) {
	const (
		compares = `forbid (principal, action, resource) when { context.arguments has uri && context.arguments.uri == "memo://hr" };`
		like     = `forbid (principal, action, resource) when { context.arguments has uri && context.arguments.uri like "https://a.example/*" };`
		forbid   = `forbid (principal, action, resource) when { context.paths_any_under.contains("/etc") };`
		permit   = `permit (principal, action, resource) when { context.paths_all_under.contains("/srv") };`
		pathOf   = `forbid (principal, action, resource) when { context.path_of has uri && context.path_of.uri.any_under.contains("/etc") };`
	)
	for _, tt := range []struct {
		rules   string
		dialect agent.Dialect
		args    string
		want    string
	}{
		{forbid + compares, agent.Matrix, `{"uri": "file:///etc/passwd"}`, "policy_denied"},
		{forbid + like, agent.Matrix, `{"uri": "file:///etc/passwd"}`, "policy_denied"},
		{forbid + compares, agent.Matrix, `{"uri": ["file:///etc/passwd"]}`, "policy_denied"},
		{forbid + compares, agent.Matrix, `{"uri": "file:///srv/a"}`, "yes"},
		{forbid + compares, agent.Matrix, `{"uri": "memo://lunch"}`, "yes"},
		{pathOf + compares, agent.Matrix, `{"uri": "file:///etc/passwd"}`, "policy_denied"},
		{permit + compares, agent.GPARS, `{"path": "/srv/a"}`, "yes"},
		{permit + compares, agent.GPARS, `{"path": "/srv/a", "uri": "file:///etc/passwd"}`, "scope_not_granted"},
	} {
		if got := first(judgeOne(t, tt.rules, tt.dialect, tt.args)); got != tt.want {
			t.Errorf("%s with the rules %s: %s, want %s", tt.args, tt.rules, got, tt.want)
		}
	}
}

// Every absolute path in a call can be the start folder of a relative path.
func TestStartFolders(t *testing.T) {
	many := strings.Join(numbers(17), `","/`)
	for _, tt := range []struct{ base, condition, args, want string }{
		{"", `context.paths_any_under.contains("/etc")`, `{"a_dir":["/a","/a","/a","/a","/a","/a","/a","/a","/a","/a","/a","/a","/a","/a","/a","/a"],"cwd":"/","path":"etc/x"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/etc")`, `{"dirs": ["/` + many + `"], "cwd": "/srv", "path": "x"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/etc")`, `{"dirs": ["/` + many + `"], "cwd": "/srv", "path": "/x"}`, "yes"},
		{"", `context.paths_any_under.contains("/etc")`, `{"cwd": "/proc/self", "path": "root/etc/passwd"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/etc")`, `{"cwd": "/", "path": "proc/self/root/etc/passwd"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/etc")`, `{"cwd": "/private", "target": "./etc/passwd"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/home/u/.ssh")`, `{"root": "/", "cwd": "home", "path": "u/.ssh/id"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/home/u/.ssh")`, `{"root": "/", "base": "home", "path": "u/.ssh/id"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/home/u/.ssh")`, `{"root": "/", "cwd": "home", "target": "./u/.ssh/id"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/x/x")`, `{"root": "/", "cwd": "x", "path": "x"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/etc")`, `{"dir": "/a", "workspace": "file:///", "path": "etc/passwd"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/etc")`, `{"dir": "/a", "workspace": " /\n", "path": "etc/passwd"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/my dir/x")`, `{"dir": "/my%20dir", "path": "x"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("C:/Users/x")`, `{"dir": "/a", "workspace": "C:\\Users", "path": "x"}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/home/u/.ssh")`, `{"dir": "/a", "repo_path": "/home/u", "files": [".ssh/id"]}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/home/u/.ssh")`, `{"dir": "/a", "project": "/home/u", "files": [".ssh/id"]}`, "policy_denied"},
		{"", `context.paths_any_under.contains("/etc")`, `{"note": "/tmp", "file": "x"}`, "policy_denied"}, // a note does not make the start folder known
		{"", `context.paths_any_under.contains("/etc")`, `{"dir": "/srv", "file": "x", "note": "/ et cetera"}`, "yes"},
		{"", `context.paths_any_under.contains("/etc")`, `{"cwd": "/srv", "target": "./x"}`, "yes"},
		{"/srv", `context.paths_any_under.contains("/srv/a/b")`, `{"cwd": "a", "path": "b/c"}`, "policy_denied"},
		{"/srv", `context.paths_any_under.contains("/srv/a/b")`, `{"base": "a", "path": "b/c"}`, "policy_denied"},
		{"/srv", `context.paths_any_under.contains("/home/u/.ssh")`, `{"path": "/home/u", "filename": ".ssh/id"}`, "policy_denied"},
		{"/srv", `context.paths_any_under.contains("/srv/a/b")`, `{"base": "main", "path": "a/c"}`, "yes"},
		{"/srv", `context.paths_any_under.contains("/srv/a/b")`, `{"dir": "a"}`, "yes"},
		{"/srv", `context.paths_any_under.contains("/srv/a/b")`, `{"cwd": ".", "dir": "a"}`, "policy_denied"}, // "." is not canonical
		{"", `context.arguments has path && context.arguments.path like "/etc/*"`, `{"path": "etc/passwd", "repo_path": "/"}`, "policy_denied"},
		{"", `context.arguments has path && context.arguments.path like "/etc/*"`, `{"path": "etc/passwd", "project": "/"}`, "policy_denied"},
		{"", `context.arguments has path && context.arguments.path like "/etc/*"`, `{"path": "etc/passwd", "in": [{"at": "file:///"}]}`, "policy_denied"},
		{"", `context.arguments has path && context.arguments.path like "/etc/*"`, `{"path": "etc/passwd", "working_directory": "../../.."}`, "policy_denied"},
		{"", `context.arguments has target && context.arguments.target == "/etc/passwd"`, `{"target": "passwd", "dir": "~/../../etc"}`, "policy_denied"},
		{"", `context.arguments has path && context.arguments.path like "/etc/*"`, `{"path": "src/x.go", "workspace": "acme", "content": "/* x */", "cwd": ".", "dir": ""}`, "yes"},
		{"", `context.arguments has path && context.arguments.path like "/etc/*"`, `{"path": "v1/users", "base_url": "https://example.org/"}`, "yes"},
	} {
		parsed, err := Parse("p", []byte("permit (principal, action, resource); forbid (principal, action, resource) when { "+tt.condition+" };"))
		if err != nil {
			t.Fatal(err)
		}
		in := &snapshot{fileData: fileData{rules: parsed, scopes: Scopes{}}}
		in.works = map[string]string{"s": tt.base}
		dialect := agent.Matrix
		if tt.base != "" {
			dialect = agent.GPARS
		}
		tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
		reasons := in.judge(t.Context(), Options{Now: now}, &agent.Agent{Dialect: dialect}, "a", tool, &call.Call{Arguments: []byte(tt.args)})
		if first(reasons) != tt.want {
			t.Errorf("%s with %s: %+v, want %s", tt.condition, tt.args, reasons, tt.want)
		}
	}
}

// A permit does not restrict the calls of agents that need no permit.
func TestPermitsLeaveOtherAgentsAlone(t *testing.T) {
	const permit = `permit (principal, action, resource) when { context.paths_all_under.contains("/data") };`
	if got := first(judgeOne(t, permit, agent.Matrix, `{"path": "../x"}`)); got != "yes" {
		t.Error(got)
	}
}

// BenchmarkCanonical shows that spellings are checked in linear time.
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

// FuzzCanonical checks that other parsers read a canonical spelling in the same way.
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
					t.Fatalf("%q is canonical, but another parser reads %q", text, clean)
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
				t.Fatalf("%q has the host %q, but url.Parse returns %+v, %v", text, host, u, err)
			}
			if clean := path.Clean(u.Path); clean != u.Path && clean+"/" != u.Path {
				t.Fatalf("%q is canonical, but its path is %q", text, u.Path)
			}
		}
		if host, flaw := hostFlaw(s, ""); flaw.what == "" && (host != strings.ToLower(host) || strings.ContainsAny(host, "@/\\%? ")) {
			t.Fatalf("%q is canonical, but its host is %q", s, host)
		}
	})
}

// startsURL is a faster way to ask whether urlStart matches.
func TestStartsURL(t *testing.T) {
	for _, s := range []string{
		"https://a.test", "HTTPS:a.test", "//a.test", "jdbc:mysql://a.test", "a:@//b", "file:/etc", "ws:x", "\u017fftp://a.test",
		"", "/", "a/b", "a:b", "letters", "C:\\x", "see https://a.test", strings.Repeat("x", 100) + "://a.test",
	} {
		if got, want := startsURL(s), urlStart.MatchString(s); got != want {
			t.Errorf("%q: got %t, want %t", s, got, want)
		}
	}
}
