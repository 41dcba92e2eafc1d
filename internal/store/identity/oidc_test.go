package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// issuer is an OpenID provider for these tests. It serves a discovery document and a key set. It signs tokens
// with real RS256 and ES256 keys.
type issuer struct {
	*httptest.Server
	rsa *rsa.PrivateKey
	ec  *ecdsa.PrivateKey

	mu      sync.Mutex
	keys    []map[string]any
	fetched int // number of requests for the key set
	down    bool
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	var err error
	if i.rsa, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	if i.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	point, err := i.ec.PublicKey.Bytes() // 4, x, y
	if err != nil {
		t.Fatal(err)
	}
	i.keys = []map[string]any{
		{"kty": "RSA", "kid": "r1", "use": "sig", "alg": "RS256", "n": b64(i.rsa.N.Bytes()), "e": b64(big.NewInt(int64(i.rsa.E)).Bytes())},
		{"kty": "EC", "kid": "e1", "use": "sig", "alg": "ES256", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])},
	}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		var doc any
		switch {
		case i.down:
			http.Error(w, "down", http.StatusBadGateway)
			return
		case r.URL.Path == "/.well-known/openid-configuration":
			doc = map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/a", "token_endpoint": i.URL + "/t", "id_token_signing_alg_values_supported": []string{"RS256", "ES256", "HS256", "none"}}
		case r.URL.Path == "/keys":
			i.fetched++
			doc = map[string]any{"keys": i.keys}
		default:
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(doc)
	}))
	t.Cleanup(i.Close)
	return i
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// token returns a token with these claims, signed with the algorithm that the header names.
func (i *issuer) token(t *testing.T, header, claims map[string]any) string {
	t.Helper()
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b64(text)
	}
	body := part(header) + "." + part(claims)
	sum := sha256.Sum256([]byte(body))
	var sig []byte
	switch header["alg"] {
	case "RS256":
		var err error
		if sig, err = rsa.SignPKCS1v15(rand.Reader, i.rsa, crypto.SHA256, sum[:]); err != nil {
			t.Fatal(err)
		}
	case "ES256":
		r, s, err := ecdsa.Sign(rand.Reader, i.ec, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		sig = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	case "HS256": // in an algorithm confusion attack, the public key is the HMAC secret
		m := hmac.New(sha256.New, i.rsa.N.Bytes())
		m.Write([]byte(body))
		sig = m.Sum(nil)
	}
	return body + "." + b64(sig)
}

