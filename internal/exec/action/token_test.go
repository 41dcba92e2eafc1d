package action

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// account is an agent whose slot has the key of a service account. It comes with a server for the API and a server that
// issues tokens.
type account struct {
	*rig
	tokens *server
	public *rsa.PublicKey
	source *credential.Source
}

func newAccount(t *testing.T, issue http.HandlerFunc) *account {
	t.Helper()
	r := newRig(t, agent.HTTP{AuthRef: "token"}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	ca := newAuthority(t)
	api := ca.server(t, r.Config.Handler.ServeHTTP, "api.example.com")
	tokens := ca.server(t, issue, "oauth2.example.com")
	r.o.Egress = egress.New(ca.switches(t, map[string]*server{"api.example.com:443": api, "oauth2.example.com:443": tokens}))
	t.Cleanup(r.o.Egress.Close)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "reporter@example.com", "private_key_id": "k1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"token_uri":   "https://oauth2.example.com/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	r.agent.Slots[0].Type = "json"
	r.agent.Slots[0].Scopes = []string{"https://auth.example.com/read", "more"}
	r.agent.Slots[0].Hosts = append(r.agent.Slots[0].Hosts, "oauth2.example.com")
	source := token(string(key)).For("reporter")
	r.o.Credentials = source
	return &account{r, tokens, &private.PublicKey, source}
}

// claims checks the signature of an assertion and returns its claims.
func (a *account) claims(assertion string) (claims map[string]any, err error) {
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		return nil, fmt.Errorf("the assertion has %d parts", len(parts))
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(a.public, crypto.SHA256, sum[:], signature); err != nil {
		return nil, err
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, err
	}
	return claims, json.Unmarshal(text, &claims)
}

func TestServiceAccount(t *testing.T) {
	lifetime, issued, scope := 3600, 0, "https://auth.example.com/read more"
	var a *account
	a = newAccount(t, func(w http.ResponseWriter, r *http.Request) {
		claims, err := a.claims(r.FormValue("assertion"))
		if err != nil || r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" ||
			claims["iss"] != "reporter@example.com" || claims["scope"] != scope ||
			claims["aud"] != "https://oauth2.example.com/token" {
			t.Errorf("the request has the grant %q with the claims %v (%v)", r.FormValue("grant_type"), claims, err)
		}
		issued++
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": "issued-token-%d", "token_type": "Bearer", "expires_in": %d}`, issued, lifetime)
	})
	for range 2 { // the second call reuses the token of the first call
		if _, err := a.call(t, `{}`); err != nil {
			t.Fatal(err)
		}
	}
	got := a.requests()
	if issued != 1 || len(got) != 2 || strings.Count(strings.Join(got, "\n"), "Bearer issued-token-1]") != 2 ||
		strings.Contains(strings.Join(got, "\n"), "PRIVATE") {
		t.Errorf("%d tokens issued, and the API got:\n%s", issued, strings.Join(got, "\n"))
	}
	known, err := a.source.Known(a.agent, nil)
	if err != nil || !slices.ContainsFunc(known, func(s credential.Secret) bool { return s.Reveal() == "issued-token-1" }) {
		t.Errorf("the token is not among the %d values to redact (%v)", len(known), err)
	}
	// Other scopes need another token. A token that is about to expire is replaced.
	lifetime, scope = 30, "other"
	a.agent.Slots[0].Scopes = []string{scope}
	for want := 2; want <= 3; want++ {
		if _, err := a.call(t, `{}`); err != nil || issued != want {
			t.Fatalf("%d tokens were issued (%v), want %d", issued, err, want)
		}
	}
}

func TestServiceAccountRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*account)
		answer http.HandlerFunc
		code   call.Code
		text   string
	}{
		{"the token server is outside the audience", func(a *account) { a.agent.Slots[0].Hosts = []string{"api.example.com"} }, nil, call.HostNotAllowed, "oauth2.example.com"},
		{"not a key", func(a *account) {
			a.o.Credentials = token(`{"type": "authorized_user", "refresh_token": "` + canary + `"}`)
		}, nil, call.CredentialMissing, "not the key of a service account"},
		{"an invalid private key", func(a *account) {
			a.o.Credentials = token(`{"type": "service_account", "client_email": "a@b", "private_key": "` + canary + `", "token_uri": "https://oauth2.example.com/"}`)
		}, nil, call.CredentialMissing, "cannot be exchanged"},
		{"a refusal", nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error": "invalid_scope", "error_description": "`+canary+`"}`)
		}, call.CredentialMissing, "400 Bad Request (invalid_scope)"},
		{"a redirect", nil, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://api.example.com/", http.StatusTemporaryRedirect)
		}, call.CredentialMissing, "307 Temporary Redirect"},
		{"no token", nil, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) }, call.CredentialMissing, "no bearer token"},
		{"another type of token", nil, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"access_token": "`+canary+`", "token_type": "mac"}`)
		}, call.CredentialMissing, "no bearer token"},
		{"a lost answer", nil, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, call.ServerUnavailable, "closed the connection"},
		{"too long", nil, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"access_token": "%s"}`, strings.Repeat("x", 2<<20))
		}, call.CredentialMissing, "cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAccount(t, tt.answer)
			if tt.change != nil {
				tt.change(a)
			}
			_, err := a.call(t, `{}`)
			if r := wantCode(t, err, tt.code, call.NoEffect); !strings.Contains(r.Message, tt.text) || !r.Unsent {
				t.Errorf("refused with %q (unsent %t), want %q", r.Message, r.Unsent, tt.text)
			}
			if got := a.requests(); len(got) > 0 {
				t.Errorf("the API got %q", got)
			}
		})
	}
}

// TestOptionalCredential checks that a request is sent without an optional credential that is not set.
func TestOptionalCredential(t *testing.T) {
	for _, headers := range []map[string]string{nil, {"X-Key": "{credential}", "X-Other": "yes"}} {
		r := newRig(t, agent.HTTP{AuthRef: "token", Headers: headers}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
		r.agent.Slots[0].Required = false
		r.o.Credentials = token("")
		_, err := r.call(t, `{}`)
		if got := strings.Join(r.requests(), "\n"); err != nil || len(r.requests()) != 1 || strings.Contains(got, "Authorization") ||
			strings.Contains(got, "X-Key") || strings.Contains(got, "X-Other") != (headers != nil) {
			t.Errorf("headers %v: error %v, and the server got %q", headers, err, got)
		}
	}
}

// TestWholeJSON checks that a JSON secret is not sent if no header names a field. The key of a service account is not
// sent either, whatever the type of its slot.
func TestWholeJSON(t *testing.T) {
	for _, tt := range []struct {
		kind, value string
		headers     map[string]string
	}{
		{"json", `{"key": "` + canary + `"}`, nil},
		{"json", `{"key": "` + canary + `"}`, map[string]string{"X-Key": "{credential}"}},
		{"secret", `{"type": "service_account", "private_key": "` + canary + `"}`, nil},
	} {
		r := newRig(t, agent.HTTP{AuthRef: "token", Headers: tt.headers}, func(http.ResponseWriter, *http.Request) {})
		r.agent.Slots[0].Type = tt.kind
		r.o.Credentials = token(tt.value)
		_, err := r.call(t, `{}`)
		if wantCode(t, err, call.CredentialMissing, call.NoEffect); len(r.requests()) > 0 {
			t.Errorf("the server got %q", r.requests())
		}
	}
}
