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

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// room is a house with one agent, whose one tool waits for a person.
type room struct {
	House
	changed  chan struct{}
	answered chan struct{} // by the person whom a call waits for

	mu       sync.Mutex
	spent    map[string]bool
	standing error // of everybody
}

// stand says how everybody stands from now on.
func (r *room) stand(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.standing = err
}

func (r *room) Cards() []Card { return nil }

func (r *room) Agent(context.Context, string) *Agent {
	return &Agent{Card: Card{Name: "alpha"}, Tools: []Tool{{Name: "write", Callable: true}}}
}

func (r *room) Call(ctx context.Context, _ string, c *call.Call) (call.Result, error) {
	<-r.answered
	if err := call.Standing(ctx); err != nil {
		return call.Result{}, err
	}
	return call.Result{Raw: []byte(`{"content":[{"type":"text","text":"for ` + c.Principal + `"}]}`)}, nil
}

func (r *room) Approvals(context.Context) ([]*approval.Question, error) { return nil, nil }

func (r *room) Waiting(context.Context) (int, error) { return 0, nil }

func (r *room) Ends(context.Context) (journal.Ends, error) {
	return journal.Ends{}, errors.New("there is no journal")
}

func (r *room) Spend(_ context.Context, id string, _ time.Time) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.spent[id]
	r.spent[id] = true
	return first, nil
}

func (r *room) IsSpent(_ context.Context, id string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spent[id], nil
}

func (r *room) Standing(context.Context, *identity.Principal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.standing
}

func (r *room) Changed(ctx context.Context) error {
	select {
	case <-r.changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *room) Mark(context.Context) string { return time.Now().String() }

// inRoom runs a test of a console by a clock of its own.
func inRoom(t *testing.T, test func(t *testing.T, r *room, c *Console)) {
	t.Helper()
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := &room{spent: map[string]bool{}, changed: make(chan struct{}), answered: make(chan struct{})}
		c, err := New(Options{Context: t.Context(), House: r, Keys: keys, Log: func(string, ...any) {}})
		if err != nil {
			t.Fatal(err)
		}
		test(t, r, c)
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

// guest is somebody who is signed in: what their browser has, and where their pages
// are.
type guest struct{ cookie, token, base string }

// signIn uses a link.
func (c *Console) signIn(t *testing.T, path string) guest {
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
	return guest{cookies[0].Value, s.Token, w.Header().Get("Location")}
}

var ada = &identity.Principal{Name: "ada@example.com", Kind: identity.ByKey, KeyID: "k1", Admin: true}

// refusal is what a house says of somebody who may not come in any more.
var refusal = call.Refuse("approve", call.ApprovalDenied, "the key has been revoked")

// What was signed in for with a token is over with it, and so is a link.
func TestSessionEndsWithItsToken(t *testing.T) {
	inRoom(t, func(t *testing.T, _ *room, c *Console) {
		by := func(life time.Duration) *identity.Principal {
			return &identity.Principal{Name: "ada@example.com", Kind: identity.ByToken, Admin: true, Until: time.Now().Add(life)}
		}
		short, long := c.signIn(t, c.Link(by(time.Hour))), c.signIn(t, c.Link(by(24*time.Hour)))
		link := c.Link(by(time.Minute))
		for _, step := range []struct {
			wait        time.Duration
			short, long int
		}{{0, 200, 200}, {59 * time.Minute, 200, 200}, {2 * time.Minute, 401, 200}, {12 * time.Hour, 401, 401}} {
			time.Sleep(step.wait)
			if got := c.ask(t, "GET", short.base, short.cookie, nil).Code; got != step.short {
				t.Errorf("%v later, by a token for an hour: %d, want %d", step.wait, got, step.short)
			}
			if got := c.ask(t, "GET", long.base, long.cookie, nil).Code; got != step.long {
				t.Errorf("%v later, by a token for a day: %d, want %d", step.wait, got, step.long)
			}
		}
		if w := c.ask(t, "POST", "/login", "", url.Values{"ticket": {strings.TrimPrefix(link, "/login?ticket=")}}); w.Code != http.StatusForbidden {
			t.Errorf("a link after its token: %d", w.Code)
		}
	})
}

// What the daemon's own passing key opened ends with the daemon, although what seals
// cookies stays; what was opened with a key of the store goes on.
func TestSessionEndsWithThePassingKey(t *testing.T) {
	inRoom(t, func(t *testing.T, _ *room, c *Console) {
		next, err := New(c.o) // after a restart
		if err != nil {
			t.Fatal(err)
		}
		local := identity.Principal{Name: "ada@local", Kind: identity.Local, Admin: true}
		asked := local
		asked.KeyID = "p1"
		for name, tt := range map[string]struct {
			who         *identity.Principal
			page, login int // at the next one
		}{
			"the link that it printed": {&local, 401, 403},
			"one that was asked for":   {&asked, 401, 403},
			"a key of the store":       {ada, 200, 303},
		} {
			g := c.signIn(t, c.Link(tt.who))
			if w := c.ask(t, "GET", g.base, g.cookie, nil); w.Code != 200 {
				t.Errorf("%s: at the daemon that made it, a page got %d", name, w.Code)
			}
			if w := next.ask(t, "GET", g.base, g.cookie, nil); w.Code != tt.page {
				t.Errorf("%s: at the next, a page got %d, want %d", name, w.Code, tt.page)
			}
			unused := strings.TrimPrefix(c.Link(tt.who), "/login?ticket=")
			if w := next.ask(t, "POST", "/login", "", url.Values{"ticket": {unused}}); w.Code != tt.login {
				t.Errorf("%s: at the next, a link got %d, want %d", name, w.Code, tt.login)
			}
		}
	})
}

// endless is a body that does not end, and counts what is taken of it.
type endless struct{ taken int }

func (e *endless) Read(b []byte) (int, error) {
	e.taken += len(b)
	return copy(b, bytes.Repeat([]byte{'a'}, len(b))), nil
}

// A stranger cannot make the daemon read much, in whatever form it comes.
func TestStrangersFormIsBounded(t *testing.T) {
	inRoom(t, func(t *testing.T, _ *room, c *Console) {
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
				t.Errorf("%s: %d, want %d and a page that says why", tt.form, w.Code, tt.want)
			}
			if rest.taken > maxLogin {
				t.Errorf("%s: it took %d bytes", tt.form, rest.taken)
			}
		}
	})
}

