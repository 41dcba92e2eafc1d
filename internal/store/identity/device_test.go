package identity

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// provider is an http.RoundTripper that plays an OpenID provider. The tests of package cli use a real provider.
type provider struct {
	t       *testing.T
	answers []string // responses of the token endpoint: an error code or "token"; the last one repeats
	asked   []time.Duration
	begun   time.Time
	forms   []url.Values
	change  map[string]any // changes to the discovery document
	device  map[string]any // the response of the device endpoint
}

const testIssuer = "https://login.example.com"

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, doc any) (*http.Response, error) {
		text, err := json.Marshal(doc)
		if err != nil {
			p.t.Fatal(err)
		}
		return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text))), Request: r}, nil
	}
	if r.URL.Host != "login.example.com" {
		p.t.Errorf("unexpected request to %s", r.URL)
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		doc := map[string]any{"issuer": testIssuer, "device_authorization_endpoint": testIssuer + "/device", "token_endpoint": testIssuer + "/token", "revocation_endpoint": testIssuer + "/revoke", "jwks_uri": testIssuer + "/keys"}
		for k, v := range p.change {
			doc[k] = v
		}
		return answer(200, doc)
	case "/device":
		return answer(200, p.device)
	case "/token":
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		form, err := url.ParseQuery(string(text))
		if err != nil {
			return nil, err
		}
		p.forms = append(p.forms, form)
		p.asked = append(p.asked, time.Since(p.begun))
		say := p.answers[0]
		if len(p.answers) > 1 {
			p.answers = p.answers[1:]
		}
		switch say {
		case "token":
			return answer(200, map[string]any{"access_token": "canary-access", "token_type": "bearer", "refresh_token": "canary-refresh", "expires_in": 600})
		case "redirect":
			resp, err := answer(307, map[string]any{})
			if err == nil {
				resp.Header.Set("Location", "https://other.example.com/token")
			}
			return resp, err
		case "down":
			return nil, errors.New("no route")
		case "busy":
			return answer(503, map[string]any{"error": "slow_down"})
		case "large":
			return answer(200, map[string]any{"access_token": strings.Repeat("x", maxResponse), "token_type": "bearer"})
		case "nothing":
			return answer(200, map[string]any{"token_type": "bearer"})
		case "forged":
			return answer(200, map[string]any{"access_token": "canary-access", "token_type": "bearer", "id_token": "e30.e30.e30"})
		}
		if id, ok := strings.CutPrefix(say, "id:"); ok {
			return answer(200, map[string]any{"access_token": "canary-access", "token_type": "bearer", "id_token": id})
		}
		return answer(400, map[string]any{"error": say, "error_description": "because \x1b[2J"})
	}
	return answer(404, map[string]any{})
}

func usual() map[string]any {
	return map[string]any{"device_code": "canary-device", "user_code": "ABCD-EFGH", "verification_uri": testIssuer + "/go", "verification_uri_complete": testIssuer + "/go?c=ABCD-EFGH", "expires_in": 55}
}

// open returns a Device that uses p as its provider.
func (p *provider) open() (*Device, error) {
	d := newDevice(LoginConfig{Issuer: testIssuer, ClientID: "ambit", Scopes: []string{"openid"}}, nil, p)
	return d, d.discover(p.t.Context())
}

