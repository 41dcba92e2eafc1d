package cli_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
)

// analytics is a provider: it exchanges assertions of a service account for tokens, and serves reports for tokens.
type analytics struct {
	public *rsa.PublicKey

	mu    sync.Mutex
	heard []string // the requests, with their bodies
}

func (a *analytics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.heard = append(a.heard, fmt.Sprint(r.Method, " ", r.Host, r.URL, " ", r.Header, " ", string(body)))
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch {
	case r.Host == "oauth.example.com" && a.signed(r.FormValue("assertion")):
		_, _ = io.WriteString(w, `{"access_token": "issued-for-the-report", "token_type": "Bearer", "expires_in": 3600}`)
	case r.Host == "api.example.com" && r.Header.Get("Authorization") == "Bearer issued-for-the-report":
		_, _ = io.WriteString(w, `{"visits": 4711}`)
	default:
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// signed reports whether the account's key signed an assertion.
func (a *analytics) signed(assertion string) bool {
	dot := max(0, strings.LastIndexByte(assertion, '.'))
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(assertion[dot:], "."))
	sum := sha256.Sum256([]byte(assertion[:dot]))
	return err == nil && rsa.VerifyPKCS1v15(a.public, crypto.SHA256, sum[:], raw) == nil
}

// TestAnalyticsWithAServiceAccount runs an analytics agent with the key of a service account, from setting the key to
// the report. The provider and the user never see the key.
func TestAnalyticsWithAServiceAccount(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	key, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "report@example.com", "private_key_id": "id-of-the-key", "private_key": text,
		"token_uri": "https://oauth.example.com/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	provider := &analytics{public: &private.PublicKey}
	server := httptest.NewTLSServer(provider)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	home, at := t.TempDir(), server.Listener.Addr().String()
	t.Setenv("AMBIT_HOME", home)
	t.Setenv("AMBIT_DEV_CA", ca)
	t.Setenv("AMBIT_DEV_RESOLVE", "api.example.com:443="+at+",oauth.example.com:443="+at)
	agent := write(t, "findagent.json", `{"name": "GA Report Builder", "description": "Pulls a traffic summary and writes it to a sheet.",
  "system_prompt": "You are a focused analytics assistant that reports the traffic of a website.", "kind": "mcp-tool", "category": "analytics",
  "tools": [{"name": "get_traffic_summary", "description": "Fetch a traffic summary for a date range.",
    "input_schema": {"type": "object", "properties": {"range": {"type": "string"}}}, "annotations": {"readOnlyHint": true},
    "action": {"type": "http", "method": "GET", "url": "https://api.example.com/v1/traffic?range={range}", "auth_ref": "analytics_token"}}],
  "credential_slots": [{"ref": "analytics_token", "label": "Analytics API token", "description": "Paste your GA4 service-account JSON key",
    "env": "ANALYTICS_TOKEN", "type": "json", "scopes": ["analytics.read"], "allowed_hosts": ["api.example.com", "oauth.example.com"]}],
  "example_prompts": ["Summarize last week's traffic."],
  "delivery": {"mcp": {"stdio": {"command": "findagent-mcp", "args": ["run", "ga-report-builder"]}}},
  "exec": "user-local", "targets": ["claude-desktop", "cursor", "cli"]}`)

	var said strings.Builder
	run := func(want int, in string, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if code := cli.Run(t.Context(), args, strings.NewReader(in), &out, &out); code != want {
			t.Errorf("ambit %s exited %d, want %d: %s", strings.Join(args, " "), code, want, out.String())
		}
		said.Write(out.Bytes())
		return out.String()
	}
	report := []string{"call", agent, "get_traffic_summary", "--input", `{"range": "last-7-days"}`}
	run(0, "", "validate", agent)
	if out := run(3, "", report...); !strings.Contains(out, "credential_missing") {
		t.Errorf("a call without the key: %s", out)
	}
	run(0, string(key), "secret", "set", agent, "analytics_token")
	for range 2 {
		if out := run(0, "", report...); !strings.Contains(out, `"visits":4711`) && !strings.Contains(out, `"visits": 4711`) {
			t.Errorf("a call: %s", out)
		}
	}
	run(0, "", "inspect", agent)
	run(0, "", "journal", "show", "--json")
	provider.mu.Lock()
	defer provider.mu.Unlock()
	heard := strings.Join(provider.heard, "\n")
	if strings.Count(heard, "GET api.example.com/v1/traffic?range=last-7-days") != 2 {
		t.Errorf("the provider got:\n%s", heard)
	}
	everywhere := heard + said.String() + string(allFiles(t, home))
	for _, canary := range []string{"PRIVATE KEY", strings.Split(text, "\n")[1]} {
		if strings.Contains(everywhere, canary) {
			t.Errorf("the key was sent, printed or stored in plain text: %.12s…", canary)
		}
	}
	if strings.Contains(said.String(), "issued-for-the-report") {
		t.Error("the token was printed")
	}
}

// allFiles returns the contents of all files in a folder.
func allFiles(t *testing.T, dir string) (all []byte) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, text...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
