package policy

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
)

const fenced = `
permit (principal == Agent::"free", action, resource);
permit (principal == Agent::"inside", action, resource) when { context.paths_all_under.contains("/data") };
permit (principal == Agent::"exact", action, resource) when { context.paths_all_under.containsAny(["/data/my files", "/data/a,b.txt", "/data/sub"]) };
permit (principal == Agent::"named", action, resource) when { context.path_of has path && context.path_of.path.all_under.contains("/data") };
permit (principal == Agent::"web", action, resource) when { context.hosts_all_under.contains("example.org") };
permit (principal == Agent::"base", action, resource) when { !context.databases.isEmpty() && ["staging"].containsAll(context.databases) };
forbid (principal, action, resource) when { context.paths_any_under.containsAny(["/etc", "/home/me/.ssh", "/root/.ssh", "/home/bob"]) };
forbid (principal, action, resource) when { context.hosts_any_under.containsAny(["evil.example", "xn--bcher-kva.example", "fass.example", "xn--strae-oqa.example", "127.0.0.1"]) };
forbid (principal, action, resource) when { context.databases.containsAny(["prod", "7"]) };
`

// However a place is spelt, it is the place: what is forbidden stays so, and what
// is permitted leads nowhere else.
func TestSpellings(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	rules, err := Parse("p", []byte(fenced))
	if err != nil {
		t.Fatal(err)
	}
	in := &snapshot{rules: rules, scopes: Scopes{}}
	allowed := func(name, arguments string) bool {
		tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
		return first(in.judge(Options{Now: now}, &agent.Agent{Dialect: agent.GPARS}, name, tool, &call.Call{Arguments: []byte(arguments)})) == "yes"
	}
	deepHost := strings.Repeat("a.", 256) + "db.evil.example"
	pad := strings.Repeat("a", 5000)
	deep := strings.Repeat("a/", 300) + strings.Repeat("../", 301)
	for _, arguments := range []string{
		`{"path": "/etc/passwd"}`,
		`{"zzz": "//etc/passwd"}`,
		`{"zzz": "\uff0fetc\uff0fpasswd"}`,
		`{"zzz": "/proc/1/cwd/../etc"}`,
		`{"path": "//etc//passwd"}`,
		`{"paths": "/etc,/data/x"}`,
		`{"paths": "/etc:/data/x"}`,
		`{"paths": "/data/..,/etc"}`,
		`{"paths": "src:/etc/shadow"}`,
		`{"paths": "src,lib:/etc/shadow"}`,
		`{"paths": "[\"/etc\"]"}`,
		`{"paths": " [\"\\u002fetc\", 1]"}`,
		`{"paths": "{\"a\": [\"/etc\"]}"}`,
		`{"dsn": "jdbc:sqlite:/etc/x.db"}`,
		`{"path": "/./etc/./passwd"}`,
		`{"path": "/data/../etc/passwd"}`,
		`{"path": "/etc./passwd"}`,
		`{"path": "/etc /passwd"}`,
		`{"path": "\\etc\\passwd"}`,
		`{"path": "/data/..%2f..%2fetc/passwd"}`,
		`{"path": "/%252e%252e/etc/passwd"}`,
		`{"path": "/data/%c0%ae%c0%ae/etc/passwd"}`,
		`{"path": "\uff0fetc\uff0fpasswd"}`,
		`{"path": "/data/\u2025/etc/passwd"}`,
		`{"path": "\u2215etc\u2044passwd"}`,
		`{"path": "/e\u200btc/passwd"}`,
		`{"path": " /etc/passwd"}`,
		`{"path": "\"/etc/passwd\""}`,
		`{"path": "'/etc/passwd"}`,
		`{"path": "</etc/passwd>"}`,
		`{"path": "/etc/passwd\u0000.txt"}`,
		`{"path": "../../../../etc/passwd"}`,
		`{"path": ".././.././etc/passwd"}`,
		`{"path": "~/.ssh/id_ed25519"}`,
		`{"path": "$HOME/.ssh/id_ed25519"}`,
		`{"path": "${HOME}/.ssh"}`,
		`{"path": "~root/.ssh"}`,
		`{"path": "~bob"}`,
		`{"path": "~/../bob/x"}`,
		`{"path": "/proc/self/root/etc/passwd"}`,
		`{"path": "/proc/1/task/1/root/etc"}`,
		`{"path": "../../proc/self/root/etc/passwd"}`,
		`{"path": "/data/../proc/self/./root//etc/passwd"}`,
		`{"path": "/private/etc/passwd"}`,
		`{"path": "/System/Volumes/Data/private/etc/hosts"}`,
		`{"path": "file:///etc/passwd"}`,
		`{"path": "FILE://localhost/etc/passwd"}`,
		`{"path": "file:/etc/passwd"}`,
		`{"path": "file:///etc/passwd?/../../data/x"}`,
		`{"path": "file:///etc/passwd#/../../data/x"}`,
		`{"path": "url:file:///etc/passwd"}`,
		`{"path": "file:\\\\\\etc\\passwd"}`,
		`{"dsn": "sqlite:////etc/x.db"}`,
		`{"paths": ["/data/x", "/etc/passwd"]}`,
		`{"edits": [{"file": "/data/x"}, {"file": "/etc/x"}]}`,
		`{"files": {"/etc/passwd": "x"}}`,
		`{"files": {"a/../../etc/passwd": "x"}}`,
		`{"/etc/passwd": "x"}`,
		`{"paths": "/data/x,/etc/passwd"}`,
		`{"paths": "/data/x /etc/passwd"}`,
		`{"paths": "/data/x:/etc"}`,
		`{"path": "a;../../etc/passwd"}`,
		`{"path": ["/data/x", {"at": "/etc/passwd"}]}`,
		`{"target": "/etc/passwd"}`,
		`{"target": "x/../../etc/passwd"}`,
		`{"target": "` + deep + `etc/passwd"}`,
		`{"target": "` + strings.Repeat("../", 300) + `etc/passwd"}`,
		`{"target": "` + strings.Repeat("../", 1363) + `etc/passwd"}`,
		`{"target": "` + strings.Repeat("../", 1364) + `etc/passwd"}`,
		`{"target": "` + strings.Repeat("../", 1400) + `etc/passwd"}`,
		`{"target": "` + strings.Repeat("../", 3000) + `etc/passwd"}`,
		`{"target": "` + strings.Repeat("../", 100_000) + `etc/passwd"}`,
		`{"target": "x/` + strings.Repeat("../", 1400) + `etc/passwd"}`,
		`{"target": "./` + strings.Repeat("../", 1400) + `etc/passwd"}`,
		`{"target": "` + strings.Repeat("%2e%2e/", 1400) + `etc/passwd"}`,
		`{"target": "` + strings.Repeat("../", 200) + `etc/` + pad[:3600] + `"}`,
		`{"` + strings.Repeat("../", 1400) + `etc/passwd": 1}`,
		`{"target": "` + strings.Repeat("/.", 3000) + `/etc/passwd"}`,
		`{"target": "/etc/passwd` + strings.Repeat(" ", 5000) + `"}`,
		`{"target": "` + strings.Repeat("/%2e", 3000) + `/etc/passwd"}`,
		`{"target": "` + strings.Repeat("/%252e", 3000) + `/etc/passwd"}`,
		`{"target": "` + strings.Repeat("/\uff0e", 3000) + `/etc/passwd"}`,
		`{"target": "/` + strings.Repeat("a%2f", 3000) + `/../etc/passwd"}`,
		`{"target": "/` + strings.Repeat("a\\", 3000) + `/../etc/passwd"}`,
		`{"target": "/etc/passwd%00` + pad + `"}`,
		`{"target": "/data/x\u0000` + pad + `/../../etc/passwd"}`,
		`{"target": "/etc` + strings.Repeat(".", 5000) + `/passwd"}`,
		`{"target": "` + strings.Repeat("a/", 3000) + strings.Repeat("%2e%2e/", 3001) + `etc/passwd"}`,
		`{"target": "%` + strings.Repeat("25", 5000) + `2fetc/passwd"}`,
		`{"uri": "file:///etc/passwd#` + pad + `"}`,
		`{"uri": "file:///etc/passwd?` + pad + `"}`,
		`{"uri": "file:///data/x?` + pad + `/../../etc/passwd"}`,
		`{"uri": "file://` + strings.Repeat("/%2e", 3000) + `/etc/passwd"}`,
		`{"uri": "file:%2f%2f/etc/passwd%23` + pad + `"}`,
		`{"uri": "url:FILE:\\\\localhost/etc/passwd#` + pad + `"}`,
		`{"uri": "file:../../etc/passwd#` + pad + `"}`,
		`{"uri": "file:///srv/` + pad + `"}`,
		`{"uri": "<URL:file:///etc/passwd#` + pad + `>"}`,
		`{"uri": "~/../bob/x` + strings.Repeat("/.", 3000) + `"}`,
		`{"uri": "~root/../etc/passwd` + strings.Repeat("/.", 3000) + `"}`,
		`{"uri": "$HOME/../bob/x` + strings.Repeat("/.", 3000) + `"}`,
		`{"uri": "/etc/passwd#` + pad + `"}`,
		`{"target": "` + strings.Repeat("'", 600) + `/etc/passwd"}`,
		`{"target": "sqlite:` + strings.Repeat(" ", 600) + `/etc/passwd"}`,
		`{"target": "` + strings.Repeat("a/", 300) + strings.Repeat("%2e%2e/", 301) + `etc/passwd"}`,
		`{"target": "` + strings.Repeat(`a\`, 300) + `/../../etc/passwd"}`,
		`{"file:///etc/passwd#` + pad + `": 1}`,
		`{"in": {"` + strings.Repeat("/.", 3000) + `/etc/passwd": 1}}`,
		`{"files": {"` + strings.Repeat("/.", 3000) + `/etc/passwd": 1}}`,
		`{"url": "https://evil.example/x"}`,
		`{"url": "https://EVIL.Example./x"}`,
		`{"url": "https://evil.example:8443"}`,
		`{"url": "https:evil.example"}`,
		`{"url": "https:/evil.example"}`,
		`{"url": "https:\\\\evil.example"}`,
		`{"url": "//evil.example"}`,
		`{"url": "ht\ttps://evil.example"}`,
		`{"url": "https://ev\u200bil.example"}`,
		`{"url": "https://a_b\u3002evil.example"}`,
		`{"url": "https://example.org@evil.example"}`,
		`{"url": "https://evil.example@example.org"}`,
		`{"url": "https://example.org?@evil.example"}`,
		`{"url": "https://example.org#@evil.example/"}`,
		`{"url": "https://example.org\\@evil.example"}`,
		`{"url": "https://%65vil.example"}`,
		`{"url": "https://\uff45vil.example"}`,
		`{"url": "https://b\u00fccher.example"}`,
		`{"url": "https://BU\u0308CHER.example"}`,
		`{"url": "https://fa\u00df.example"}`,
		`{"url": "https://stra\u00dfe.example"}`,
		`{"url": "https://` + deepHost + `@db.evil.example/"}`,
		`{"a": "http://` + deepHost + `/", "url": "https://db.evil.example/"}`,
		`{"url": "https://` + strings.Repeat("@", 64) + `evil.example/"}`,
		`{"url": "https://` + strings.Repeat("u@", 70) + `evil.example/"}`,
		`{"url": "https://` + strings.Repeat("u@", 700) + `evil.example/"}`,
		`{"url": "jdbc:postgresql://evil.example:5432/x"}`,
		`{"dsn": "jdbc:mysql:loadbalance://evil.example:3306/x"}`,
		`{"dsn": "jdbc:oracle:thin:@//evil.example:1521/x"}`,
		`{"url": "http://evil.example:80:80/"}`,
		`{"hosts": "[\"evil.example\"]"}`,
		`{"host": 2130706433}`,
		`{"hosts": [2.130706433e9]}`,
		`{"host": "evil.example"}`,
		`{"host": "evil.example:22"}`,
		`{"hosts": ["example.org", "evil.example"]}`,
		`{"hosts": "example.org,evil.example"}`,
		`{"hosts": "example.org evil.example:80"}`,
		`{"text": "https://evil.example"}`,
		`{"text": "https:evil.example"}`,
		`{"text": "` + strings.Repeat("'", 600) + `http://db.evil.example/x"}`,
		`{"text": "` + strings.Repeat("'", 20_000) + `http://db.evil.example/x"}`,
		`{"text": "` + strings.Repeat("%20", 600) + `http://db.evil.example/x"}`,
		`{"text": "` + strings.Repeat("\u200b ", 600) + `http://db.evil.example/x"}`,
		`{"` + strings.Repeat("'", 600) + `http://db.evil.example/x": 1}`,
		`{"in": {"at": [{"url": "https://evil.example"}]}}`,
		`{"headers": {"https://evil.example/": 1}}`,
		`{"url": "http://0x7f.1"}`,
		`{"url": "http://2130706433/"}`,
		`{"url": "http://0177.0.0.1"}`,
		`{"url": "http://[::ffff:127.0.0.1]/"}`,
		`{"url": "http://[::ffff:7f00:1%25lo]:80/"}`,
		`{"database": "prod"}`,
		`{"database": " \"PROD\" "}`,
		`{"dsn": "postgres://h/prod"}`,
		`{"dsn": "postgres://h/pr%6fd?sslmode=off"}`,
		`{"dsn": "jdbc:postgresql://h/prod"}`,
		`{"dsn": "postgresql+psycopg2://h/prod"}`,
		`{"dsn": "host=h dbname=prod"}`,
		`{"dsn": "host=h dbname = prod"}`,
		`{"dsn": "host=h dbname='pr\\od'"}`,
		`{"dsn": "Server=h;Initial Catalog=Prod;"}`,
		`{"database": "staging", "dsn": "host=h dbname = prod"}`,
		`{"database": "prod` + strings.Repeat(" ", 17000) + `"}`,
		`{"dsn": "host=h dbname=prod application_name=` + strings.Repeat("a", 17000) + `"}`,
		`{"databases": "staging,prod"}`,
		`{"databases": "[\"staging\", \"pr\\u006fd\"]"}`,
		`{"databases": "prod;db=staging"}`,
		`{"databases": "prod,postgres://h/staging"}`,
		`{"databases": "postgres://h/staging,prod"}`,
		`{"urls": "[\"postgres://h/prod\"]"}`,
		`{"dsn": "postgresql://%2Fvar%2Frun%2Fpostgresql/prod"}`,
		`{"dsn": "postgresql://[::1]:5432,h2/prod"}`,
		`{"dsn": "postgresql://h1:5432,h2:5433/prod"}`,
		`{"dsn": "postgresql://h 1/prod"}`,
		`{"dsn": "postgresql://u:p#w@h/prod"}`,
		`{"dsn": "postgresql://u:p?w@h/prod"}`,
		`{"dsn": "postgresql://u:p/w@h/prod"}`,
		`{"dsn": "postgresql://h/?db%6eame=prod"}`,
		`{"dsn": "postgres://h/staging,postgres://h/prod"}`,
		`{"dsn": "jdbc:sqlserver://h;databaseName=prod"}`,
		`{"dsn": "jdbc:mysql:loadbalance://h1,h2/prod"}`,
		`{"dsn": "mysql:dbname=prod;host=h"}`,
		`{"dsn": "redis://h/7"}`,
		`{"db": 7}`,
	} {
		for _, name := range []string{"free", "inside", "exact", "named", "web", "base"} {
			if allowed(name, arguments) {
				t.Errorf("%s may do %.200s", name, arguments)
			}
		}
	}
	// What must not be permitted, though nothing forbids it.
	for arguments, name := range map[string]string{
		`{}`:                                      "inside",
		`{"path": "/database"}`:                   "inside",
		`{"path": "data/x"}`:                      "inside",
		`{"path": "/data/../x"}`:                  "inside",
		`{"path": "\"/data/x\""}`:                 "inside", // a name with quotes, to most tools
		`{"path": "/data/x", "target": "/tmp"}`:   "inside",
		`{"path": "/data/x,/tmp/y"}`:              "inside",
		`{"path": ["/data/x", {"at": "/tmp"}]}`:   "named",
		`{"path": ["/data/x", {"/tmp": 1}]}`:      "named",
		`{"path": {"/tmp": "/data/x"}}`:           "named",
		`{"path": "/data/x;/tmp"}`:                "named",
		`{"path": "/data/x", "target": "~/x"}`:    "inside",
		`{"path": "/data/x", "files": {"b/c":1}}`: "inside",
		`{"path": "/proc/self/root/data"}`:        "inside",
		`{"path": "/data/my"}`:                    "exact",
		`{"path": "/data/sub/..,/x"}`:             "exact",
		`{"path": "/tmp/a,/../../data/sub"}`:      "exact",
		`{"path": "/data/..,/data/x"}`:            "inside",
		`{"path": "[\"/data/x\"]"}`:               "inside",
		`{"url": "https://example.org:80:80/"}`:   "web",
		`{"url": "https://example.org:x:y@z/"}`:   "web",
		`{"url": "https://notexample.org"}`:       "web",
		`{"url": "https://example.org.x"}`:        "web",
		`{"url": "https://example.org,x"}`:        "web",
		`{"url": "https://x?@example.org"}`:       "web",
		`{"url": "https://x#@example.org"}`:       "web",
		`{"url": "https://x y@example.org"}`:      "web",
		`{"url": "file:///example.org"}`:          "web",
		`{"url": "file://example.org/etc"}`:       "web",
		`{"url": "/example.org/../srv"}`:          "web",
		`{"database": "staging2"}`:                "base",
		`{"dsn": "host=h"}`:                       "base",
		// Steps up are no prose, however many there are.
		`{"path": "/data/x", "target": "` + strings.Repeat("../", 1400) + `x"}`:                   "inside",
		`{"path": "/data/x", "target": "` + strings.Repeat("../", 200) + `x/` + pad[:3600] + `"}`: "inside",
		// Texts beyond the bounds are refused, not truncated.
		`{"url": "https://` + deepHost + `.x/"}`:                     "free",
		`{"url": "https://` + strings.Repeat("u@", 700) + `x/"}`:     "free",
		`{"databases": "` + strings.Join(numbers(1001), ",x") + `"}`: "free",
	} {
		if allowed(name, arguments) {
			t.Errorf("%s may do %.200s", name, arguments)
		}
	}
	// And what is plain passes.
	long := strings.Repeat("a = b; ", 5000)
	prose := strings.Repeat(`C’est 12 % de plus… Et alors ?\n`, 4000)
	for arguments, name := range map[string]string{
		`{"path": "/data/x", "text": "a \"b\" ~ 5% \\ c."}`:                            "inside",
		`{"path": "/data/a b/é.txt", "content": "x = \"../y\";\n"}`:                    "inside",
		`{"path": "/data/x", "options": {"a.b": 1, "c:d": 2}}`:                         "inside",
		`{"file": {"path": "/data/x", "encoding": "utf8"}}`:                            "inside",
		`{"path": "/data/it's"}`:                                                       "inside",
		`{"url": "https://www.example.org/a?b#c@d"}`:                                   "web",
		`{"url": "https://me@example.org/"}`:                                           "no one",
		`{"url": "https://example.org/", "max_urls": 500}`:                             "web",
		`{"database": "Staging"}`:                                                      "base",
		`{"db": "staging", "db_timeout": 30}`:                                          "base",
		`{"db": "staging", "text": "not postgres://h/prod, of course"}`:                "base",
		`{"database": "Server=h;Database=staging;"}`:                                   "base",
		`{"db": "staging", "text": "` + long + `"}`:                                    "base",
		`{"path": "/data/my files/a, b.txt"}`:                                          "exact",
		`{"path": "/data/a,b.txt"}`:                                                    "exact",
		`{"path": "/data/sub/[id]/page.tsx"}`:                                          "exact",
		`{"path": "/srv/etc/passwd", "note": "/ et cetera"}`:                           "free",
		`{"path": "/srv/x", "url": "https://evil.example.org"}`:                        "free",
		`{"text": "` + strings.Repeat("/* long */ ", 1000) + `"}`:                      "free",
		`{"text": "` + strings.Repeat(`/* 5% */ of \\n \"../../lib\".\n`, 1000) + `"}`: "free",
		`{"text": "file: a.go\n` + long + `"}`:                                         "free",
		`{"text": "/resume ` + prose + `"}`:                                            "free",
		`{"` + long + `.": 1}`:                                                         "free",
	} {
		if allowed(name, arguments) != (name != "no one") {
			t.Errorf("%s: %.100s", name, arguments)
		}
	}
}

func numbers(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(i + 10)
	}
	return all
}