func TestDeviceWaits(t *testing.T) {
	s := func(n ...int) []time.Duration {
		var all []time.Duration
		for _, n := range n {
			all = append(all, time.Duration(n)*time.Second)
		}
		return all
	}
	tests := []struct {
		name     string
		interval any
		answers  []string
		asked    []time.Duration
		err      error
	}{
		{"first poll", nil, []string{"token"}, s(5), nil},
		{"pending", nil, []string{"authorization_pending", "authorization_pending", "token"}, s(5, 10, 15), nil},
		{"interval set by the provider", 2, []string{"authorization_pending", "token"}, s(2, 4), nil},
		{"slow down", 2, []string{"slow_down", "authorization_pending", "slow_down", "token"}, s(2, 9, 16, 28), nil},
		{"provider temporarily unavailable", 2, []string{"down", "busy", "token"}, s(2, 6, 14), nil},
		{"redirected", 2, []string{"redirect", "token"}, s(2, 6), nil},
		{"denied by the person", nil, []string{"access_denied"}, s(5), ErrDenied},
		{"code expired at the provider", nil, []string{"expired_token"}, s(5), ErrCodeExpired},
		{"code expired by the clock of ambit", 20, []string{"authorization_pending"}, s(20, 40), ErrCodeExpired},
		{"no token", nil, []string{"nothing"}, s(5), ErrToken},
		{"forged id", nil, []string{"forged"}, s(5), ErrToken},
		{"hostile interval", 1e18, []string{"token"}, nil, ErrCodeExpired},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &provider{t: t, answers: tt.answers, begun: time.Now(), device: usual()}
				if tt.interval != nil {
					p.device["interval"] = tt.interval
				}
				d, err := p.open()
				if err != nil {
					t.Fatal(err)
				}
				c, err := d.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				l, err := d.Wait(t.Context(), c)
				if !errors.Is(err, tt.err) || (err == nil) != (l != nil) {
					t.Errorf("got %v", err)
				}
				if !slices.Equal(p.asked, tt.asked) {
					t.Errorf("polled after %v, want %v", p.asked, tt.asked)
				}
				if l != nil && (l.Token() != "canary-access" || !l.Renewable() || !l.Good(time.Now()) || l.Good(time.Now().Add(10*time.Minute))) {
					t.Errorf("got %+v", l)
				}
			})
		})
	}
}

func TestDeviceStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{t: t, answers: []string{"authorization_pending"}, device: usual()}
		d, err := p.open()
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(12*time.Second, cancel)
		if _, err := d.Wait(ctx, c); !errors.Is(err, context.Canceled) || len(p.asked) != 2 {
			t.Errorf("got the error %v after %d polls, want context.Canceled after 2 polls", err, len(p.asked))
		}
	})
}

