package policy

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// Another spelling does not get around the rules. A forbidden path, host or database stays forbidden in every spelling,
// and a permit for one place does not permit another place.
func TestSpellings(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	rules, err := Parse("p", []byte(fenced))
	if err != nil {
		t.Fatal(err)
	}
	in := &snapshot{fileData: fileData{rules: rules, scopes: Scopes{}}}
	allowed := func(name, arguments string) bool {
		tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
		return first(in.judge(t.Context(), Options{Now: now}, &agent.Agent{Dialect: agent.GPARS}, name, tool, &call.Call{Arguments: []byte(arguments)})) == "yes"
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
				t.Errorf("%s is allowed to call with %.200s", name, arguments)
			}
		}
	}
	// No rule forbids these calls, but no rule permits them either.
	for arguments, name := range map[string]string{
		`{}`:                                      "inside",
		`{"path": "/database"}`:                   "inside",
		`{"path": "data/x"}`:                      "inside",
		`{"path": "/data/../x"}`:                  "inside",
		`{"path": "\"/data/x\""}`:                 "inside", // for most tools, the quotes are a part of the name
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
		// A string of ".." segments counts as a path, not as prose, whatever its length is.
		`{"path": "/data/x", "target": "` + strings.Repeat("../", 1400) + `x"}`:                   "inside",
		`{"path": "/data/x", "target": "` + strings.Repeat("../", 200) + `x/` + pad[:3600] + `"}`: "inside",
		// Strings that exceed the limits are refused, not truncated.
		`{"url": "https://` + deepHost + `.x/"}`:                     "free",
		`{"url": "https://` + strings.Repeat("u@", 700) + `x/"}`:     "free",
		`{"databases": "` + strings.Join(numbers(1001), ",x") + `"}`: "free",
	} {
		if allowed(name, arguments) {
			t.Errorf("%s is allowed to call with %.200s", name, arguments)
		}
	}
	// Plain arguments are allowed.
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
			t.Errorf("wrong verdict for %s with %.100s", name, arguments)
		}
	}
}

// A host is found after white space, a prefix or other words. A string with several words that are not hosts is prose.
func TestHostsInTexts(t *testing.T) {
	const hosts = `forbid (principal, action, resource) when { context.hosts_any_under.containsAny(["evil.example", "intranet"]) };`
	const compared = `forbid (principal, action, resource) when { context.arguments has domain && context.arguments.domain == "evil.example" };`
	for _, tt := range []struct{ rule, arguments, want string }{
		{hosts, `{"endpoint": " https://evil.example/"}`, "policy_denied"},
		{hosts, `{"domain": "evil.example "}`, "policy_denied"},
		{hosts, `{"domain": "evil.example\n"}`, "policy_denied"},
		{hosts, `{"domain": "\u00a0evil.example"}`, "policy_denied"},
		{hosts, `{"domain": "intranet\n"}`, "policy_denied"},
		{hosts, `{"domain": "intra\u0000net"}`, "policy_denied"},
		{hosts, `{"domain": "x evil.example"}`, "policy_denied"},
		{hosts, `{"domain": "x Evil.Example,"}`, "policy_denied"},
		{hosts, `{"site": "x evil.example/y"}`, "policy_denied"},
		{hosts, `{"endpoint": "tcp 10.0.0.1"}`, "policy_denied"},
		{hosts, `{"endpoint": "tcp intranet:80"}`, "policy_denied"},
		{hosts, `{"endpoint": "tcp a:80"}`, "policy_denied"},
		{hosts, `{"endpoint": "see\nhttps://evil.example/"}`, "policy_denied"},
		{hosts, `{"url": "URL: https://evil.example/"}`, "policy_denied"},
		{hosts, `{"url": "url:evil.example/x"}`, "policy_denied"},
		{hosts, `{"uri": "dns:evil.example"}`, "policy_denied"},
		{hosts, `{"endpoint": "sip:evil.example"}`, "policy_denied"},
		{compared, `{"domain": "evil.example "}`, "policy_denied"},
		{compared, `{"domain": "\tevil.example"}`, "policy_denied"},
		{hosts, `{"address": "P.O. Box 12, 8001 Zürich", "origin": "Frankfurt a.M. (Hbf)", "site": " Main Hall\nRoom 2.5 "}`, "yes"},
		{hosts, `{"address": "Bob <bob@example.org>", "domain": "machine learning", "endpoint": "tcp socket"}`, "yes"},
		{hosts, `{"urls": ["mailto:me@example.org", "data:text/plain,x", "urn:isbn:1", "tel:+49-30-1", "about:blank"]}`, "yes"},
	} {
		if reasons := judgeOne(t, tt.rule, agent.Matrix, tt.arguments); first(reasons) != tt.want {
			t.Errorf("%s with %s: %+v, want %s", tt.rule, tt.arguments, reasons, tt.want)
		}
	}
}

