package login

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// provider is a fake sign-in provider. It accepts each refresh token once and counts the renewals.
type provider struct {
	*httptest.Server
	mu      sync.Mutex
	renewed int
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q,"device_authorization_endpoint":%q,"jwks_uri":%q}`,
			p.URL, p.URL+"/auth", p.URL+"/token", p.URL+"/device", p.URL+"/jwks")
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if r.FormValue("refresh_token") != fmt.Sprintf("refresh-%d", p.renewed) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_grant"}`)
			return
		}
		p.renewed++
		fmt.Fprintf(w, `{"access_token":"fresh-%d","token_type":"Bearer","refresh_token":"refresh-%d","expires_in":3600}`, p.renewed, p.renewed)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func newKeeper(t *testing.T) *Keeper {
	t.Helper()
	t.Setenv("AMBIT_HOME", t.TempDir()) // so that the system's keyring is not used
	h, err := home.Find()
	if err != nil {
		t.Fatal(err)
	}
	return New(h, credential.Open(h))
}

func signedIn(t *testing.T, k *Keeper, issuer, token string, expires time.Time, hosts ...string) {
	t.Helper()
	l, err := identity.OpenLogin(fmt.Sprintf(`{"issuer":%q,"client_id":"ambit","expires":%q,"access_token":%q,"refresh_token":"refresh-0"}`,
		issuer, expires.Format(time.RFC3339), token))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Keep(l, hosts); err != nil {
		t.Fatal(err)
	}
}

// Only the newest maxGiven tokens are remembered.
func TestGivenIsBounded(t *testing.T) {
	k := newKeeper(t)
	for i := range maxGiven + 10 {
		k.give(fmt.Sprint("canary-", i))
	}
	got := k.Given()
	if len(got) != maxGiven || got[0] != "canary-10" || got[len(got)-1] != fmt.Sprint("canary-", maxGiven+9) {
		t.Errorf("%d tokens are remembered, starting with %q", len(got), got[0])
	}
}

// A token is sent to its host only, and only over an encrypted connection.
func TestTokenGoesToItsHost(t *testing.T) {
	k := newKeeper(t)
	signedIn(t, k, "https://login.example.com", "canary-token", time.Now().Add(time.Hour), "agents.example.com", "127.0.0.1:80", "[::1]:8443")
	for _, address := range []string{"https://agents.example.com/mcp/x", "https://AGENTS.example.com.:8443/", "http://127.0.0.1:80/mcp", "http://127.0.0.1/", "https://127.0.0.1:80/", "https://[::1]:8443"} {
		if token, found, err := k.Token(t.Context(), address); token != "canary-token" || !found || err != nil {
			t.Errorf("%s: %t, %v", address, found, err)
		}
	}
	for _, address := range []string{
		"http://agents.example.com/", "https://x.agents.example.com/", "https://example.com/", "https://login.example.com/", "https://agents.example.com.evil.test/",
		"https://agents.example.com@evil.test/", "https://me@agents.example.com/", "wss://agents.example.com/", "http://localhost/", "http://[::1]/", "https://127.0.0.2/", "https://%zz/", "",
		"http://127.0.0.1:6666/", "https://127.0.0.1/", "http://[::1]:80/", "http://127.0.0.1:80.evil.test/", "http://127.0.0.1:80@evil.test/", "http://localhost:80/",
	} {
		if token, found, err := k.Token(t.Context(), address); token != "" || found || err != nil {
			t.Errorf("%s got a token or an error: %t, %v", address, found, err)
		}
	}
	if got := k.Given(); !slices.Equal(got, []string{"canary-token"}) {
		t.Errorf("%d tokens were issued, want 1", len(got))
	}
	// If two sign-ins cover one host, it is ambiguous which of them Token should use.
	signedIn(t, k, "https://other.example.com", "canary-other", time.Now().Add(time.Hour), "agents.example.com")
	_, found, err := k.Token(t.Context(), "https://agents.example.com/")
	if several, ok := errors.AsType[*SeveralError](err); !ok || found || len(several.Where) != 2 {
		t.Errorf("with two sign-ins for one host, Token returned %v", err)
	}
	if _, _, err := k.Kept(""); err == nil || err.Error() != `you are signed in at several providers: login.example.com and other.example.com` {
		t.Errorf("got %v", err)
	}
}

// A sign-in for a loopback host without a port is never used.
func TestLoopbackWithoutPort(t *testing.T) {
	k := newKeeper(t)
	signedIn(t, k, "https://login.example.com", "canary-token", time.Now().Add(time.Hour), "localhost", "::1", "agents.example.com")
	for _, address := range []string{"http://localhost/", "http://LOCALHOST:6666/", "https://[::1]:8443/"} {
		token, found, err := k.Token(t.Context(), address)
		if found || token != "" || err != nil {
			t.Errorf("%s: %t, %v", address, found, err)
		}
	}
	if len(k.Given()) > 0 {
		t.Error("a token was issued")
	}
	if _, found, err := k.Token(t.Context(), "https://agents.example.com/"); !found || err != nil {
		t.Errorf("a token for the other host of the sign-in: %t, %v", found, err)
	}
	if _, found, err := k.Token(t.Context(), "http://127.0.0.1:6666/"); found || err != nil {
		t.Errorf("a token for a host that the sign-in does not name: %t, %v", found, err)
	}
	signedIn(t, k, "https://other.example.com", "canary-other", time.Now().Add(time.Hour), "localhost:6666")
	if token, found, err := k.Token(t.Context(), "http://localhost:6666/"); token != "canary-other" || !found || err != nil {
		t.Errorf("with the port: %t, %v", found, err)
	}
}

