package secretlike_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// In each test, the credential contains the text "invented".
func TestArgs(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--token|invented", "--token|[redacted]"},
		{"--token=invented", "--token=[redacted]"},
		{"--token:invented", "--token:[redacted]"},
		{"--header|Authorization: Bearer invented", "--header|Authorization: [redacted]"},
		{"--header|Authorization:Bearer invented", "--header|Authorization:[redacted]"},
		{"--header=X-API-Key: invented", "--header=X-API-Key: [redacted]"},
		{"-H|X-API-Key: invented", "-H|X-API-Key: [redacted]"},
		{"-HX-API-Key: invented", "-HX-API-Key: [redacted]"},
		{"-H|X-Custom: Bearer invented", "-H|X-Custom: [redacted]"},
		{"-H|Authorization: Bearer ${TOKEN}invented", "-H|Authorization: [redacted]"},
		{"run|-e|GITHUB_TOKEN=invented|image", "run|-e|GITHUB_TOKEN=[redacted]|image"},
		{"-eGITHUB_TOKEN=invented", "-eGITHUB_TOKEN=[redacted]"},
		{"--env=GITHUB_TOKEN=invented", "--env=GITHUB_TOKEN=[redacted]"},
		{"--env|DB_PASS=invented", "--env|DB_PASS=[redacted]"},
		{"API_KEY=invented", "API_KEY=[redacted]"},
		{"AUTHORIZATION=Bearer invented", "AUTHORIZATION=[redacted]"},
		{"API_KEY=${KEY:-invented}", "API_KEY=[redacted]"},
		{"https://h/mcp?token=invented", "https://h/mcp?token=[redacted]"},
		{"https://h/mcp?lang=en&key=invented&x=1", "https://h/mcp?lang=en&key=[redacted]&x=1"},
		{"--url=https://h/mcp?token=invented", "--url=https://h/mcp?token=[redacted]"},
		{"--connectionString=mongodb://u:invented@host/db", "--connectionString=[redacted]"},
		{"--connectionString=https://host/?token=invented", "--connectionString=[redacted]"},
		{"host=h password=invented dbname=d", "host=h password=[redacted] dbname=d"},
		{"Server=h;Password=invented;Port=1", "Server=h;Password=[redacted];Port=1"},
		{`--headers|{"Authorization": "Bearer invented"}`, `--headers|{"Authorization": "[redacted]"}`},
		{`-c|curl -H 'Authorization: Bearer invented' https://h`, `-c|curl -H 'Authorization: [redacted]' https://h`},
		{"-u|admin:invented", "-u|admin:[redacted]"},
		{"--login=bob/invented9", "--login=bob/[redacted]"},
		{"--Login|bob:invented", "--Login|bob:[redacted]"},
		{"--logon|acme/deploy:invented", "--logon|acme/deploy:[redacted]"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			args := strings.Split(tt.args, "|")
			if n := len(secretlike.Args(args)); n != 1 {
				t.Errorf("Args found %d credentials, want 1", n)
			}
			if got := strings.Join(secretlike.Redact(args), "|"); got != tt.want {
				t.Errorf("Redact: got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestArgsWithoutCredentials(t *testing.T) {
	for _, text := range []string{
		"", "--header|Authorization: Bearer ${TOKEN}", "--header|Authorization:${AUTH_HEADER}", "-H|Authorization: $env:TOKEN",
		"-H|Accept: application/json", "-H|localhost:8080", "-HX-API-Key: ${KEY}", "-H|X-Region: eu", "-e|GITHUB_TOKEN",
		"-e|GITHUB_TOKEN=${GITHUB_TOKEN}", "-e|GITHUB_TOKEN=$GITHUB_TOKEN", "API_KEY=", "API_KEY=$env:API_KEY", "LOG_LEVEL=debug",
		"https://h/mcp?token=${TOKEN}", "https://h/mcp?lang=en", "https://h/mcp?token_type=jwt", "mcp-auth==1.2.3",
		"--with|mcp-auth==1.2.3", "--with=jwt>=2", "--connectionString=mongodb://host/db", "--connection-string|mongodb://a:1,b:2/db",
		"--token-limit|4000", "-e|AUTH=true", "-e|AUTH_METHOD=oauth", "-e|GOOGLE_APPLICATION_CREDENTIALS=/creds/key.json",
		"-u|1000:1000", "-u|node:node", "--user|root", "--login|bob", "--login=/etc/login", "--login|bob/$env:PASSWORD", "--mount|type=bind,src=/a,dst=/b", "PASS_THROUGH=yes", "-c|echo $TOKEN",
		`--headers|{"Authorization": "Bearer ${TOKEN}"}`, "-c|TOKEN=$(cat /run/token) server",
	} {
		args := strings.Split(text, "|")
		if found := secretlike.Args(args); len(found) > 0 {
			t.Errorf("%q: found %+v", text, found)
		}
		if got := secretlike.Redact(args); !slices.Equal(got, args) {
			t.Errorf("%q: Redact returns %q", text, got)
		}
	}
}

// Nested pairs take bounded work, and every credential is redacted once.
func TestPairsWithinPairs(t *testing.T) {
	if found := secretlike.Pairs(strings.Repeat("token=a://b?", 50_000) + "token=a://b"); len(found) > 1 {
		t.Errorf("found %d credentials, want at most 1", len(found))
	}
	got := secretlike.Redact([]string{`{"token": "password=invented", "auth_token": "invented"}`})[0]
	if strings.Contains(got, "invented") || strings.Count(got, "[redacted]") != 2 {
		t.Errorf("Redact returns %q", got)
	}
}

func FuzzArgs(f *testing.F) {
	f.Add("-H", "Authorization: Bearer x")
	f.Add("--token", `a=b&token="c`)
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, n := range secretlike.Args([]string{a, b}) {
			if text := []string{a, b}[n.Index]; n.Start < 0 || n.Start >= n.End || n.End > len(text) {
				t.Fatalf("%q %q: %+v", a, b, n)
			}
		}
		secretlike.Redact([]string{a, b})
	})
}