// A database is found in every form of a URL, a connection string or an object.
func TestDatabasesInTexts(t *testing.T) {
	const forbid = `forbid (principal, action, resource) when { context.databases.containsAny(["prod", "my prod"]) };`
	const permit = `permit (principal, action, resource) when { !context.databases.isEmpty() && ["staging"].containsAll(context.databases) };`
	for _, arguments := range []string{
		`{"url": "postgresql:///prod"}`, `{"database": "postgresql:///prod"}`, `{"url": "postgres:////prod"}`, `{"url": "postgres:/prod"}`,
		`{"url": "mysql2://h/prod"}`, `{"dsn": "pgsql://h/prod"}`, `{"dsn": "mysqlx://h/prod"}`, `{"dsn": "mongodb+srv://u@h/prod"}`,
		`{"database": "newdb://h/prod"}`, `{"db": "jdbc:newdb://h/prod"}`, `{"db": "newdb:/h/prod"}`,
		`{"dsn": "Server=h;Database={prod}"}`, `{"dsn": "Server=h;Database={my prod};x=y"}`, `{"dsn": "host=h dbname='my prod'"}`,
		`{"dsn": "host=h dbname=\"my prod\""}`, `{"dsn": "host=h dbname='prod'"}`, `{"dsn": "Database={pr;od}"}`,
		`{"dsn": "host=h dbname=my\\ prod"}`, `{"dsn": "host=h dbname=' prod'"}`,
		`{"database": {"name": "prod"}}`, `{"database": {"primary": [{"value": "prod"}]}}`, `{"databases": {"prod": {}}}`,
		`{"o": {"databases": {"PROD": 1}}}`, `{"database": {"name": "postgres://h/prod"}}`,
	} {
		if reasons := judgeOne(t, forbid, agent.Matrix, arguments); first(reasons) != "policy_denied" {
			t.Errorf("%s: %+v", arguments, reasons)
		}
	}
	for arguments, want := range map[string]string{
		`{"database": "staging", "url": "postgresql:///prod"}`:  "scope_not_granted",
		`{"database": "staging", "db": {"name": "prod"}}`:       "scope_not_granted",
		`{"database": "staging", "url": "https://x.example/a"}`: "yes",
		`{"database": "postgresql:///staging"}`:                 "yes",
		`{"database": "newdb://h/staging"}`:                     "yes",
		`{"dsn": "Server=h;Database={staging};Encrypt=yes"}`:    "yes",
		`{"database": "staging", "user": {"name": "a, b"}}`:     "yes",
	} {
		if reasons := judgeOne(t, permit, agent.GPARS, arguments); first(reasons) != want {
			t.Errorf("%s: %+v, want %s", arguments, reasons, want)
		}
	}
}

