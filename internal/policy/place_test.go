package policy

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
)

const fenced = `
permit (principal == Agent::"free", action, resource);
permit (principal == Agent::"inside", action, resource) when { context.paths_all_under.contains("/data") };
permit (principal == Agent::"named", action, resource) when { context.path_of has path && context.path_of.path.all_under.contains("/data") };
permit (principal == Agent::"web", action, resource) when { context.hosts_all_under.contains("example.org") };
permit (principal == Agent::"base", action, resource) when { !context.databases.isEmpty() && ["staging"].containsAll(context.databases) };
forbid (principal, action, resource) when { context.paths_any_under.containsAny(["/etc", "/home/me/.ssh", "/root/.ssh", "/home/bob"]) };
forbid (principal, action, resource) when { context.hosts_any_under.containsAny(["evil.example", "xn--bcher-kva.example", "fass.example", "xn--strae-oqa.example", "127.0.0.1"]) };
forbid (principal, action, resource) when { context.databases.contains("prod") };
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
	deep := strings.Repeat("a/", 300) + strings.Repeat("../", 301)
	for _, arguments := range []string{
		`{"path": "/etc/passwd"}`,
		`{"path": "//etc//passwd"}`,
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
		`{"target": "` + strings.Repeat("/.", 3000) + `/etc/passwd"}`,
		`{"target": "/etc/passwd` + strings.Repeat(" ", 5000) + `"}`,
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
		`{"host": "evil.example"}`,
		`{"host": "evil.example:22"}`,
		`{"hosts": ["example.org", "evil.example"]}`,
		`{"hosts": "example.org,evil.example"}`,
		`{"hosts": "example.org evil.example:80"}`,
		`{"text": "https://evil.example"}`,
		`{"text": "https:evil.example"}`,
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
	} {
		for _, name := range []string{"free", "inside", "named", "web", "base"} {
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
	} {
		if allowed(name, arguments) {
			t.Errorf("%s may do %s", name, arguments)
		}
	}
	// And what is plain passes.
	for arguments, name := range map[string]string{
		`{"path": "/data/x", "text": "a \"b\" ~ 5% \\ c."}`:         "inside",
		`{"path": "/data/a b/é.txt", "content": "x = \"../y\";\n"}`: "inside",
		`{"path": "/data//x/", "options": {"a.b": 1, "c:d": 2}}`:    "inside",
		`{"file": {"path": "/data/x", "encoding": "utf8"}}`:         "inside",
		`{"path": "/data/it's"}`:                                    "inside",
		`{"url": "https://WWW.example.org:443/a?b#c@d"}`:            "web",
		`{"url": "https://me@example.org/"}`:                        "no one",
		`{"database": "Staging"}`:                                   "base",
		`{"path": "/srv/etc/passwd", "note": "/ et cetera"}`:        "free",
		`{"path": "/srv/x", "url": "https://evil.example.org"}`:     "free",
		`{"text": "` + strings.Repeat("/* long */ ", 1000) + `"}`:   "free",
	} {
		if allowed(name, arguments) != (name != "no one") {
			t.Errorf("%s: %.100s", name, arguments)
		}
	}
}

// A relative path touches what it leads to from the folder that the server works in,
// and is permitted by no rule about that folder.
func TestRelative(t *testing.T) {
	b := newBench(t, `permit (principal == Agent::"free", action, resource);
permit (principal == Agent::"inside", action, resource) when { context.paths_all_under.contains("/srv/work") };
forbid (principal, action, resource) when { context.paths_any_under.containsAny(["/srv/work/secret", "/home/me/.ambit-work/free/secret"]) };`)
	if err := replace(filepath.Join(b.dir, "config.toml"), []byte("[server.fs]\nwork = \"/srv/work\"\nargs = [\"x\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.live.options.Work = func(agent string) string { return "/home/me/.ambit-work/" + agent }
	for _, tt := range []struct {
		agent, server, path string
		want                bool
	}{
		{"free", "fs", "open.txt", true},
		{"free", "fs", "secret/key", false},
		{"free", "fs", "./x/../secret", false},
		{"free", "fs", "../work/secret", false},
		{"free", "fs", "%73ecret/key", false},
		{"free", "other", "secret/key", false},
		{"free", "other", "open.txt", true},
		{"inside", "fs", "/srv/work/open.txt", true},
		{"inside", "fs", "open.txt", false},
	} {
		arguments := fmt.Appendf(nil, `{"path": %q}`, tt.path)
		got := first(b.live.Judge(t.Context(), &agent.Agent{Dialect: agent.GPARS}, tt.agent, &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: tt.server}}, &call.Call{Arguments: arguments}))
		if (got == "yes") != tt.want {
			t.Errorf("%s on %s: %s: %s", tt.agent, tt.server, tt.path, got)
		}
	}
}
