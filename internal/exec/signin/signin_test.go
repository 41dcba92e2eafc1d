package signin

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

func TestSignIn(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.signIn(k)
	page, form := w.pages[0], w.forms[0]
	if page.Get("code_challenge_method") != "S256" || len(page.Get("code_challenge")) != 43 {
		t.Errorf("the request to the sign-in page has no PKCE: %v", page)
	}
	if page.Get("resource") != w.endpoint() || form.Get("resource") != w.endpoint() {
		t.Errorf("the resource is %q on the page and %q in the token request", page.Get("resource"), form.Get("resource"))
	}
	if got := page.Get("scope"); got != "read offline_access" {
		t.Errorf("the scope is %q", got)
	}
	// A session without a browser uses the stored sign-in.
	if status, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint()); err != nil || status != 200 {
		t.Errorf("a call with the stored sign-in returned status %d, %v", status, err)
	}
	if len(w.pages) != 1 {
		t.Errorf("the page was shown %d times", len(w.pages))
	}
	all, err := k.List()
	if err != nil || len(all) != 1 || all[0].Principal != "ada@local" || !all[0].Renewable || all[0].Resource != w.endpoint() {
		t.Errorf("List = %+v, %v", all, err)
	}
}

// Without a browser, a call is refused with the command that signs in.
func TestNeedsSignIn(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	s := k.Session(w.target(), nil)
	_, err := request(t.Context(), s, w.endpoint())
	wantRefusal(t, err, "server remote needs a sign-in", "ambit login notes remote")
	if !s.Missing() {
		t.Error("Missing returned false before the sign-in")
	}
	w.signIn(k)
	if s.Missing() {
		t.Error("Missing returned true after the sign-in")
	}
	if found, err := k.SignOut(t.Context(), new(w.target())); !found || err != nil {
		t.Fatalf("SignOut = %t, %v", found, err)
	}
	if len(w.revoked) != 2 {
		t.Errorf("%d tokens were revoked, want 2", len(w.revoked))
	}
	_, err = request(t.Context(), s, w.endpoint())
	wantRefusal(t, err, "server remote needs a sign-in", "ambit login notes remote")
}

func wantRefusal(t *testing.T, err error, message, hint string) {
	t.Helper()
	r, ok := err.(*call.Refusal)
	if !ok || !strings.Contains(r.Message, message) || !strings.Contains(r.Hint, hint) {
		t.Errorf("the error is %v (%+v), want a refusal with %q and the hint %q", err, r, message, hint)
	}
}

// The status of a sign-in is known without a request: none, stored, or ended.
func TestStatus(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	target := new(w.target())
	if found, ended := k.Status(target); found || ended != nil {
		t.Errorf("without a sign-in: %t, %v", found, ended)
	}
	w.signIn(k)
	if found, ended := k.Status(target); !found || ended != nil {
		t.Errorf("with a sign-in: %t, %v", found, ended)
	}
	g := stored(t, k, w)
	later := time.Now().Add(2 * time.Hour)
	k.now = func() time.Time { return later }
	if _, ended := k.Status(target); ended != nil {
		t.Errorf("an expired token that can be renewed has the status %v", ended)
	}
	g.Refresh = ""
	if err := k.save(target, g, ""); err != nil {
		t.Fatal(err)
	}
	_, ended := k.Status(target)
	if ended == nil {
		t.Fatal("an expired token that cannot be renewed is not reported")
	}
	wantRefusal(t, ended, "no longer valid (ambit login notes remote)", "ambit login notes remote")
}

// A new sign-in revokes the tokens that it replaces, and no others.
func TestReplacedTokensAreRevoked(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.signIn(k)
	old := stored(t, k, w)
	if len(w.revoked) != 0 {
		t.Errorf("the first sign-in revoked %d tokens", len(w.revoked))
	}
	w.signIn(k)
	if want := []string{old.Refresh, old.Access}; !slices.Equal(w.revoked, want) {
		t.Errorf("%d tokens were revoked, want the two old ones", len(w.revoked))
	}
	if status, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint()); err != nil || status != 200 {
		t.Errorf("a call with the new sign-in returned status %d, %v", status, err)
	}
}

// If many calls find an expired token, they renew it once, because each renewal uses up its refresh token.
func TestRenew(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.signIn(k)
	old := stored(t, k, w)
	later := time.Now().Add(2 * time.Hour)
	k.now = func() time.Time { return later }
	w.set(func(w *world) { w.life = 24 * 3600 })
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if status, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint()); err != nil || status != 200 {
				t.Errorf("a call with an expired token returned status %d, %v", status, err)
			}
		})
	}
	calls.Wait()
	now := stored(t, k, w)
	if len(w.forms) != 2 || now.Access == old.Access || now.Refresh == old.Refresh {
		t.Errorf("%d token requests; the tokens changed: %t, %t", len(w.forms), now.Access != old.Access,
			now.Refresh != old.Refresh)
	}
	if got := w.forms[1].Get("resource"); got != w.endpoint() {
		t.Errorf("the renewal was for the resource %q", got)
	}
}

