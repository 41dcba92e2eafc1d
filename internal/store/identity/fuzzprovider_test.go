package identity

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// The fuzz targets verify tokens of a provider with a single key. They never send a request to the
// provider.
const fuzzIssuer = "https://login.example.com"

var (
	fuzzKey  = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	otherKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
)

func signedBy(key ed25519.PrivateKey, header string, claims []byte) string {
	enc := base64.RawURLEncoding
	body := enc.EncodeToString([]byte(header)) + "." + enc.EncodeToString(claims)
	return body + "." + enc.EncodeToString(ed25519.Sign(key, []byte(body)))
}

func fuzzOIDC() *OIDC {
	o := NewOIDC(OIDCConfig{Issuer: fuzzIssuer, Audience: "ambit", PrincipalClaim: "sub", GroupsClaim: "groups", Subjects: map[string][]string{"ada": {"neo"}}})
	o.now = func() time.Time { return time.Unix(1_800_000_000, 0) }
	keys := &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{fuzzKey.Public()}}
	return o.discovered(keys)
}

// discovered marks the discovery as done, with the given provider keys.
func (o *OIDC) discovered(keys oidc.KeySet) *OIDC {
	o.last = &discovery{done: make(chan struct{}), verifier: oidc.NewVerifier(fuzzIssuer, keys, &oidc.Config{ClientID: "ambit", SupportedSigningAlgs: algorithms, Now: o.now})}
	close(o.last.done)
	return o
}

const (
	edHeader   = `{"alg":"EdDSA","kid":"k"}`
	goodClaims = `{"iss":"` + fuzzIssuer + `","aud":"ambit","sub":"ada","exp":1800003600}`
)

// FuzzToken checks that only tokens signed by the provider are accepted.
func FuzzToken(f *testing.F) {
	good := signedBy(fuzzKey, edHeader, []byte(goodClaims))
	f.Add(good)
	f.Add(signedBy(otherKey, edHeader, []byte(goodClaims)))
	f.Add(signedBy(fuzzKey, `{"alg":"none"}`, []byte(goodClaims)))
	f.Add(strings.TrimRight(signedBy(fuzzKey, `{"alg":"none"}`, []byte(goodClaims)), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"))
	f.Add(signedBy(fuzzKey, `{"alg":"HS256"}`, []byte(goodClaims)))
	f.Add(`{"payload":"` + strings.Split(good, ".")[1] + `","signatures":[{"protected":"","signature":""}]}`)
	f.Add("..")
	f.Add(good + "." + good)
	o := fuzzOIDC()
	f.Fuzz(func(t *testing.T, token string) {
		p, err := o.Check(t.Context(), token)
		if err != nil {
			if p != nil {
				t.Error("a principal was returned together with an error")
			}
			return
		}
		// Only one seed is a valid token. So an accepted token must contain the claims of that
		// seed.
		if !strings.Contains(token, strings.Split(good, ".")[1]) || p.Name != "ada" || p.Admin {
			t.Errorf("the token %q was accepted for %+v", token, p)
		}
	})
}

// FuzzClaims checks the accepted tokens. Their names must be valid and not reserved. Their expiry must be in
// the future.
func FuzzClaims(f *testing.F) {
	for _, claims := range []string{
		goodClaims,
		`{"iss":"` + fuzzIssuer + `","aud":["ambit","other"],"sub":"root@local","exp":1800003600}`,
		`{"iss":"` + fuzzIssuer + `","aud":"ambit","sub":"a\u001b[2J\n","exp":1800003600}`,
		`{"iss":"` + fuzzIssuer + `","aud":"ambit","sub":"ada","exp":1800003600,"groups":["ops",1]}`,
		`{"iss":"` + fuzzIssuer + `","aud":"ambit","sub":"ada","exp":1e300}`,
		`{"iss":"` + fuzzIssuer + `","aud":"ambit","sub":"ada","exp":1800003600,"sub":"eve"}`,
		`{"iss":"https://evil.example","aud":"ambit","sub":"ada","exp":1800003600}`,
		`[]`, `{`,
	} {
		f.Add([]byte(claims))
	}
	o := fuzzOIDC()
	f.Fuzz(func(t *testing.T, claims []byte) {
		p, err := o.Check(t.Context(), signedBy(fuzzKey, edHeader, claims))
		if err != nil {
			return
		}
		if !ValidName(p.Name) || reserved(p.Name) || p.Kind != ByToken || p.Admin {
			t.Errorf("the claims %s were accepted for %+v", claims, p)
		}
		if !p.Until.After(o.now()) {
			t.Errorf("the claims %s are accepted until %v, which is not in the future", claims, p.Until)
		}
		var said struct{ Iss string }
		if err := json.Unmarshal(claims, &said); err != nil || said.Iss != fuzzIssuer {
			t.Errorf("the claims %s of another provider were accepted", claims)
		}
	})
}

// canned answers every request with the same response.
type canned struct {
	status int
	text   []byte
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: c.status, Status: fmt.Sprint(c.status), Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(c.text)),
	}, nil
}

