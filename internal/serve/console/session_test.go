package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// fakeBackend has one agent with one tool. Calls to the tool wait for approval.
type fakeBackend struct {
	Backend
	Approvals
	Journal
	changed  chan struct{}
	approved chan struct{} // the test closes this channel to approve the waiting call

	mu       sync.Mutex
	spent    map[string]bool
	standing error // the result of Standing for every principal
}

func (b *fakeBackend) setStanding(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.standing = err
}

func (b *fakeBackend) Cards() []Card { return nil }

func (b *fakeBackend) SignIns(string, *identity.Principal) []SignIn { return nil }

func (b *fakeBackend) Agent(context.Context, string) *Agent {
	return &Agent{Card: Card{Name: "alpha"}, Tools: []Tool{{Tool: agent.Tool{Name: "write"}, Served: "write", Callable: true}}}
}

func (b *fakeBackend) Call(ctx context.Context, _ string, c *call.Call) (call.Result, error) {
	<-b.approved
	if err := call.Standing(ctx); err != nil {
		return call.Result{}, err
	}
	return call.Result{Raw: []byte(`{"content":[{"type":"text","text":"for ` + c.Principal + `"}]}`)}, nil
}

func (b *fakeBackend) List(context.Context) ([]*approval.Question, error) { return nil, nil }

func (b *fakeBackend) Waiting(context.Context) ([]*approval.Question, error) { return nil, nil }

func (b *fakeBackend) Address(*http.Request, string) string { return "http://localhost/mcp/alpha" }

func (b *fakeBackend) Show(context.Context, journal.Filter) ([]journal.Entry, error) { return nil, nil }

func (b *fakeBackend) KeyNames(context.Context) (map[string]string, error) { return nil, nil }

func (b *fakeBackend) Ends(context.Context) (journal.Ends, error) {
	return journal.Ends{}, errors.New("there is no journal")
}

func (b *fakeBackend) Spend(_ context.Context, id string, _ time.Time) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.spent[id]
	b.spent[id] = true
	return first, nil
}

func (b *fakeBackend) Spent(_ context.Context, id string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent[id], nil
}

func (b *fakeBackend) Standing(context.Context, *identity.Principal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.standing
}

func (b *fakeBackend) Changed(ctx context.Context) error {
	select {
	case <-b.changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *fakeBackend) Mark(context.Context) string { return time.Now().String() }

// withConsole runs a test of a console with a fake clock.
func withConsole(t *testing.T, test func(t *testing.T, b *fakeBackend, c *Console)) {
	t.Helper()
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBackend{spent: map[string]bool{}, changed: make(chan struct{}), approved: make(chan struct{})}
		c, err := New(Options{
			Context: t.Context(), Backend: b, Approvals: b, Journal: b, SingleUse: b, Keys: keys, Log: func(string, ...any) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		test(t, b, c)
	})
}

// ask makes a request with a cookie.
func (c *Console) ask(t *testing.T, method, path, cookie string, form url.Values) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if cookie != "" {
		req.AddCookie(&http.Cookie{Name: cookieName, Value: cookie})
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, req)
	return w
}

// visitor is a signed-in browser: its cookie and form token, and the address of its pages.
type visitor struct{ cookie, token, base string }

// signIn signs in with a link.
func (c *Console) signIn(t *testing.T, path string) visitor {
	t.Helper()
	w := c.ask(t, "POST", "/login", "", url.Values{"ticket": {strings.TrimPrefix(path, "/login?ticket=")}})
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("signing in: %d %s", w.Code, w.Body)
	}
	var s session
	if !c.open(sessionPurpose, cookies[0].Value, &s) {
		t.Fatal("the cookie cannot be read")
	}
	return visitor{cookies[0].Value, s.Token, w.Header().Get("Location")}
}

var ada = &identity.Principal{Name: "ada@example.com", Kind: identity.ByKey, KeyID: "k1", Admin: true}

// refusal is the standing of a principal with a revoked key.
var refusal = call.Refuse("approve", call.ApprovalDenied, "the key has been revoked")

