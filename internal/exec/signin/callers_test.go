package signin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
)

// newReplicas returns the keepers of two gateways that share a store but no home.
func newReplicas(t *testing.T) (a, b *Keeper) {
	t.Helper()
	h := home.At(t.TempDir())
	t.Setenv("AMBIT_HOME", h.Dir()) // keeps the vault's key in the folder
	s, err := store.Open(t.Context(), h, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	replica := func(h home.Home) *Keeper {
		c := egress.New(egress.Switches{LoopbackHTTP: true})
		t.Cleanup(c.Close)
		k := New(h, credential.Open(h), c)
		k.ServeCallers(s.DB, s.Keys)
		k.SetAddress("https://ambit.example.com")
		return k
	}
	return replica(h), replica(home.At(t.TempDir()))
}

// caller is a target for one of the callers of a daemon.
func (w *world) caller(k *Keeper, principal string) Target { return k.For(w.target(), principal) }

const backAt = "https://ambit.example.com/back"

// visitPage opens the page of a sign-in and returns what the page sends back.
func visitPage(t *testing.T, page string) url.Values {
	t.Helper()
	var back url.Values
	browser := &http.Client{CheckRedirect: func(req *http.Request, _ []*http.Request) error {
		back = req.URL.Query()
		return http.ErrUseLastResponse
	}}
	defer browser.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := browser.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return back
}

// connect signs a caller in.
func (w *world) connect(k *Keeper, principal string) {
	w.t.Helper()
	begun, err := k.Begin(w.t.Context(), "session", w.caller(k, principal), backAt)
	if err == nil {
		_, err = k.Complete(w.t.Context(), principal, "session", visitPage(w.t, begun.Page))
	}
	if err != nil {
		w.t.Fatalf("%s signs in: %v", principal, err)
	}
}

// answered sends a request of a caller and returns the status.
func (w *world) answered(k *Keeper, principal string) (status int, err error) {
	return request(w.t.Context(), k.Session(w.caller(k, principal), nil), w.endpoint())
}

// A caller signs in at one replica, completes the sign-in at another one, and is signed in at both. Other callers and the
// owner are not.
func TestCallerSignsIn(t *testing.T) {
	w := newWorld(t)
	a, b := newReplicas(t)
	begun, err := a.Begin(t.Context(), "session", w.caller(a, "bob@example.com"), backAt, "notes:write")
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.Complete(t.Context(), "bob@example.com", "session", visitPage(t, begun.Page))
	if err != nil || g.Principal != "bob@example.com" || !slices.Contains(g.Scopes, "notes:write") {
		t.Fatalf("Complete = %+v, %v", g, err)
	}
	for _, k := range []*Keeper{a, b} {
		if status, err := w.answered(k, "bob@example.com"); status != http.StatusOK || err != nil {
			t.Errorf("a call of the caller: %d, %v", status, err)
		}
		for _, other := range []string{"eve@example.com", w.target().Principal, ""} {
			if status, err := w.answered(k, other); status == http.StatusOK || refusalOf(err) != call.CredentialMissing {
				t.Errorf("a call of %q: %d, %v", other, status, err)
			}
		}
	}
	if all, err := b.ListFor("bob@example.com"); err != nil || len(all) != 1 || all[0].Host != g.Host {
		t.Errorf("ListFor = %+v, %v", all, err)
	}
	if all, err := b.ListFor("eve@example.com"); err != nil || len(all) != 0 {
		t.Errorf("ListFor another principal = %+v, %v", all, err)
	}
	w.connect(a, "eve@example.com")
	if w.clients != 1 {
		t.Errorf("ambit registered %d clients for two callers", w.clients)
	}
	bob := w.caller(a, "bob@example.com")
	if found, err := a.SignOut(t.Context(), &bob); !found || err != nil {
		t.Errorf("SignOut = %v, %v", found, err)
	}
	status, err := w.answered(b, "bob@example.com")
	if status == http.StatusOK || refusalOf(err) != call.CredentialMissing {
		t.Errorf("a call at the other replica after the sign-out: %d, %v", status, err)
	}
	if r, _ := errors.AsType[*call.Refusal](err); r == nil || !strings.Contains(r.Hint, "ambit login --url https://ambit.example.com") {
		t.Errorf("the refusal does not say how to sign in: %+v", r)
	}
	if status, err := w.answered(b, "eve@example.com"); status != http.StatusOK || err != nil {
		t.Errorf("a call of another caller: %d, %v", status, err)
	}
}

func refusalOf(err error) call.Code {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r.Code
	}
	return ""
}