// In an object, a general name such as "name" takes its meaning from the name of the object.
func TestNestedPlaces(t *testing.T) {
	const forbid = `forbid (principal, action, resource) when { context.hosts_any_under.contains("evil.example") || context.paths_any_under.contains("/data/secret") };`
	for arguments, want := range map[string]string{
		`{"host": {"name": "evil.example"}}`:                                                 "policy_denied",
		`{"host": {"name": "EVIL.example"}}`:                                                 "policy_denied",
		`{"hosts": [{"name": "evil.example"}]}`:                                              "policy_denied",
		`{"hosts": {"evil.example": {}}}`:                                                    "policy_denied",
		`{"url": {"primary": {"raw": "evil.example"}}}`:                                      "policy_denied",
		`{"domain": {"value": "evil.example"}}`:                                              "policy_denied",
		`{"cwd": "/data", "files": [{"name": "secret/x"}]}`:                                  "policy_denied",
		`{"host": {"name": "example.org", "version": "1.2", "id": 0, "note": "a@b"}}`:        "yes",
		`{"files": [{"name": "README.md", "content": "a/b."}], "user": {"name": "A. / B."}}`: "yes",
		`{"hosts": [{"name": "Web server 1", "addr": "10.0.0.1"}], "url": {"text": "a b"}}`:  "yes",
		`{"db_host": {"maxConn": 5, "name": "a"}}`:                                           "yes",
		`{"address": {"street": "Hauptstr.5", "name": "Dr. B. Smith"}}`:                      "yes",
	} {
		if reasons := judgeOne(t, forbid, agent.Matrix, arguments); first(reasons) != want {
			t.Errorf("%s: %+v, want %s", arguments, reasons, want)
		}
	}
}

// The limits apply to the whole call. A call within the limits is judged quickly.
func TestLimitsOfACall(t *testing.T) {
	const paths = `forbid (principal, action, resource) when { context.paths_any_under.contains("/etc") };`
	const whole = `forbid (principal, action, resource) when { context.path_of == {} };`
	const hosts = `forbid (principal, action, resource) when { context.hosts_any_under.contains("evil.example") };`
	list := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	deep := `"/%d` + strings.Repeat("/a", 250) + `"`
	ones := list(900, "%d")
	for _, tt := range []struct {
		rule, arguments string
		want            bool
	}{
		{paths, `{"x": ` + list(30, deep) + `}`, true},
		{paths, `{"x": ` + list(900, deep) + `}`, false},
		{paths, `{"x": [` + list(900, deep) + `,` + list(900, deep) + `]}`, false},
		{paths, `{"cwd": ` + list(15, `"/%d"`) + `, "files": ` + list(30, strings.Replace(deep, "/", "", 1)) + `}`, false},
		{paths, `{"cwd": "/srv", "files": ` + list(900, `"/srv/project/src/a/%d.go"`) + `}`, true},
		{whole, `{"x": ` + list(25, deep) + `, "y": ` + list(25, deep) + `}`, false},
		{hosts, `{"hosts": ` + list(900, `"h%d`+strings.Repeat(".a", 100)+`"`) + `}`, false},
		{hosts, `{"hosts": ` + list(900, `"h%d.example.org"`) + `}`, true},
		{paths, `{"a": ` + ones + `, "b": [` + strings.Repeat(ones+",", 8) + `1]}`, true},
		{paths, `{"a": [` + strings.Repeat(ones+",", 6) + `1], "b": [` + strings.Repeat(ones+",", 6) + `1]}`, false},
	} {
		start := time.Now()
		reasons := judgeOne(t, tt.rule, agent.Matrix, tt.arguments)
		if refused := strings.Contains(reasons[0].Detail, errTooMuch.Error()); refused == tt.want || (first(reasons) == "yes") != tt.want {
			t.Errorf("%s with %.100s: %.200v, want allowed: %v", tt.rule, tt.arguments, reasons, tt.want)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%s with %.100s took %s", tt.rule, tt.arguments, took)
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

// Forbid rules see a relative path below the working folder of the server. No permit rule about that folder matches a
// relative path.
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
			t.Errorf("%s on %s with the path %s: got %s", tt.agent, tt.server, tt.path, got)
		}
	}
}
