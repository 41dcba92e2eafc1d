//go:build prove

package identity

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Tokens from a real OpenID provider, the npm package oidc-provider at a pinned version, are
// accepted.
func TestProveProvider(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "provider.mjs", ".npmrc"} {
		text, err := os.ReadFile(filepath.Join("testdata", "provider", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	secret := rand.Text()
	provider := exec.CommandContext(t.Context(), "node", "provider.mjs")
	provider.Dir, provider.Env = dir, append(os.Environ(), "CLIENT_SECRET="+secret)
	in, err := provider.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := provider.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := provider.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := provider.Wait(); err != nil {
			t.Errorf("the provider exited with %v", err)
		}
	}()
	issuer, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	issuer = strings.TrimSpace(issuer)
	token := func(resource, scope string) string {
		t.Helper()
		form := url.Values{"grant_type": {"client_credentials"}, "resource": {resource}}
		if scope != "" {
			form.Set("scope", scope)
		}
		req, err := http.NewRequestWithContext(t.Context(), "POST", issuer+"/token", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("ada", secret)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var doc struct {
			AccessToken string `json:"access_token"`
			Error       string `json:"error"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil || doc.AccessToken == "" {
			t.Fatalf("the provider returned no token: %v %s", err, doc.Error)
		}
		return doc.AccessToken
	}
	o := NewOIDC(OIDCConfig{Issuer: issuer, Audience: "ambit", PrincipalClaim: "sub", GroupsClaim: "groups", Subjects: map[string][]string{"ada": {"neo"}}})
	for name, scope := range map[string]string{"ES256": "", "RS256": "use"} {
		if p, err := o.Check(t.Context(), token("urn:ambit", scope)); err != nil || p.Name != "ada" || !p.MayUse("neo") || p.MayUse("forge") {
			t.Errorf("%s: got principal %+v, %v", name, p, err)
		}
	}
	if _, err := o.Check(t.Context(), token("urn:other", "")); !errors.Is(err, ErrToken) {
		t.Errorf("a token for another audience: got error %v, want ErrToken", err)
	}
}