// A session and an unused link end when the token that requested the link expires.
func TestSessionEndsWithItsToken(t *testing.T) {
	withConsole(t, func(t *testing.T, _ *fakeBackend, c *Console) {
		withToken := func(life time.Duration) *identity.Principal {
			return &identity.Principal{Name: "ada@example.com", Kind: identity.ByToken, Admin: true, Until: time.Now().Add(life)}
		}
		short, long := c.signIn(t, c.Link(withToken(time.Hour))), c.signIn(t, c.Link(withToken(24*time.Hour)))
		link := c.Link(withToken(time.Minute))
		for _, step := range []struct {
			wait        time.Duration
			short, long int
		}{{0, 200, 200}, {59 * time.Minute, 200, 200}, {2 * time.Minute, 401, 200}, {12 * time.Hour, 401, 401}} {
			time.Sleep(step.wait)
			if got := c.ask(t, "GET", short.base, short.cookie, nil).Code; got != step.short {
				t.Errorf("%v after a sign-in with a token that expires in an hour, the page returned %d, want %d", step.wait, got, step.short)
			}
			if got := c.ask(t, "GET", long.base, long.cookie, nil).Code; got != step.long {
				t.Errorf("%v later, with a token for a day: %d, want %d", step.wait, got, step.long)
			}
		}
		if w := c.ask(t, "POST", "/login", "", url.Values{"ticket": {strings.TrimPrefix(link, "/login?ticket=")}}); w.Code != http.StatusForbidden {
			t.Errorf("a link whose token has expired returned %d", w.Code)
		}
	})
}

// Sessions of the daemon's temporary key end with the daemon. The next daemon can still decrypt
// their cookies, but rejects them. Sessions of a stored key continue.
func TestSessionEndsWithTheTemporaryKey(t *testing.T) {
	withConsole(t, func(t *testing.T, _ *fakeBackend, c *Console) {
		next, err := New(c.o) // after a restart
		if err != nil {
			t.Fatal(err)
		}
		local := identity.Principal{Name: "ada@local", Kind: identity.Local, Admin: true}
		asked := local
		asked.KeyID = "p1"
		for name, tt := range map[string]struct {
			who         *identity.Principal
			page, login int // the status codes that the next daemon returns
		}{
			"the printed link": {&local, 401, 403},
			"a requested link": {&asked, 401, 403},
			"a stored key":     {ada, 200, 303},
		} {
			g := c.signIn(t, c.Link(tt.who))
			if w := c.ask(t, "GET", g.base, g.cookie, nil); w.Code != 200 {
				t.Errorf("%s: at its own daemon, a page returned %d", name, w.Code)
			}
			if w := next.ask(t, "GET", g.base, g.cookie, nil); w.Code != tt.page {
				t.Errorf("%s: at the next daemon, a page returned %d, want %d", name, w.Code, tt.page)
			}
			unused := strings.TrimPrefix(c.Link(tt.who), "/login?ticket=")
			if w := next.ask(t, "POST", "/login", "", url.Values{"ticket": {unused}}); w.Code != tt.login {
				t.Errorf("%s: at the next daemon, a link returned %d, want %d", name, w.Code, tt.login)
			}
		}
	})
}

// endless is an infinite body that counts the bytes read.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	e.read += len(b)
	return copy(b, bytes.Repeat([]byte{'a'}, len(b))), nil
}

// Requests without a session are read only up to a limit, in every encoding.
func TestLoginFormIsBounded(t *testing.T) {
	withConsole(t, func(t *testing.T, _ *fakeBackend, c *Console) {
		for _, tt := range []struct {
			form, begins string
			want         int
		}{
			{"application/x-www-form-urlencoded", "ticket=", http.StatusRequestEntityTooLarge},
			{"multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"ticket\"\r\n\r\n", http.StatusForbidden},
		} {
			rest := &endless{}
			req := httptest.NewRequestWithContext(t.Context(), "POST", "/login", io.MultiReader(strings.NewReader(tt.begins), io.LimitReader(rest, 64<<20)))
			req.Header.Set("Content-Type", tt.form)
			w := httptest.NewRecorder()
			c.ServeHTTP(w, req)
			if w.Code != tt.want || !strings.Contains(w.Body.String(), `role="alert"`) {
				t.Errorf("%s: got status %d, want %d and a page with the reason", tt.form, w.Code, tt.want)
			}
			if rest.read > maxLogin {
				t.Errorf("%s: %d bytes were read, want at most %d", tt.form, rest.read, maxLogin)
			}
		}
	})
}