// Only the session that began a sign-in completes it, and only once. Wrong attempts do not end it.
func TestOnlyTheStarterCompletes(t *testing.T) {
	w := newWorld(t)
	k, _ := newReplicas(t)
	begun, err := k.Begin(t.Context(), "of-bob", w.caller(k, "bob@example.com"), backAt)
	if err != nil {
		t.Fatal(err)
	}
	answer := visitPage(t, begun.Page)
	wrong := func(name, principal, session string, answer url.Values) {
		t.Helper()
		if g, err := k.Complete(t.Context(), principal, session, answer); err == nil {
			t.Errorf("%s: Complete = %+v", name, g)
		}
	}
	other := url.Values{"code": answer["code"], "iss": answer["iss"], "state": {"x"}}
	wrong("another principal", "eve@example.com", "of-bob", answer)
	wrong("another session", "bob@example.com", "of-eve", answer)
	wrong("another state", "bob@example.com", "of-bob", other)
	wrong("no state", "bob@example.com", "of-bob", url.Values{"code": answer["code"]})
	if _, err := k.Complete(t.Context(), "bob@example.com", "of-bob", answer); err != nil {
		t.Errorf("the starter: %v", err)
	}
	wrong("a second time", "bob@example.com", "of-bob", answer)
}

// A code of someone else's sign-in is worthless in one's own (code injection), and so is one of another authorization
// server (mix-up).
func TestForeignCode(t *testing.T) {
	w := newWorld(t)
	k, _ := newReplicas(t)
	of := func(principal string) url.Values {
		t.Helper()
		begun, err := k.Begin(t.Context(), principal, w.caller(k, principal), backAt)
		if err != nil {
			t.Fatal(err)
		}
		return visitPage(t, begun.Page)
	}
	bob, eve := of("bob@example.com"), of("eve@example.com")
	eve.Set("code", bob.Get("code"))
	if g, err := k.Complete(t.Context(), "eve@example.com", "eve@example.com", eve); err == nil {
		t.Errorf("a stolen code was accepted: %+v", g)
	}
	mixed := of("eve@example.com")
	mixed.Set("iss", "https://login.bank.example")
	if g, err := k.Complete(t.Context(), "eve@example.com", "eve@example.com", mixed); err == nil {
		t.Errorf("an answer of another authorization server was accepted: %+v", g)
	}
	if all, err := k.ListFor("eve@example.com"); err != nil || len(all) != 0 {
		t.Errorf("sign-ins = %+v, %v", all, err)
	}
}

// A row that is copied to another principal, agent or server is useless, even for someone who can write to the store.
func TestCopiedRow(t *testing.T) {
	w := newWorld(t)
	k, _ := newReplicas(t)
	w.connect(k, "bob@example.com")
	for name, change := range map[string]func(*Target){
		"principal": func(t *Target) { t.Principal = "eve@example.com" },
		"agent":     func(t *Target) { t.Agent = "other" },
		"server":    func(t *Target) { t.Server = "other" },
	} {
		to := w.caller(k, "bob@example.com")
		change(&to)
		err := k.shared.db.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`INSERT INTO signins (agent, server, principal, sealed)
				SELECT $1, $2, $3, sealed FROM signins WHERE principal = 'bob@example.com' AND agent = 'notes' AND server = 'remote'`,
				to.Agent, to.Server, to.Principal)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if g, err := k.load(&to); err == nil && g.Access != "" {
			t.Errorf("a row was used after a change of the %s", name)
		}
	}
}

// A token is used only for the agent and the host that it was issued for.
func TestCallerBinding(t *testing.T) {
	w := newWorld(t)
	k, _ := newReplicas(t)
	w.connect(k, "bob@example.com")
	for name, change := range map[string]func(*Target){
		"id of the agent": func(t *Target) { t.ID = "other-id" },
		"host":            func(t *Target) { t.Endpoint = "https://notes.example.com/mcp" },
		"resource":        func(t *Target) { t.Endpoint = strings.TrimSuffix(t.Endpoint, "/mcp") + "/other" },
	} {
		to := w.caller(k, "bob@example.com")
		change(&to)
		if g, err := k.load(&to); err != nil || g.Access != "" {
			t.Errorf("the token is used after a change of the %s, error %v", name, err)
		}
	}
}