// What does not say whose it is opens nothing: an older version made it.
func TestSessionOfAnOlderVersion(t *testing.T) {
	inRoom(t, func(t *testing.T, _ *room, c *Console) {
		until := time.Now().Add(time.Minute).Unix()
		cookie := c.seal(sessionPurpose, map[string]any{"w": "ada@example.com", "h": "home", "t": "token", "u": until})
		if w := c.ask(t, "GET", homes+"home/", cookie, nil); w.Code != http.StatusUnauthorized {
			t.Errorf("a session: %d", w.Code)
		}
		link := c.seal(linkPurpose, map[string]any{"i": "1", "w": "ada@example.com", "u": until})
		if w := c.ask(t, "POST", "/login", "", url.Values{"ticket": {link}}); w.Code != http.StatusForbidden {
			t.Errorf("a link: %d", w.Code)
		}
	})
}

// Somebody of whom nobody can say whether they may come in does not, and may
// again when it can be said.
func TestStandingCannotBeTold(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room, c *Console) {
		g := c.signIn(t, c.Link(ada))
		for _, tt := range []struct {
			standing  error
			get, post int
		}{{nil, 200, 400}, {errors.New("the disk is gone"), 401, 401}, {nil, 200, 400}, {refusal, 401, 401}} {
			r.stand(tt.standing)
			if w := c.ask(t, "GET", g.base, g.cookie, nil); w.Code != tt.get {
				t.Errorf("%v: a page got %d", tt.standing, w.Code)
			}
			if w := c.ask(t, "POST", g.base+"approvals/x", g.cookie, url.Values{"token": {g.token}}); w.Code != tt.post {
				t.Errorf("%v: a form got %d", tt.standing, w.Code)
			}
		}
	})
}

// The stream of a session ends with it, however it ends, and not because it
// cannot be told.
func TestStreamEndsWithItsSession(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *room, *Console, guest){
		"signed out": func(t *testing.T, r *room, c *Console, g guest) {
			if w := c.ask(t, "POST", g.base+"logout", g.cookie, url.Values{"token": {g.token}}); w.Code != http.StatusSeeOther {
				t.Errorf("signing out: %d", w.Code)
			}
			r.changed <- struct{}{}
		},
		"its key is revoked": func(_ *testing.T, r *room, _ *Console, _ guest) {
			r.stand(refusal)
			r.changed <- struct{}{}
		},
		"its key expires": func(_ *testing.T, r *room, _ *Console, _ guest) {
			r.stand(refusal) // and nothing changes
			time.Sleep(beat)
		},
		"its time is over": func(*testing.T, *room, *Console, guest) { time.Sleep(sessionLife) },
	} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, func(t *testing.T, r *room, c *Console) {
				g := c.signIn(t, c.Link(ada))
				var w *httptest.ResponseRecorder
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					w = c.ask(t, "GET", g.base+"live", g.cookie, nil)
				}()
				r.changed <- struct{}{}
				synctest.Wait()
				r.stand(errors.New("the disk is gone"))
				time.Sleep(2 * beat)
				r.stand(nil)
				select {
				case <-ended:
					t.Fatalf("it ended too early: %s", w.Body)
				default:
				}
				end(t, r, c, g)
				synctest.Wait()
				select {
				case <-ended:
				default:
					t.Error("it goes on")
				}
			})
		})
	}
}