// Responses of a provider are validated.
func TestDeviceRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change map[string]any
		device map[string]any
		want   error
	}{
		{"no device flow", map[string]any{"device_authorization_endpoint": ""}, nil, ErrNoDevice},
		{"another issuer", map[string]any{"issuer": "https://other.example.com"}, nil, ErrProvider},
		{"token endpoint without https", map[string]any{"token_endpoint": "http://login.example.com/token"}, nil, ErrProvider},
		{"device endpoint without https", map[string]any{"device_authorization_endpoint": "http://127.0.0.1/device"}, nil, ErrProvider},
		{"revocation endpoint without https", map[string]any{"revocation_endpoint": "http://login.example.com/revoke"}, nil, ErrProvider},
		{"no code", nil, map[string]any{"device_code": ""}, ErrProvider},
		{"verification URI is a script", nil, map[string]any{"verification_uri": "javascript:alert(1)"}, ErrProvider},
		{"verification URI without https", nil, map[string]any{"verification_uri": "http://login.example.com/"}, ErrProvider},
		{"code with a terminal escape sequence", nil, map[string]any{"user_code": "A\x1b[2J"}, ErrProvider},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &provider{t: t, change: tt.change, device: usual()}
			for k, v := range tt.device {
				p.device[k] = v
			}
			d, err := p.open()
			if err == nil {
				_, err = d.Begin(t.Context())
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("complete page", func(t *testing.T) {
		p := &provider{t: t, device: usual()}
		p.device["verification_uri_complete"] = "file:///etc/passwd"
		d, err := p.open()
		if err != nil {
			t.Fatal(err)
		}
		if c, err := d.Begin(t.Context()); err != nil || c.CompleteURL != "" {
			t.Errorf("got %+v, %v", c, err)
		}
	})
}

func TestRefresh(t *testing.T) {
	kept := keptLogin{Issuer: testIssuer, ClientID: "ambit", Subject: "ada", Access: "canary-old", Refresh: "canary-before", Resource: "https://ambit.example.com"}
	text, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	l, err := OpenLogin(string(text))
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, answers: []string{"token", "invalid_grant", "down", "server_error"}, device: usual()}
	d, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := d.Refresh(t.Context(), l)
	if err != nil || fresh.Token() != "canary-access" || fresh.refresh() != "canary-refresh" || fresh.Subject != "ada" {
		t.Errorf("got %+v, %v", fresh, err)
	}
	if f := p.forms[0]; f.Get("refresh_token") != "canary-before" || f.Get("client_id") != "ambit" || f.Get("resource") != "https://ambit.example.com" || f.Has("client_secret") {
		t.Error("the refresh request has the wrong form fields")
	}
	if _, err := d.Refresh(t.Context(), l); !errors.Is(err, ErrSignedOut) {
		t.Errorf("refreshing an ended sign-in: got error %v, want ErrSignedOut", err)
	}
	if _, err := d.Refresh(t.Context(), l); !errors.Is(err, ErrProvider) {
		t.Errorf("refreshing while the provider is down: got error %v, want ErrProvider", err)
	}
	_, err = d.Refresh(t.Context(), l)
	if err == nil || strings.Contains(err.Error(), "\x1b") || strings.Contains(err.Error(), "canary") {
		t.Errorf("got %q", err)
	}
	p.answers = []string{"large"}
	if _, err := d.Refresh(t.Context(), l); !errors.Is(err, ErrProvider) {
		t.Errorf("an oversized response: got error %v, want ErrProvider", err)
	}
	i := newIssuer(t)
	d.verifier = oidc.NewVerifier(testIssuer, &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{i.ec.Public()}}, &oidc.Config{ClientID: "ambit", SupportedSigningAlgs: algorithms})
	for subject, want := range map[string]error{"ada": nil, "eve": ErrProvider} {
		p.answers = []string{"id:" + i.token(t, es256, i.claims(map[string]any{"iss": testIssuer, "sub": subject}))}
		if fresh, err := d.Refresh(t.Context(), l); !errors.Is(err, want) || err == nil && fresh.refresh() != "canary-before" {
			t.Errorf("refreshing with an ID token for %s: got error %v, want %v", subject, err, want)
		}
	}
	kept.Refresh = ""
	text, err = json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = OpenLogin(string(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Refresh(t.Context(), l); !errors.Is(err, ErrSignedOut) {
		t.Errorf("refreshing without a refresh token: got error %v, want ErrSignedOut", err)
	}
}

func TestLoginShowsNoToken(t *testing.T) {
	l, err := OpenLogin(`{"issuer":"https://login.example.com","access_token":"canary-a","refresh_token":"canary-r"}`)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(l)
	if err == nil && strings.Contains(string(text), "canary") {
		t.Errorf("JSON shows %s", text)
	}
	if shown := fmt.Sprintf("%v %+v %#v", l, *l, l); strings.Contains(shown, "canary") {
		t.Errorf("printing shows %s", shown)
	}
	if again, err := OpenLogin(l.Reveal()); err != nil || again.Token() != "canary-a" || again.refresh() != "canary-r" {
		t.Errorf("the stored sign-in differs from the original: %v", err)
	}
	for _, bad := range []string{"", "canary", `{"issuer":"x"}`, `{"access_token":"canary"}`} {
		if _, err := OpenLogin(bad); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("OpenLogin(%q) succeeded, or its error quotes a token: %v", bad, err)
		}
	}
}

func TestLoginRef(t *testing.T) {
	for issuer, want := range map[string]string{
		"https://login.example.com": "login:login.example.com", "https://login.example.com/": "login:login.example.com",
		"https://login.example.com/realms/a": "login:login.example.com/realms/a", "http://127.0.0.1:80": "login:127.0.0.1:80",
	} {
		if got := LoginRef(issuer); got != want {
			t.Errorf("LoginRef(%q) = %q, want %q", issuer, got, want)
		}
	}
}

func TestReadLogin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	for text, want := range map[string]string{
		"": "", "[login]\nissuer = \"https://x.example.com\"\nclient_id = \"ambit\"\n": "", "[login]\nclient_secret = \"canary\"\n": "there is no setting client_secret", "[login]\nissuer = [\"canary\"]\n": "wrong type", "[login": "config.toml",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadLogin(file)
		if want == "" && (err != nil || !slices.Equal(c.Scopes, []string{"openid", "offline_access"})) || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("reading %q: got %+v, error %v; want the error %q", text, c, err, want)
		}
	}
}