// A relative path touches what it leads to from the folder that the server works in,
// and is permitted by no rule about that folder.
func TestRelative(t *testing.T) {
	b := newBench(t, `permit (principal == Agent::"free", action, resource);
permit (principal == Agent::"inside", action, resource) when { context.paths_all_under.contains("/srv/desk") };
forbid (principal, action, resource) when { context.paths_any_under.containsAny(["/srv/desk/secret", "/home/me/.ambit-desk/free/secret"]) };`)
	if err := home.Replace(filepath.Join(b.dir, "config.toml"), 0o600, []byte("[server.fs]\nwork = \"/srv/desk\"\nargs = [\"x\"]\n")); err != nil {
		t.Fatal(err)
	}
	b.live.options.Work = func(agent string) string { return "/home/me/.ambit-desk/" + agent }
	for _, tt := range []struct {
		agent, server, path string
		want                bool
	}{
		{"free", "fs", "open.txt", true},
		{"free", "fs", "secret/key", false},
		{"free", "fs", "./x/../secret", false},
		{"free", "fs", "../desk/secret", false},
		{"free", "fs", "%73ecret/key", false},
		{"free", "other", "secret/key", false},
		{"free", "other", "open.txt", true},
		{"inside", "fs", "/srv/desk/open.txt", true},
		{"inside", "fs", "open.txt", false},
	} {
		arguments := fmt.Appendf(nil, `{"path": %q}`, tt.path)
		got := first(b.live.Judge(t.Context(), &agent.Agent{Dialect: agent.GPARS}, tt.agent, &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: tt.server}}, &call.Call{Arguments: arguments}))
		if (got == "yes") != tt.want {
			t.Errorf("%s on %s: %s: %s", tt.agent, tt.server, tt.path, got)
		}
	}
}