// If calls at two replicas find an expired token at the same time, exactly one of them uses the refresh token.
func TestRotationRace(t *testing.T) {
	w := newWorld(t)
	a, b := newReplicas(t)
	w.set(func(w *world) { w.life = 1 }) // each token is renewed at its first use
	w.connect(a, "bob@example.com")
	w.set(func(w *world) { w.life, w.forms = 3600, nil })
	var calls sync.WaitGroup
	for i := range 16 {
		k := []*Keeper{a, b}[i%2]
		calls.Go(func() {
			if status, err := w.answered(k, "bob@example.com"); status != http.StatusOK || err != nil {
				t.Errorf("a call: %d, %v", status, err)
			}
		})
	}
	calls.Wait()
	if n := len(w.forms); n != 1 {
		t.Errorf("%d token requests, want 1", n)
	}
}

// A principal can begin only so many sign-ins, and those of others do not count.
func TestManyBegun(t *testing.T) {
	w := newWorld(t)
	k, _ := newReplicas(t)
	begin := func(ctx context.Context, principal string) error {
		_, err := k.Begin(ctx, "session", w.caller(k, principal), backAt)
		return err
	}
	for range maxBegun {
		if err := begin(t.Context(), "bob@example.com"); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin(t.Context(), "bob@example.com"); refusalOf(err) != call.RateLimited {
		t.Errorf("one too many: %v", err)
	}
	if err := begin(t.Context(), "eve@example.com"); err != nil {
		t.Errorf("another principal: %v", err)
	}
}

// Sign-ins that failed count too, because each of them may have registered a client. Completed ones do not.
func TestFailedSignInsCount(t *testing.T) {
	w := newWorld(t)
	k, _ := newReplicas(t)
	const bob = "bob@example.com"
	w.connect(k, bob)
	for i := range maxBegun {
		begun, err := k.Begin(t.Context(), "session", w.caller(k, bob), backAt)
		if err != nil {
			t.Fatalf("sign-in %d: %v", i, err)
		}
		refused := url.Values{"state": {begun.State}, "iss": {w.issuer.URL}, "error": {"access_denied"}}
		if g, err := k.Complete(t.Context(), bob, "session", refused); err == nil {
			t.Fatalf("Complete = %+v", g)
		}
	}
	if _, err := k.Begin(t.Context(), "session", w.caller(k, bob), backAt); refusalOf(err) != call.RateLimited {
		t.Errorf("one too many: %v", err)
	}
	k.now = func() time.Time { return time.Now().Add(visitTime + time.Second) }
	if _, err := k.Begin(t.Context(), "session", w.caller(k, bob), backAt); err != nil {
		t.Errorf("after %v: %v", visitTime, err)
	}
}

// The limit holds if all sign-ins begin at the same time.
func TestManyBegunAtOnce(t *testing.T) {
	w := newWorld(t)
	a, b := newReplicas(t)
	w.connect(a, "bob@example.com") // registers the client
	var begins sync.WaitGroup
	var begun atomic.Int64
	for i := range 2 * maxBegun {
		k := []*Keeper{a, b}[i%2]
		begins.Go(func() {
			switch _, err := k.Begin(t.Context(), "session", w.caller(k, "bob@example.com"), backAt); {
			case err == nil:
				begun.Add(1)
			case refusalOf(err) != call.RateLimited:
				t.Errorf("Begin: %v", err)
			}
		})
	}
	begins.Wait()
	if n := begun.Load(); n != maxBegun {
		t.Errorf("%d sign-ins have begun, want %d", n, maxBegun)
	}
}

// afterToken calls a function after each answer of a token endpoint.
type afterToken struct {
	next http.RoundTripper
	do   func()
}

func (a afterToken) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(req)
	if strings.HasSuffix(req.URL.Path, "/token") {
		a.do()
	}
	return resp, err
}

