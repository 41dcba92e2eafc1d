package home_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
)

// Reading any table reports every problem in the settings file with its position.
func TestConfigProblems(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"empty file", "", ""},
		{"every table", `
[bundles.hello.env]
ANY = "name"
[login]
issuer = "https://login.example.com"
[memory]
ttl = "30d"
[oidc]
admins = {subjects = [], groups = ["operators"]}
[oidc.subjects]
"ada@example.com" = ["*"]
[quota]
calls_per_day = 50_000
principals.ci.calls_per_minute = 0x10
[registry."mcp.example.com"]
url = "https://mcp.example.com"
private = true
[retention]
journal = "90d"
[scopes."mcp.example.com/notes"]
read = ["list", "show"]
[server."mcp.example.com/notes"]
env = {ANY = "name"}
[skills]
bucket = "skills"
`, ""},
		{"unknown table", "[qouta]\ncalls_per_day = 1\n", `FILE:1:2: there is no table [qouta]; did you mean "quota"?`},
		{"table in upper case", "[Quota]\ncalls_per_day = 1\n", `FILE:1:2: there is no table [Quota]; did you mean "quota"?`},
		{"setting outside of any table", "calls = 1\n", `FILE:1:1: there is no setting calls`},
		{"unknown setting", "\n[retention]\n  journel = \"90d\"\n", `FILE:3:3: [retention]: there is no setting journel; did you mean "journal"?`},
		{"unknown setting in a nested table", "[quota.principals.ci]\ncalls_per_dya = 1\n", `FILE:2:1: [quota.principals.ci]: there is no setting calls_per_dya; did you mean "calls_per_day"?`},
		{"wrong type", "[quota]\ncalls_per_day = \"canary\"\n", `FILE:2:1: [quota]: calls_per_day has the wrong type: it is a string, but must be a whole number`},
		{"wrong type in a list", "[login]\nscopes = [\"openid\", 3]\n", `FILE:2:1: [login]: scopes has the wrong type: it contains a whole number, but each item must be a string`},
		{"number instead of a table", "quota = 3\n", `FILE:1:1: [quota] has the wrong type: it is a whole number, but must be a table`},
		{"a fraction", "[quota]\ncalls_per_day = 1.5\n", `FILE:2:1: [quota]: calls_per_day has the wrong type: it is a fraction, but must be a whole number`},
		{"inline table", "oidc = {admins = {group = []}}\n", `FILE:1:19: [oidc.admins]: there is no setting group; did you mean "groups"?`},
		{"name with a control character", "[quota.principals.\"a\\u001bb\"]\nx = 1\n", `FILE:2:1: [quota.principals."a\x1bb"]: there is no setting x`},
		{"a list of tables", "[[quota]]\n", `FILE:1:3: [quota] has the wrong type: it is a list, but must be a table`},
		{
			"several problems", "[qouta]\nx = 1\n[retention]\njournel = \"canary\"\n",
			`FILE:1:2: there is no table [qouta]; did you mean "quota"?; FILE:4:1: [retention]: there is no setting journel; did you mean "journal"?`,
		},
		{"syntax error", "[quota]\ncalls_per_day = [1,\n", `FILE:2:20: array is incomplete`},
		{"duplicate key", "[quota]\ncalls_per_day = 1\ncalls_per_day = 2\n", `FILE:3:1: key calls_per_day is already defined`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.toml")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(tt.want, "FILE", file)
			var into struct {
				TTL string `toml:"ttl"`
			}
			_, err := home.ReadTable(file, "memory", &into)
			for _, err := range []error{err, home.CheckConfig(file)} {
				if got := errorText(err); got != want {
					t.Errorf("got error\n%s\nwant\n%s", got, want)
				}
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A report of many problems stays short.
func TestConfigProblemsEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte("[quota]\nxxx = 1\n[a]\n[b]\n[c]\n[d]\n[e]\n[f]\n[g]\n[h]\n[i]\n[j]\n[k]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := home.CheckConfig(file); err == nil || strings.Count(err.Error(), "there is no") != 10 || !strings.HasSuffix(err.Error(), "; and more") {
		t.Errorf("got error %v, want 10 problems and a note that there are more", err)
	}
}
