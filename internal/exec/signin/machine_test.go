package signin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/ambit-run/ambit/internal/exec/credential"
)

// machine configures a grant that needs no person.
func (w *world) machine(k *Keeper, u Upstream, secret string) {
	w.t.Helper()
	at, err := url.Parse(w.endpoint())
	if err != nil {
		w.t.Fatal(err)
	}
	if u.Issuer == "" {
		u.Issuer = w.issuer.URL
	}
	k.upstreams = func() (map[string]Upstream, error) { return map[string]Upstream{at.Host: u}, nil }
	if secret == "" {
		return
	}
	s, err := credential.New(credential.Masked, secret, nil)
	if err == nil {
		err = k.vault.Set(credential.Own, "client:"+at.Host, s)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func newKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// Without a person, a call obtains a token, uses it until it expires, and then obtains another one.
func TestMachineGrants(t *testing.T) {
	_, key := newKey(t)
	file := filepath.Join(t.TempDir(), "assertion")
	if err := os.WriteFile(file, []byte("workload-canary\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		upstream Upstream
		secret   string
	}{
		"a secret":      {Upstream{Grant: clientGrant, ClientID: "machine"}, "canary-secret"},
		"a private key": {Upstream{Grant: clientGrant, ClientID: "machine"}, key},
		"a workload":    {Upstream{Grant: workloadGrant, AssertionFile: file}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, k := newWorld(t), newKeeper(t)
			w.set(func(w *world) {
				w.metadata["token_endpoint_auth_methods_supported"] = []string{methodPost}
				w.metadata["grant_types_supported"] = []string{clientGrant}
			})
			w.machine(k, tt.upstream, tt.secret)
			for range 2 {
				if status, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint()); err != nil || status != 200 {
					t.Fatalf("a call: status %d, %v", status, err)
				}
			}
			if len(w.forms) != 1 || w.forms[0].Get("resource") != w.endpoint() {
				t.Errorf("there were %d token requests, for the resource %q", len(w.forms), w.forms[0].Get("resource"))
			}
			later := time.Now().Add(2 * time.Hour)
			k.now = func() time.Time { return later }
			w.set(func(w *world) { clear(w.tokens); w.life = 24 * 3600 })
			if status, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint()); err != nil || status != 200 {
				t.Errorf("a call with an expired token: status %d, %v", status, err)
			}
			if len(w.forms) != 2 || len(w.pages) > 0 {
				t.Errorf("there were %d token requests, and %d pages were shown", len(w.forms), len(w.pages))
			}
		})
	}
}

// A server that names another authorization server does not obtain the client's secret, and a rejected request is not
// repeated.
func TestMachineGrantsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		issuer, secret, message string
		requests                int
	}{
		"another issuer": {"https://login.example", "canary-secret", "login.example", 0},
		"a wrong secret": {"", "canary-wrong", "invalid_grant", 1},
		"a broken key":   {"", "-----BEGIN PRIVATE KEY-----\ncanary", "PEM", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, k := newWorld(t), newKeeper(t)
			w.set(func(w *world) { w.metadata["token_endpoint_auth_methods_supported"] = []string{methodPost} })
			w.machine(k, Upstream{Grant: clientGrant, ClientID: "machine", Issuer: tt.issuer}, tt.secret)
			_, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint())
			if err == nil || !strings.Contains(err.Error(), tt.message) || strings.Contains(err.Error(), "canary") {
				t.Errorf("the error is %v", err)
			}
			if len(w.forms) != tt.requests {
				t.Errorf("there were %d token requests, want %d", len(w.forms), tt.requests)
			}
		})
	}
}

// The client's assertion is for one authorization server and a few minutes.
func TestClientAssertion(t *testing.T) {
	key, text := newKey(t)
	assertion, err := signAssertion(text, "machine", "https://login.example")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.ParseSigned(assertion, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	var claims jwt.Claims
	if err := parsed.Claims(&key.PublicKey, &claims); err != nil {
		t.Fatal(err)
	}
	want := jwt.Expected{Issuer: "machine", Subject: "machine", AnyAudience: jwt.Audience{"https://login.example"}}
	if err := claims.Validate(want); err != nil || claims.ID == "" || claims.Expiry.Time().After(time.Now().Add(time.Hour)) {
		t.Errorf("the claims are %+v, %v", claims, err)
	}
}

func TestUpstreamSettings(t *testing.T) {
	for text, ok := range map[string]bool{
		"[upstream.\"a.example\"]\nscopes = [\"x\"]":                                                           true,
		"[upstream.\"a.example\"]\nclient_id = \"x\"":                                                          false,
		"[upstream.\"a.example\"]\nclient_id = \"x\"\nissuer = \"https://b.example\"":                          true,
		"[upstream.\"a.example/x\"]":                                                                           false,
		"[upstream.\"localhost\"]":                                                                             false,
		"[upstream.\"localhost:1\"]":                                                                           true,
		"[upstream.\"a.example\"]\nredirect_port = 65536":                                                      false,
		"[upstream.\"a.example\"]\nclient_metadata_url = \"http://a.example/x\"":                               false,
		"[upstream.\"a.example\"]\ngrant = \"password\"":                                                       false,
		"[upstream.\"a.example\"]\ngrant = \"client_credentials\"":                                             false,
		"[upstream.\"a.example\"]\ngrant = \"jwt_bearer\"\nissuer = \"https://b.example\"":                     false,
		"[upstream.\"a.example\"]\ngrant = \"id_jag\"\nissuer = \"https://b.example\"\nassertion_file = \"x\"": false,
		"[upstream.\"a.example\"]\nsecret = \"x\"":                                                             false,
	} {
		file := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := ReadUpstreams(file); (err == nil) != ok {
			t.Errorf("%s: %+v, %v", text, all, err)
		}
	}
}