// Cookies and links of older versions name no principal and are invalid.
func TestSessionOfAnOlderVersion(t *testing.T) {
	withConsole(t, func(t *testing.T, _ *fakeBackend, c *Console) {
		until := time.Now().Add(time.Minute).Unix()
		cookie := c.seal(sessionPurpose, map[string]any{"w": "ada@example.com", "h": "home", "t": "token", "u": until})
		if w := c.ask(t, "GET", sessionPrefix+"home/", cookie, nil); w.Code != http.StatusUnauthorized {
			t.Errorf("a request with an older cookie got %d", w.Code)
		}
		link := c.seal(linkPurpose, map[string]any{"i": "1", "w": "ada@example.com", "u": until})
		if w := c.ask(t, "POST", "/login", "", url.Values{"ticket": {link}}); w.Code != http.StatusForbidden {
			t.Errorf("an older link got %d", w.Code)
		}
	})
}

// If the validity of a principal's key cannot be checked, requests are rejected until the check works
// again.
func TestStandingCannotBeChecked(t *testing.T) {
	withConsole(t, func(t *testing.T, b *fakeBackend, c *Console) {
		g := c.signIn(t, c.Link(ada))
		for _, tt := range []struct {
			standing  error
			get, post int
		}{{nil, 200, 400}, {errors.New("the disk is gone"), 401, 401}, {nil, 200, 400}, {refusal, 401, 401}} {
			b.setStanding(tt.standing)
			if w := c.ask(t, "GET", g.base, g.cookie, nil); w.Code != tt.get {
				t.Errorf("%v: a page returned %d", tt.standing, w.Code)
			}
			if w := c.ask(t, "POST", g.base+"approvals/x", g.cookie, url.Values{"token": {g.token}}); w.Code != tt.post {
				t.Errorf("%v: a form returned %d", tt.standing, w.Code)
			}
		}
	})
}

// A stream ends with its session. It stays open while the validity of its key cannot be checked.
func TestStreamEndsWithItsSession(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *fakeBackend, *Console, visitor){
		"signed out": func(t *testing.T, b *fakeBackend, c *Console, g visitor) {
			if w := c.ask(t, "POST", g.base+"logout", g.cookie, url.Values{"token": {g.token}}); w.Code != http.StatusSeeOther {
				t.Errorf("signing out: %d", w.Code)
			}
			b.changed <- struct{}{}
		},
		"its key is revoked": func(_ *testing.T, b *fakeBackend, _ *Console, _ visitor) {
			b.setStanding(refusal)
			b.changed <- struct{}{}
		},
		"its key expires": func(_ *testing.T, b *fakeBackend, _ *Console, _ visitor) {
			b.setStanding(refusal) // no change of the pages was reported
			time.Sleep(keepAlive)
		},
		"its lifetime is over": func(*testing.T, *fakeBackend, *Console, visitor) { time.Sleep(sessionLife) },
	} {
		t.Run(name, func(t *testing.T) {
			withConsole(t, func(t *testing.T, b *fakeBackend, c *Console) {
				g := c.signIn(t, c.Link(ada))
				var w *httptest.ResponseRecorder
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					w = c.ask(t, "GET", g.base+"live", g.cookie, nil)
				}()
				b.changed <- struct{}{}
				synctest.Wait()
				b.setStanding(errors.New("the disk is gone"))
				time.Sleep(2 * keepAlive)
				b.setStanding(nil)
				select {
				case <-ended:
					t.Fatalf("the stream ended too early: %s", w.Body)
				default:
				}
				end(t, b, c, g)
				synctest.Wait()
				select {
				case <-ended:
				default:
					t.Error("the stream is still open")
				}
			})
		})
	}
}