func stored(t *testing.T, k *Keeper, w *world) *grant {
	t.Helper()
	g, err := k.load(new(w.target()))
	if err != nil || g.Access == "" {
		t.Fatalf("the sign-in cannot be loaded: %+v, %v", g, err)
	}
	return g
}

// A token that the server no longer accepts is renewed, although it has not expired.
func TestRevokedAccessToken(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.signIn(k)
	w.set(func(w *world) { clear(w.tokens) })
	if status, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint()); err != nil || status != 200 {
		t.Errorf("after the token was revoked, a call returned status %d, %v", status, err)
	}
}

// A refresh token that a thief has already used is rejected. The sign-in then ends, and ambit does not try the token
// again.
func TestStolenRefreshToken(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.signIn(k)
	w.set(func(w *world) { clear(w.tokens); clear(w.refresh) })
	for range 2 {
		_, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint())
		wantRefusal(t, err, "remote", "ambit login notes remote")
	}
	if len(w.forms) != 2 {
		t.Errorf("there were %d token requests, want 2", len(w.forms))
	}
	if all, err := k.List(); err != nil || len(all) != 0 {
		t.Errorf("List = %+v, %v", all, err)
	}
}

// A sign-in is used only by the agent, for the server, host, path and principal for which it was made.
func TestBinding(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.signIn(k)
	other := newWorld(t)
	for name, change := range map[string]func(*Target){
		"another agent":              func(t *Target) { t.Agent = "thief" },
		"another agent of this name": func(t *Target) { t.ID = "thief" },
		"another server":             func(t *Target) { t.Server = "thief" },
		"another host":               func(t *Target) { t.Endpoint = other.endpoint() },
		"another path":               func(t *Target) { t.Endpoint = strings.TrimSuffix(t.Endpoint, "/mcp") + "/mcp-thief" },
		"another principal":          func(t *Target) { t.Principal = "eve@local" },
		"an agent without a name":    func(t *Target) { t.Agent = "" },
	} {
		t.Run(name, func(t *testing.T) {
			target := w.target()
			change(&target)
			h := http.Header{}
			if token, err := k.Session(target, nil).Header(t.Context(), h); token != "" || err != nil || len(h) > 0 {
				t.Errorf("the request got the headers %v, %v", h, err)
			}
		})
	}
}

// A sign-in that was moved to another principal in the vault is not used.
func TestMovedSignIn(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.signIn(k)
	thief := w.target()
	thief.Principal = "eve@local"
	s, _, err := k.vault.Get("notes", new(w.target()).ref())
	if err == nil {
		err = k.vault.Set("notes", thief.ref(), s)
	}
	if err != nil {
		t.Fatal(err)
	}
	if token, err := k.Session(thief, nil).Header(t.Context(), http.Header{}); token != "" || err != nil {
		t.Errorf("the token of another principal was used: %v", err)
	}
}

func TestStepUp(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.signIn(k)
	w.set(func(w *world) { w.needs = "write" })
	_, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint())
	wantRefusal(t, err, `needs additional scopes: "write"`, "ambit login --scope write notes remote")
	if status, err := request(t.Context(), k.Session(w.target(), person(), "write"), w.endpoint()); err != nil || status != 200 {
		t.Fatalf("signing in with a further scope returned status %d, %v", status, err)
	}
	if got := strings.Fields(w.pages[len(w.pages)-1].Get("scope")); !slices.Equal(got, []string{"read", "offline_access", "write"}) {
		t.Errorf("the scopes are %v", got)
	}
	if w.clients != 1 {
		t.Errorf("%d clients were registered, want 1", w.clients)
	}
}

// A server that asks for further scopes again and again cannot show an unlimited number of pages.
func TestStepUpLimit(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	s := k.Session(w.target(), person())
	for i := range 10 {
		w.set(func(w *world) { w.needs = strings.Repeat("x", i+1); clear(w.tokens) })
		if _, err := request(bounded(t), s, w.endpoint()); err != nil {
			break
		}
	}
	if len(w.pages) > maxSignIns {
		t.Errorf("the person saw %d pages, want at most %d", len(w.pages), maxSignIns)
	}
}

// If a server asks again for a scope that was already requested, the person is not asked again.
func TestSameScopeAgain(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.signIn(k)
	w.set(func(w *world) {
		w.needs = "read"
		for token, of := range w.tokens {
			of.scope = ""
			w.tokens[token] = of
		}
	})
	_, err := request(bounded(t), k.Session(w.target(), nil), w.endpoint())
	wantRefusal(t, err, "already requested", "ambit login")
}
