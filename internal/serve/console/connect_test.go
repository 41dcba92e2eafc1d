package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// provider answers for the sign-ins to remote servers: only the session that began one completes it.
type provider struct {
	*fakeBackend
	begun     string // the session
	completed string // the principal
}

func (p *provider) ConnectWith(_ *http.Request, _, _, key, session string) (string, *identity.Principal, error) {
	name, ok := strings.CutSuffix(key, "-key")
	if !ok {
		return "", nil, call.Refuse("", "key_refused", "the key is unknown")
	}
	p.begun = session
	return "https://login.example/page?state=s", &identity.Principal{Name: name + "@example.com", Kind: identity.ByKey, KeyID: name}, nil
}

func (p *provider) Connect(_ *http.Request, _, _ string, _ *identity.Principal, session string) (string, error) {
	p.begun = session
	return "https://login.example/page?state=s", nil
}

func (p *provider) Connected(_ context.Context, who *identity.Principal, session string, answer url.Values) (string, error) {
	if session != p.begun || answer.Get("code") != "c" {
		return "", call.Refuse("act", call.CredentialMissing, "another session")
	}
	p.completed = who.Name
	return "alpha", nil
}

// A person begins and completes a sign-in to a server in one session. Another session of the same person cannot
// complete it, and the page outside the sessions leads only to the session that began.
func TestConnect(t *testing.T) {
	withConsole(t, func(t *testing.T, b *fakeBackend, c *Console) {
		p := &provider{fakeBackend: b}
		c.o.Backend = p
		one, other := c.signIn(t, c.Link(ada)), c.signIn(t, c.Link(ada))
		form := url.Values{"server": {"there"}, "token": {one.token}}
		if w := c.ask(t, "POST", one.base+"agents/alpha/connect", one.cookie, url.Values{"server": {"there"}}); w.Code != http.StatusForbidden {
			t.Errorf("a form without the token: %d", w.Code)
		}
		w := c.ask(t, "POST", one.base+"agents/alpha/connect", one.cookie, form)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `href="https://login.example/page?state=s"`) {
			t.Fatalf("beginning: %d %s", w.Code, w.Body)
		}
		back := w.Result().Cookies()[0]
		if back.SameSite != http.SameSiteLaxMode || !back.HttpOnly || back.Path != AnswerPath {
			t.Errorf("the cookie is %+v", back)
		}
		answer := func(cookie string) *httptest.ResponseRecorder {
			req := httptest.NewRequestWithContext(t.Context(), "GET", AnswerPath+"?code=c&state=s&to=https%3A%2F%2Fattacker.example", nil)
			req.AddCookie(&http.Cookie{Name: returnName, Value: cookie})
			w := httptest.NewRecorder()
			c.ServeHTTP(w, req)
			return w
		}
		for _, forged := range []string{"", "x", one.cookie, c.seal(returnPurpose, wayBack{Home: "x", Until: time.Now().Unix() - 1})} {
			if w := answer(forged); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), `value="c"`) {
				t.Errorf("the cookie %.10q: %d %s", forged, w.Code, w.Body)
			}
		}
		if w := answer(back.Value); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `action="`+one.base+`connected"`) ||
			strings.Contains(w.Body.String(), "attacker") {
			t.Errorf("the answer: %d %s", w.Code, w.Body)
		}
		for name, tt := range map[string]struct {
			v    visitor
			want int
		}{"another session": {other, http.StatusForbidden}, "the session": {one, http.StatusSeeOther}} {
			if w := c.ask(t, "GET", tt.v.base+"connected?code=c&state=s", tt.v.cookie, nil); w.Code != tt.want {
				t.Errorf("%s: %d, want %d", name, w.Code, tt.want)
			}
		}
	})
}

// A person without a session of the console signs in with their key. The key decides for whom, and only the browser in
// which the key was entered can complete the sign-in.
func TestConnectWithKey(t *testing.T) {
	withConsole(t, func(t *testing.T, b *fakeBackend, c *Console) {
		p := &provider{fakeBackend: b}
		c.o.Backend = p
		page := c.ask(t, "GET", signin.PagePath+"?agent=alpha&server=%3Cb%3E&key=bob-key", "", nil)
		if page.Code != http.StatusOK || strings.Contains(page.Body.String(), "<b>") || strings.Contains(page.Body.String(), "bob-key") {
			t.Errorf("the page: %d %s", page.Code, page.Body)
		}
		begin := func(key string) (cookie string, w *httptest.ResponseRecorder) {
			w = c.ask(t, "POST", signin.PagePath, "", url.Values{"agent": {"alpha"}, "server": {"there"}, "key": {key}})
			if cookies := w.Result().Cookies(); len(cookies) == 1 {
				cookie = cookies[0].Value
			}
			return cookie, w
		}
		if cookie, w := begin("wrong"); w.Code != http.StatusForbidden || cookie != "" || strings.Contains(w.Body.String(), "wrong") {
			t.Errorf("a wrong key: %d %s", w.Code, w.Body)
		}
		bob, w := begin("bob-key")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `href="https://login.example/page?state=s"`) ||
			strings.Contains(w.Body.String(), "bob-key") {
			t.Fatalf("beginning: %d %s", w.Code, w.Body)
		}
		mine := p.begun
		eve, _ := begin("eve-key")
		p.begun = mine
		answer := func(cookie string) (int, string) {
			req := httptest.NewRequestWithContext(t.Context(), "GET", AnswerPath+"?code=c&state=s", nil)
			req.AddCookie(&http.Cookie{Name: returnName, Value: cookie})
			w := httptest.NewRecorder()
			c.ServeHTTP(w, req)
			return w.Code, w.Body.String()
		}
		forged := c.seal(sessionPurpose, wayBack{Who: ada, Session: mine, Until: time.Now().Unix() + 60})
		for name, cookie := range map[string]string{"no cookie": "", "another browser": eve, "a forged cookie": forged} {
			if status, body := answer(cookie); status != http.StatusForbidden {
				t.Errorf("%s: %d %s", name, status, body)
			}
		}
		b.setStanding(call.Refuse("approve", call.ApprovalDenied, "the key was revoked"))
		if status, body := answer(bob); status != http.StatusForbidden {
			t.Errorf("a revoked key: %d %s", status, body)
		}
		b.setStanding(nil)
		if status, body := answer(bob); status != http.StatusOK || !strings.Contains(body, "bob@example.com") || p.completed != "bob@example.com" {
			t.Errorf("the answer: %d, for %s: %s", status, p.completed, body)
		}
	})
}