// If the session's key is revoked while a call waits for approval, the call is not made.
func TestRevokedWhileACallWaits(t *testing.T) {
	for name, tt := range map[string]struct {
		standing error
		want     string
	}{
		"good":    {nil, "for ada@example.com"},
		"revoked": {refusal, "the key has been revoked"},
	} {
		t.Run(name, func(t *testing.T) {
			withConsole(t, func(t *testing.T, b *fakeBackend, c *Console) {
				g := c.signIn(t, c.Link(ada))
				asked := make(chan *httptest.ResponseRecorder)
				go func() {
					asked <- c.ask(t, "POST", g.base+"agents/alpha/call", g.cookie, url.Values{"token": {g.token}, "tool": {"write"}})
				}()
				synctest.Wait()
				b.setStanding(tt.standing)
				close(b.approved)
				if w := <-asked; w.Code != 200 || !strings.Contains(w.Body.String(), tt.want) {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// A session's cookie is valid only at the session's address. The address is valid only with the
// cookie.
func TestSessionHasItsOwnAddress(t *testing.T) {
	withConsole(t, func(t *testing.T, _ *fakeBackend, c *Console) {
		ours, theirs := c.signIn(t, c.Link(ada)), c.signIn(t, c.Link(ada))
		if ours.base == theirs.base || len(ours.base) < len(sessionPrefix)+22 {
			t.Errorf("the addresses %q and %q are equal or too short", ours.base, theirs.base)
		}
		for name, tt := range map[string]struct {
			base, cookie string
			get, post    int
		}{
			"both":                           {ours.base, ours.cookie, 200, 400},
			"the cookie without the address": {"/", ours.cookie, 401, 405},
			"an address of /agents":          {"/agents/", ours.cookie, 401, 405},
			"no address":                     {sessionPrefix, ours.cookie, 401, 405},
			"an unknown address":             {sessionPrefix + "x/", ours.cookie, 401, 401},
			"a prefix of the address":        {ours.base[:len(sessionPrefix)+8] + "/", ours.cookie, 401, 401},
			"another session's":              {theirs.base, ours.cookie, 401, 401},
			"the address without a cookie":   {ours.base, "", 401, 401},
		} {
			w := c.ask(t, "GET", tt.base, tt.cookie, nil)
			if w.Code != tt.get {
				t.Errorf("%s: a page returned %d, want %d", name, w.Code, tt.get)
			}
			if tt.get != 200 && (strings.Contains(w.Body.String(), ours.base) || strings.Contains(w.Body.String(), ours.token)) {
				t.Errorf("%s: the page reveals the session", name)
			}
			if w := c.ask(t, "POST", tt.base+"approvals/x", tt.cookie, url.Values{"token": {ours.token}}); w.Code != tt.post {
				t.Errorf("%s: a form returned %d, want %d", name, w.Code, tt.post)
			}
		}
	})
}

// Signing in sets a cookie that is limited to the pages of its session. Signing out does the same.
// No page sends its address as a referrer or links to another address.
func TestSessionStaysAtItsAddress(t *testing.T) {
	withConsole(t, func(t *testing.T, _ *fakeBackend, c *Console) {
		in := c.ask(t, "POST", "/login?to=http://evil.example/", "", url.Values{"ticket": {strings.TrimPrefix(c.Link(ada), "/login?ticket=")}, "to": {"//evil.example/"}})
		base, cookie := in.Header().Get("Location"), in.Result().Cookies()[0]
		var s session
		if !c.open(sessionPurpose, cookie.Value, &s) || base != sessionPrefix+s.Home+"/" {
			t.Fatalf("signing in redirects to %q", base)
		}
		for _, path := range []string{"", "agents/alpha", "agents/alpha/tools/write", "approvals", "nowhere"} {
			w := c.ask(t, "GET", base+path, cookie.Value, nil)
			if got := w.Header().Get("Referrer-Policy"); got != "strict-origin" {
				t.Errorf("%q has the Referrer-Policy %q", path, got)
			}
			for _, m := range links.FindAllStringSubmatch(w.Body.String(), -1) {
				if !strings.HasPrefix(m[1], base) && !strings.HasPrefix(m[1], "/assets/") && m[1] != "#main" {
					t.Errorf("%q links to %q", path, m[1])
				}
			}
		}
		out := c.ask(t, "POST", base+"logout", cookie.Value, url.Values{"token": {s.Token}})
		for name, cookies := range map[string][]*http.Cookie{"signing in": in.Result().Cookies(), "signing out": out.Result().Cookies()} {
			if len(cookies) != 1 || cookies[0].Path != base || cookies[0].Domain != "" || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
				t.Errorf("%s sets %v", name, cookies)
			}
		}
		if out.Code != http.StatusSeeOther || out.Header().Get("Location") != "/login" {
			t.Errorf("signing out returns %d and redirects to %q", out.Code, out.Header().Get("Location"))
		}
	})
}

// links matches the links of a page.
var links = regexp.MustCompile(`(?:href|action|src|data-live-page)="([^"]*)"`)