// A gateway that was suspended while it renewed a token does not bring back a sign-in that has ended in the meantime.
func TestSuspendedGateway(t *testing.T) {
	w := newWorld(t)
	a, b := newReplicas(t)
	w.set(func(w *world) { w.life = 1 })
	w.connect(a, "bob@example.com")
	bob := w.caller(a, "bob@example.com")
	a.client.Transport = afterToken{a.client.Transport, func() {
		err := a.shared.write(`UPDATE signin_claims SET until = 0, claim = 'dead x'`) // the gateway lost its connection
		if err == nil {
			_, err = b.SignOut(t.Context(), &bob)
		}
		if err != nil {
			t.Errorf("signing out at the other gateway: %v", err)
		}
	}}
	if status, err := w.answered(a, "bob@example.com"); err == nil {
		t.Errorf("the call was answered with status %d", status)
	}
	if all, err := b.ListFor("bob@example.com"); err != nil || len(all) != 0 {
		t.Errorf("after the sign-out, the sign-ins are %+v, %v", all, err)
	}
}

// A gateway whose clock is fast does not use a refresh token that another gateway is using.
func TestClocksDiffer(t *testing.T) {
	w := newWorld(t)
	a, b := newReplicas(t)
	b.shared.now = func() time.Time { return time.Now().Add(5 * time.Minute) }
	bob := w.caller(a, "bob@example.com")
	_, unlock, err := a.lock(t.Context(), &bob)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, _, err := b.lock(ctx, &bob); err == nil {
		t.Error("two gateways change the sign-in at the same time")
	}
	unlock()
	if _, unlock, err = b.lock(t.Context(), &bob); err != nil {
		t.Fatal(err)
	}
	defer unlock()
	// A process that has died keeps its claim only until its time is over.
	if err := b.shared.write(`UPDATE signin_claims SET claim = 'dead x'`); err != nil {
		t.Fatal(err)
	}
	a.shared.now = func() time.Time { return time.Now().Add(5*time.Minute + 2*claimTime) }
	_, again, err := a.lock(t.Context(), &bob)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// With identity = "owner", callers need no sign-in, and the setting is needed for that.
func TestIdentity(t *testing.T) {
	w := newWorld(t)
	k, _ := newReplicas(t)
	for identity, want := range map[string]bool{"": true, callerIdentity: true, ownerIdentity: false} {
		at, err := url.Parse(w.endpoint())
		if err != nil {
			t.Fatal(err)
		}
		k.upstreams = func() (map[string]Upstream, error) { return map[string]Upstream{at.Host: {Identity: identity}}, nil }
		if byCaller, err := k.ByCaller(w.endpoint()); err != nil || byCaller != want {
			t.Errorf("identity %q: ByCaller = %v, %v", identity, byCaller, err)
		}
		if _, err := k.Begin(t.Context(), "session", w.caller(k, "bob@example.com"), backAt); (err == nil) != want {
			t.Errorf("identity %q: Begin: %v", identity, err)
		}
	}
}

// The session of a sign-in sends no request after the sign-in has ended, or was replaced by another one. The server might
// still know the session by its id, and act for the person without a token.
func TestSessionEndsWithItsSignIn(t *testing.T) {
	w := newWorld(t)
	k, _ := newReplicas(t)
	w.connect(k, "bob@example.com")
	bob := w.caller(k, "bob@example.com")
	s, id, err := k.CallerSession(bob)
	if err != nil || id == "" {
		t.Fatalf("CallerSession = %q, %v", id, err)
	}
	if token, err := s.Header(t.Context(), http.Header{}); err != nil || token == "" {
		t.Fatalf("Header = %q, %v", token, err)
	}
	if _, err := k.SignOut(t.Context(), &bob); err != nil {
		t.Log(err)
	}
	if token, err := s.Header(t.Context(), http.Header{}); refusalOf(err) != call.CredentialMissing {
		t.Errorf("after the sign-out, Header = %q, %v", token, err)
	}
	w.connect(k, "bob@example.com")
	if token, err := s.Header(t.Context(), http.Header{}); refusalOf(err) != call.CredentialMissing {
		t.Errorf("after another sign-in, Header = %q, %v", token, err)
	}
	if _, other, err := k.CallerSession(bob); err != nil || other == id {
		t.Errorf("the other sign-in has the id %q, error %v", other, err)
	}
}