// A call that waits for a person is not made if the key of who signed in is
// revoked meanwhile.
func TestRevokedWhileACallWaits(t *testing.T) {
	for name, tt := range map[string]struct {
		standing error
		want     string
	}{
		"good":    {nil, "for ada@example.com"},
		"revoked": {refusal, "the key has been revoked"},
	} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, func(t *testing.T, r *room, c *Console) {
				g := c.signIn(t, c.Link(ada))
				asked := make(chan *httptest.ResponseRecorder)
				go func() {
					asked <- c.ask(t, "POST", g.base+"agents/alpha/call", g.cookie, url.Values{"token": {g.token}, "tool": {"write"}})
				}()
				synctest.Wait()
				r.stand(tt.standing)
				close(r.answered)
				if w := <-asked; w.Code != 200 || !strings.Contains(w.Body.String(), tt.want) {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// A session is worth nothing without its address, and the address nothing without
// the session.
func TestSessionHasItsOwnAddress(t *testing.T) {
	inRoom(t, func(t *testing.T, _ *room, c *Console) {
		ours, theirs := c.signIn(t, c.Link(ada)), c.signIn(t, c.Link(ada))
		if ours.base == theirs.base || len(ours.base) < len(homes)+22 {
			t.Errorf("the addresses %q and %q", ours.base, theirs.base)
		}
		for name, tt := range map[string]struct {
			base, cookie string
			get, post    int
		}{
			"both":                {ours.base, ours.cookie, 200, 400},
			"the cookie alone":    {"/", ours.cookie, 401, 405},
			"an older address":    {"/agents/", ours.cookie, 401, 405},
			"no part":             {homes, ours.cookie, 401, 405},
			"a part that is none": {homes + "x/", ours.cookie, 401, 401},
			"a beginning of it":   {ours.base[:len(homes)+8] + "/", ours.cookie, 401, 401},
			"another session's":   {theirs.base, ours.cookie, 401, 401},
			"the address alone":   {ours.base, "", 401, 401},
		} {
			w := c.ask(t, "GET", tt.base, tt.cookie, nil)
			if w.Code != tt.get {
				t.Errorf("%s: a page got %d, want %d", name, w.Code, tt.get)
			}
			if tt.get != 200 && (strings.Contains(w.Body.String(), ours.base) || strings.Contains(w.Body.String(), ours.token)) {
				t.Errorf("%s: the page tells of the session", name)
			}
			if w := c.ask(t, "POST", tt.base+"approvals/x", tt.cookie, url.Values{"token": {ours.token}}); w.Code != tt.post {
				t.Errorf("%s: a form got %d, want %d", name, w.Code, tt.post)
			}
		}
	})
}

// A browser is told to send the cookie to the pages of its session only, when
// signing in and when signing out; no page tells its address to the next, and none
// leads out of it.
func TestSessionStaysAtItsAddress(t *testing.T) {
	inRoom(t, func(t *testing.T, _ *room, c *Console) {
		in := c.ask(t, "POST", "/login?to=http://evil.example/", "", url.Values{"ticket": {strings.TrimPrefix(c.Link(ada), "/login?ticket=")}, "to": {"//evil.example/"}})
		base, cookie := in.Header().Get("Location"), in.Result().Cookies()[0]
		var s session
		if !c.open(sessionPurpose, cookie.Value, &s) || base != homes+s.Home+"/" {
			t.Fatalf("signing in leads to %q", base)
		}
		for _, path := range []string{"", "agents/alpha", "agents/alpha/tools/write", "approvals", "nowhere"} {
			w := c.ask(t, "GET", base+path, cookie.Value, nil)
			if got := w.Header().Get("Referrer-Policy"); got != "strict-origin" {
				t.Errorf("%q lets browsers tell its address: %q", path, got)
			}
			for _, m := range leads.FindAllStringSubmatch(w.Body.String(), -1) {
				if !strings.HasPrefix(m[1], base) && !strings.HasPrefix(m[1], "/assets/") && m[1] != "#main" {
					t.Errorf("%q leads to %q", path, m[1])
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
			t.Errorf("signing out leads to %d %q", out.Code, out.Header().Get("Location"))
		}
	})
}

// leads finds what a page leads to.
var leads = regexp.MustCompile(`(?:href|action|src|data-live-page)="([^"]*)"`)