// If several processes need an expired token, only one of them renews it. The hosts of the sign-in stay the same.
func TestTokenIsRenewedOnce(t *testing.T) {
	p := newProvider(t)
	k := newKeeper(t)
	signedIn(t, k, p.URL, "ended", time.Now().Add(-time.Hour), "agents.example.com")
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			other := New(k.home, credential.Open(k.home)) // a keeper as in another process
			if token, found, err := other.Token(t.Context(), "https://agents.example.com/"); token != "fresh-1" || !found || err != nil {
				t.Errorf("got %q, %t, %v", token, found, err)
			}
		})
	}
	wait.Wait()
	if _, hosts, err := k.Kept(p.URL); err != nil || !slices.Equal(hosts, []string{"agents.example.com"}) || p.renewed != 1 {
		t.Errorf("the sign-in has the hosts %q and was renewed %d times, %v", hosts, p.renewed, err)
	}
	// If the provider refuses to renew the token, the sign-in has ended.
	signedIn(t, k, p.URL, "ended", time.Now().Add(-time.Hour), "agents.example.com")
	if _, _, err := k.Token(t.Context(), "https://agents.example.com/"); !errors.Is(err, identity.ErrSignedOut) {
		t.Errorf("got %v", err)
	}
}

// If a process is suspended while it renews a token, other processes wait only until their own
// deadlines.
func TestStoppedRenewal(t *testing.T) {
	p := newProvider(t)
	k := newKeeper(t)
	signedIn(t, k, p.URL, "ended", time.Now().Add(-time.Hour), "agents.example.com")
	unlock, err := k.lock(t.Context()) // hold the lock as the suspended process would
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if token, found, err := k.Token(ctx, "https://agents.example.com/"); token != "" || found || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %q, %t, %v", token, found, err)
	}
	unlock()
	if token, found, err := k.Token(t.Context(), "https://agents.example.com/"); token != "fresh-1" || !found || err != nil {
		t.Errorf("got %q, %t, %v", token, found, err)
	}
}

func TestNoSignIn(t *testing.T) {
	k := newKeeper(t)
	for issuer, want := range map[string]string{"": "you are not signed in", "https://login.example.com": "you are not signed in at login.example.com"} {
		_, err := k.Fresh(t.Context(), issuer)
		if _, ok := errors.AsType[*NoneError](err); !ok || err.Error() != want {
			t.Errorf("%q: %v", issuer, err)
		}
	}
	signedIn(t, k, "https://login.example.com", "canary", time.Now().Add(time.Hour))
	if _, found, err := k.Token(t.Context(), "https://login.example.com/"); found || err != nil {
		t.Errorf("a sign-in without hosts: %t, %v", found, err)
	}
	if err := k.Forget("https://login.example.com"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.Kept(""); err == nil {
		t.Error("the sign-in is still stored after Forget")
	}
}

// The absence of sign-ins is cached briefly, but a new sign-in in this process is used immediately.
func TestSignInCountsAtOnce(t *testing.T) {
	k := newKeeper(t)
	now := time.Now()
	k.now = func() time.Time { return now }
	const address = "https://agents.example.com/"
	token := func() bool {
		_, found, err := k.Token(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if token() {
		t.Fatal("Token returned a token without a sign-in")
	}
	signedIn(t, k, "https://login.example.com", "canary-token", now.Add(time.Hour), "agents.example.com")
	if !token() {
		t.Error("a sign-in in this process is not used immediately")
	}
	k.empty.Store(now.UnixNano()) // store the sign-in as another process would after the vault was read
	if now = now.Add(emptyFor); !token() {
		t.Error("a sign-in in another process is not used after the cache has expired")
	}
}

// If the vault cannot be used, every method returns a VaultError.
func TestBrokenVault(t *testing.T) {
	k := newKeeper(t)
	k.vault = broken{}
	errs := map[string]error{"forget": k.Forget("https://login.example.com")}
	_, _, errs["kept"] = k.Kept("https://login.example.com")
	_, _, errs["only"] = k.Kept("")
	_, _, errs["token"] = k.Token(t.Context(), "https://agents.example.com/")
	_, errs["device"] = k.Device(context.Background(), identity.LoginConfig{Issuer: "https://login.example.com", ClientID: "ambit"})
	for what, err := range errs {
		if _, ok := errors.AsType[*VaultError](err); !ok || !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Get(string, string) (credential.Secret, bool, error) {
	return credential.Secret{}, false, errBroken
}
func (broken) Set(string, string, credential.Secret) error { return errBroken }
func (broken) List() ([]credential.Entry, error)           { return nil, errBroken }
func (broken) Remove(string, string) (bool, error)         { return false, errBroken }