func (i *issuer) claims(change map[string]any) map[string]any {
	c := map[string]any{"iss": i.URL, "aud": "ambit", "sub": "ada", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range change {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func (i *issuer) config() OIDCConfig {
	c := OIDCConfig{
		Issuer: i.URL, Audience: "ambit", PrincipalClaim: "sub", GroupsClaim: "groups",
		Subjects: map[string][]string{"ada": {"neo"}, "eve": {"*"}},
		Groups:   map[string][]string{"lab": {"forge", "neo"}},
	}
	c.Admins.Groups = []string{"ops"}
	return c
}

var (
	rs256 = map[string]any{"alg": "RS256", "kid": "r1", "typ": "JWT"}
	es256 = map[string]any{"alg": "ES256", "kid": "e1", "typ": "JWT"}
)

func TestTokens(t *testing.T) {
	i := newIssuer(t)
	for _, tt := range []struct {
		name   string
		header map[string]any
		change map[string]any
		want   error
	}{
		{"RS256", rs256, nil, nil},
		{"ES256", es256, nil, nil},
		{"one of several audiences", rs256, map[string]any{"aud": []string{"other", "ambit"}}, nil},
		{"another audience", rs256, map[string]any{"aud": "other"}, ErrToken},
		{"no audience", rs256, map[string]any{"aud": nil}, ErrToken},
		{"another issuer", rs256, map[string]any{"iss": "https://evil.example"}, ErrToken},
		{"expired", rs256, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}, ErrToken},
		{"without an expiry", rs256, map[string]any{"exp": nil}, ErrToken},
		{"not yet valid", rs256, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}, ErrToken},
		{"unsigned", map[string]any{"alg": "none"}, nil, ErrToken},
		{"signed with the public key", map[string]any{"alg": "HS256", "kid": "r1"}, nil, ErrToken},
		{"signed with an unknown key", map[string]any{"alg": "RS256", "kid": "r9"}, nil, ErrToken},
		{"key id of another algorithm", map[string]any{"alg": "ES256", "kid": "r1"}, nil, ErrToken},
		{"a local name", rs256, map[string]any{"sub": "root@local"}, ErrToken},
		{"a local name in capitals", rs256, map[string]any{"sub": "root@LOCAL"}, ErrToken},
		{"the name of a key", rs256, map[string]any{"sub": "key:abcdefghjk"}, ErrToken},
		{"no name", rs256, map[string]any{"sub": nil}, ErrToken},
		{"a name that is a number", rs256, map[string]any{"sub": 7}, ErrToken},
		{"a name with a line break", rs256, map[string]any{"sub": "a\nb"}, ErrToken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := NewOIDC(i.config()).Check(t.Context(), i.token(t, tt.header, i.claims(tt.change)))
			if !errors.Is(err, tt.want) || (err == nil) != (p != nil) {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
	o := NewOIDC(i.config())
	good := i.token(t, rs256, i.claims(nil))
	parts := strings.Split(good, ".")
	other := strings.Split(i.token(t, rs256, i.claims(map[string]any{"sub": "eve"})), ".")
	if _, err := o.Check(t.Context(), parts[0]+"."+other[1]+"."+parts[2]); !errors.Is(err, ErrToken) {
		t.Errorf("claims with the signature of another token: got error %v, want ErrToken", err)
	}
	if _, err := o.Check(t.Context(), "no token"); !errors.Is(err, ErrToken) {
		t.Errorf("a string that is not a token: got error %v, want ErrToken", err)
	}
}

func TestRights(t *testing.T) {
	i := newIssuer(t)
	o := NewOIDC(i.config())
	for _, tt := range []struct {
		name       string
		change     map[string]any
		agents     []string
		everywhere bool
		admin      bool
	}{
		{"by name", nil, []string{"neo"}, false, false},
		{"by group", map[string]any{"sub": "bob", "groups": []string{"lab", "x"}}, []string{"forge", "neo"}, false, false},
		{"by a group given as a string", map[string]any{"sub": "bob", "groups": "lab"}, []string{"forge", "neo"}, false, false},
		{"by both", map[string]any{"groups": []string{"lab"}}, []string{"neo", "forge"}, false, false},
		{"everything", map[string]any{"sub": "eve"}, nil, true, false},
		{"admin", map[string]any{"sub": "bob", "groups": []string{"ops"}}, nil, false, true},
		{"an unknown subject", map[string]any{"sub": "bob"}, nil, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := o.Check(t.Context(), i.token(t, es256, i.claims(tt.change)))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.Agents, tt.agents) || p.Everywhere != tt.everywhere || p.Admin != tt.admin || p.Kind != ByToken {
				t.Errorf("got principal %+v", p)
			}
		})
	}
	if i.fetched != 1 {
		t.Errorf("the keys were fetched %d times, want 1", i.fetched)
	}
}

func TestEmailMustBeVerified(t *testing.T) {
	i := newIssuer(t)
	c := i.config()
	c.PrincipalClaim = "email"
	o := NewOIDC(c)
	typed := i.claims(map[string]any{"email": "ada@example.com"})
	if _, err := o.Check(t.Context(), i.token(t, rs256, typed)); !errors.Is(err, ErrToken) {
		t.Errorf("an unverified address: got error %v, want ErrToken", err)
	}
	typed["email_verified"] = true
	if p, err := o.Check(t.Context(), i.token(t, rs256, typed)); err != nil || p.Name != "ada@example.com" {
		t.Errorf("a verified address: got %+v, %v", p, err)
	}
}

// A new key of the provider is fetched. Tokens that name unknown keys cause only a limited number of requests.
func TestKeyRotation(t *testing.T) {
	i := newIssuer(t)
	o := NewOIDC(i.config())
	if _, err := o.Check(t.Context(), i.token(t, rs256, i.claims(nil))); err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	i.keys[0]["kid"] = "r2"
	i.mu.Unlock()
	// The first attempts may fail. If an earlier fetch of the key set is still running, go-oidc reuses its
	// result.
	var err error
	for range 3 {
		if _, err = o.Check(t.Context(), i.token(t, map[string]any{"alg": "RS256", "kid": "r2"}, i.claims(nil))); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("a token of the new key was refused: %v", err)
	}
	for range 50 {
		if _, err := o.Check(t.Context(), i.token(t, map[string]any{"alg": "RS256", "kid": "made-up"}, i.claims(nil))); !errors.Is(err, ErrToken) {
			t.Fatal(err)
		}
	}
	if i.fetched > 10 {
		t.Errorf("unknown keys caused %d requests, want at most 10", i.fetched)
	}
}

// A provider that does not respond gets only one discovery request. A caller stops waiting when its
// context ends.
func TestProviderSilent(t *testing.T) {
	i := newIssuer(t)
	o := NewOIDC(i.config())
	asked, answer := make(chan struct{}, 2), make(chan struct{})
	o.client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		asked <- struct{}{}
		<-answer
		return http.DefaultTransport.RoundTrip(r)
	})
	token := i.token(t, rs256, i.claims(nil))
	gone, leave := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		_, err := o.Check(gone, token)
		first <- err
	}()
	<-asked
	leave()
	if err := <-first; !errors.Is(err, ErrProvider) || !errors.Is(err, context.Canceled) {
		t.Errorf("the first caller was canceled: got error %v, want ErrProvider and context.Canceled", err)
	}
	if _, err := o.Check(gone, token); !errors.Is(err, ErrProvider) || !errors.Is(err, context.Canceled) {
		t.Errorf("a later caller was canceled: got error %v, want ErrProvider and context.Canceled", err)
	}
	close(answer)
	if p, err := o.Check(t.Context(), token); err != nil || p.Name != "ada" {
		t.Errorf("a caller that waited: got %+v, %v", p, err)
	}
	if <-asked; len(asked) > 0 { // wait for the request for the keys
		t.Error("discovery sent more than one request")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestProviderDown(t *testing.T) {
	i := newIssuer(t)
	i.down = true
	o := NewOIDC(i.config())
	now := time.Now()
	o.now = func() time.Time { return now }
	token := i.token(t, rs256, i.claims(nil))
	if _, err := o.Check(t.Context(), token); !errors.Is(err, ErrProvider) {
		t.Fatalf("got error %v, want ErrProvider", err)
	}
	i.mu.Lock()
	i.down = false
	i.mu.Unlock()
	if _, err := o.Check(t.Context(), token); !errors.Is(err, ErrProvider) {
		t.Errorf("a check before retryDelay has passed: got error %v, want ErrProvider", err)
	}
	now = now.Add(retryDelay)
	if _, err := o.Check(t.Context(), token); err != nil {
		t.Errorf("a check after retryDelay has passed: %v", err)
	}
}

func TestReadOIDC(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"no table", "[registry.\"x\"]\nurl = 'y'", ""},
		{"empty", "", ""},
		{"every setting", "[registry.x]\nurl='y'\n[oidc]\nissuer='https://login.example.com'\naudience='a'\n[oidc.subjects]\nada=['*']\n[oidc.groups]\nlab=['neo']\n[oidc.admins]\ngroups=['ops']\nsubjects=['eve']", ""},
		{"no audience", "[oidc]\nissuer='https://login.example.com'", "the issuer and the audience are both required"},
		{"http", "[oidc]\nissuer='http://login.example.com'\naudience='a'", "must begin with https"},
		{"http on a loopback address", "[oidc]\nissuer='http://127.0.0.1:1'\naudience='a'", ""},
		{"not a URL", "[oidc]\nissuer='login'\naudience='a'", "not a URL"},
		{"a typo", "[oidc]\nissuer='https://x'\naudience='a'\nprincipal_clam='email'", "no setting principal_clam"},
		{"not TOML", "[oidc", "toml"},
		{"not a table", "oidc = 3", "[oidc]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.toml")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := ReadOIDC(file)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("got error %v, want %q", err, tt.want)
			}
			if tt.name == "every setting" && (c.PrincipalClaim != "sub" || c.Subjects["ada"][0] != "*" || c.Groups["lab"][0] != "neo" || c.Admins.Groups[0] != "ops") {
				t.Errorf("got %+v", c)
			}
		})
	}
	if c, err := ReadOIDC(filepath.Join(t.TempDir(), "none")); c != nil || err != nil {
		t.Errorf("without a file: %v, %v", c, err)
	}
}