// FuzzKeySet checks that no key set accepts a token signed with a key outside the set.
func FuzzKeySet(f *testing.F) {
	x := base64.RawURLEncoding.EncodeToString(fuzzKey.Public().(ed25519.PublicKey))
	for _, text := range []string{
		`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"` + x + `"}]}`, `{"keys":[{"kty":"oct","kid":"k","k":"AA"}]}`, `{"keys":[{"kty":"RSA","kid":"k","n":"AQAB","e":"AQAB"}]}`,
		`{"keys":[{"kty":"EC","crv":"P-256","kid":"k","x":"AA","y":"AA"}]}`, `{"keys":[]}`, `{"keys":null}`, `[]`, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":""}]}`,
	} {
		f.Add(200, []byte(text))
		f.Add(500, []byte(text))
	}
	stranger := signedBy(otherKey, edHeader, []byte(goodClaims))
	f.Fuzz(func(t *testing.T, status int, text []byte) {
		ctx := oidc.ClientContext(t.Context(), &http.Client{Transport: boundedTransport{canned{100 + min(max(status, 0), 499), text}}})
		o := fuzzOIDC().discovered(oidc.NewRemoteKeySet(ctx, fuzzIssuer+"/keys"))
		if p, err := o.Check(ctx, stranger); err == nil {
			t.Errorf("with the key set %s, a token of another key was accepted for %+v", text, p)
		}
	})
}

// FuzzTokenAnswer checks that each response gives a valid login or an error. A login survives storage and
// never prints its token. An error quotes no secret.
func FuzzTokenAnswer(f *testing.F) {
	for _, text := range []string{
		`{"access_token":"canary-token","token_type":"Bearer","expires_in":3600,"refresh_token":"canary-refresh","scope":"a b"}`,
		`{"access_token":"canary-token","token_type":"mac"}`, `{"access_token":"","token_type":"bearer"}`, `{"access_token":"canary-token","token_type":"bearer","expires_in":1e308}`,
		`{"access_token":"canary-token","token_type":"bearer","expires_in":-1}`, `{"access_token":"canary-token","token_type":"bearer","id_token":"x.y.z"}`,
		`{"error":"authorization_pending"}`, `{"error":"\u001b[2J","error_description":"\u202e"}`, `{"access_token":["canary-token"]}`, `[`,
	} {
		f.Add(200, []byte(text))
		f.Add(400, []byte(text))
	}
	f.Fuzz(func(t *testing.T, status int, text []byte) {
		d := newDevice(LoginConfig{Issuer: fuzzIssuer, ClientID: "ambit"}, nil, canned{100 + min(max(status, 0), 499), text})
		d.token = fuzzIssuer + "/token"
		d.verifier = fuzzOIDC().last.verifier
		l, err := d.requestTokens(context.Background(), url.Values{})
		if err != nil {
			if said := err.Error(); strings.Contains(said, "canary-") && !bytes.Contains(text, []byte(`"error`)) || strings.ContainsAny(said, "\x1b\u202e\n") {
				t.Errorf("the error quotes a secret or a control character: %q", said)
			}
			return
		}
		if l.Token() == "" || l.Issuer != fuzzIssuer || !l.Expires.IsZero() && l.Expires.Before(time.Now().Add(-time.Minute)) {
			t.Errorf("got an invalid sign-in: %+v", l)
		}
		if shown := fmt.Sprintf("%v %+v %#v", l, l, *l); len(l.Token()) > 8 && strings.Contains(shown, l.Token()) {
			t.Error("printing the sign-in shows its token")
		}
		again, err := OpenLogin(l.Reveal())
		if err != nil || again.Token() != l.Token() || again.Renewable() != l.Renewable() || !again.Expires.Equal(l.Expires) {
			t.Errorf("the stored sign-in differs from the original: %v", err)
		}
	})
}

// FuzzProviderConfig checks that an accepted issuer is an https URL or a loopback host.
func FuzzProviderConfig(f *testing.F) {
	for _, text := range []string{
		"[oidc]\nissuer = \"https://login.example.com\"\naudience = \"ambit\"\n", "[oidc]\nissuer = \"http://evil.example\"\naudience = \"ambit\"\n",
		"[oidc]\nissuer = \"http://localhost:1\"\naudience = \"ambit\"\n[oidc.admins]\nsubjects = [\"ada\"]\n", "[oidc]\nissuer = \"https://\"\naudience = \"x\"\nprincipal_claim = \"\"\n", "oidc = 1\n",
	} {
		f.Add([]byte(text))
	}
	file := filepath.Join(f.TempDir(), "config.toml")
	f.Fuzz(func(t *testing.T, text []byte) {
		os.Remove(file) // overwriting an existing file may wait for the disk
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadOIDC(file)
		if err != nil || c == nil {
			return
		}
		u, err := url.Parse(c.Issuer)
		if err != nil || u.Host == "" || u.Scheme != "https" && !loopback(u.Hostname()) || c.Audience == "" || c.PrincipalClaim == "" {
			t.Errorf("ReadOIDC accepted %+v", c)
		}
	})
}
