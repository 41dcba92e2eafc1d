package secretlike_test

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// The tests assemble tokens from parts, so that secret scanners do not report this file.
const body = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1F2g3"

func TestFind(t *testing.T) {
	hex := "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
	found := map[string]string{
		"GitHub token":          "ghp" + "_" + body[:36],
		"AWS access key":        "AKIA" + "Z7Q2M5N8B1V4C6X9",
		"Slack token":           "xoxb" + "-123456789012-" + body[:20],
		"Anthropic API key":     "sk-" + "ant-api03-" + body[:40],
		"OpenAI API key":        "sk-" + "proj-" + body[:40],
		"API key":               "sk-" + body[:48],
		"Stripe secret key":     "sk_" + "live_" + body[:24],
		"Google API key":        "AIza" + body[:35],
		"DigitalOcean token":    "dop_v1" + "_" + hex,
		"private key":           "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE",
		"password in a URL":     "postgres://app:" + "hunter2x@db.example.com/app",
		"JSON Web Token":        "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
		"GitLab token":          "glpat" + "-" + body[:20],
		"npm token":             "npm" + "_" + body[:36],
		"Hugging Face token":    "hf" + "_" + body[:34],
		"Stripe restricted key": "rk_" + "test_" + body[:24],
	}
	for kind, token := range found {
		for _, text := range []string{token, "Bearer " + token, "x=" + token + ";y", `{"k":"` + token + `"}`} {
			f := secretlike.Find(text)
			if f.Kind != kind {
				t.Errorf("a %s in %q: got %+v", kind, text[:min(12, len(text))], f)
				continue
			}
			if kind != "password in a URL" && !strings.HasPrefix(text[f.Start:], token[:8]) {
				t.Errorf("%s: found at the wrong offset %d of %q", kind, f.Start, text[:12])
			}
		}
	}
}

// The shortest token is found at every position and in every context.
func TestFindAnywhere(t *testing.T) {
	token := "AKIA" + "Z7Q2M5N8B1V4C6X9"
	for _, around := range []string{" ", `"`, "é", "word ", "much.longer/word "} {
		for before := range 64 {
			for _, behind := range []string{"", " ", strings.Repeat(around, 20)} {
				text := strings.Repeat(around, 20)
				text = text[len(text)-min(before, len(text)):] + " " + token + behind
				if f := secretlike.Find(text); !f.Found() || text[f.Start:f.Start+len(token)] != token {
					t.Fatalf("%q: found %+v", text, f)
				}
			}
		}
	}
}

func TestFindNothing(t *testing.T) {
	for _, text := range []string{
		"", "sk-...", "sk-your-key-here", "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
		"Bearer $env:GITHUB_TOKEN", "$env:OPENAI_API_KEY", "${GITHUB_TOKEN}", "<your token>",
		"a key-value store with task-oriented risk-free desk-bound words",
		"sha256:a239da270c403c42eb03e1ca7cca07c858085819797b74856ddbb91b50491b1a",
		"https://user@example.com/path", "https://example.com:8443/a@b", "postgres://app:$env:PW@db/app", "postgres://app:password@localhost/app",
		"-----BEGIN CERTIFICATE-----", "matrix://tool/mcp/fs/read@1.0.0",
		"550e8400-e29b-41d4-a716-446655440000", "eyJ is how a token starts", "AKIA is a prefix", "secret_ingredient_of_the_month",
		"The npm_config_registry variable", "hf_transfer speeds up downloads considerably for large files",
	} {
		if f := secretlike.Find(text); f.Found() {
			t.Errorf("%q: found %+v", text, f)
		}
	}
}

func TestName(t *testing.T) {
	for _, name := range []string{
		"GITHUB_TOKEN", "API_KEY", "apiKey", "OPENAI_API_KEY", "DB_PASSWORD", "Authorization", "X-Api-Key", "Cookie", "--token",
		"--api-key", "client_secret", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD_PWD", "accessToken", "Proxy-Authorization", "SENTRY_DSN",
		"DB_PASS", "PGPASS", "CREDS", "DB_CREDS", "AWS_CRED", "dbPass", "--pass", "ROOTPWD", "WIFI_PSK", "CARD_PIN", "SEED_PHRASE",
		"--token2", "API_KEY_2", "DB_PASS2",
	} {
		if !secretlike.Name(name) {
			t.Errorf("Name(%q) = false, want true", name)
		}
	}
	for _, name := range []string{
		"", "HOME", "LOG_LEVEL", "MAX_TOKENS", "TOKEN_LIMIT", "AUTH_URL", "KEYBOARD", "MONKEY", "AUTHOR", "SECRET_NAME", "Content-Type",
		"--path", "PRIMARY_KEY_COLUMN", "TOKENIZERS_PARALLELISM", "AUTH_MODE", "PATH",
		"PASSENGER", "BYPASS", "COMPASS", "PASS_THROUGH", "PASSTHROUGH", "CAPTCHA_BYPASS", "--by-pass", "RENDER_PASS", "PASS_COUNT",
		"CREDS_FILE", "OLDPWD", "GPIO_PIN", "SPIN", "PINNED", "SACRED", "S3", "UTF8",
	} {
		if secretlike.Name(name) {
			t.Errorf("Name(%q) = true, want false", name)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add("postgres://a:b@c")
	f.Add("-----BEGIN PRIVATE KEY-----")
	f.Fuzz(func(t *testing.T, s string) {
		g := secretlike.Find(s)
		if g.Found() && (g.Start < 0 || g.End > len(s) || g.Start >= g.End) {
			t.Fatalf("%q: %+v", s, g)
		}
		secretlike.Name(s)
		if g.Found() && !strings.Contains(s, `"`) && !secretlike.MayHold(`{"key": "`+s+`"}`) {
			t.Fatalf("%q: Find returns %+v, but MayHold is false for a file that contains the text", s, g)
		}
	})
}

func BenchmarkFind(b *testing.B) {
	text := strings.Repeat("A careful sentence about keys, tokens and desks. ", 100)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if secretlike.Find(text).Found() {
			b.Fatal("found a secret in plain text")
		}
	}
}
