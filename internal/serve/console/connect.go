package console

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// SignIn is a remote server at which each person signs in for themselves. State is "in", "ended" or "none".
type SignIn struct{ Server, State string }

const (
	// AnswerPath is the path to which an authorization server sends the browser. The path is registered there, so it is
	// the same for all sessions. The path of a session cannot be registered, because it contains a secret.
	AnswerPath = "/login/answer"

	returnName    = "ambit_return"
	returnPurpose = "console/return"
	returnLife    = 10 * time.Minute
)

// wayBack is the content of the cookie that leads from AnswerPath back to the session that began a sign-in. A sign-in
// that began on the page [signin.PagePath] has no console session. In this case, Who and Session identify the person,
// and only the browser with this cookie can complete the sign-in.
type wayBack struct {
	Home    string              `json:"h,omitempty"`
	Who     *identity.Principal `json:"p,omitempty"`
	Session string              `json:"s,omitempty"`
	Until   int64               `json:"u"`
}

// connect begins a sign-in of the person to a remote server of an agent. The next page contains a link to the
// authorization server and not a form, because the content security policy does not let a form lead to another site.
func (c *Console) connect(w http.ResponseWriter, r *http.Request, s *session) {
	name, server := r.PathValue("name"), r.PostFormValue("server")
	page, err := c.o.Backend.Connect(r, name, server, s.Who, s.id())
	to, parseErr := url.Parse(page)
	if err != nil || parseErr != nil {
		c.connectFailed(w, r, s, errors.Join(err, parseErr))
		return
	}
	c.showWay(w, r, s, wayBack{Home: s.Home}, name, server, to)
}

// showWay shows the link to the authorization server, and sets the cookie that contains back.
func (c *Console) showWay(
	w http.ResponseWriter, r *http.Request, s *session, back wayBack, name, server string, to *url.URL,
) {
	back.Until = time.Now().Add(returnLife).Unix()
	http.SetCookie(w, &http.Cookie{
		Name: returnName, Value: c.seal(returnPurpose, back), Path: AnswerPath, MaxAge: int(returnLife.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: c.o.Secure,
	})
	c.show(w, r, s, http.StatusOK, "connect", "Sign in to "+server, "agents",
		map[string]string{"Agent": name, "Server": server, "Page": to.String(), "Host": to.Host})
}

// serverPage shows a form that asks for an API key. A person's MCP client opens this page. The key determines who signs
// in. The address does not, because anyone can send the address to another person.
func (c *Console) serverPage(w http.ResponseWriter, r *http.Request) {
	c.askKey(w, r, http.StatusOK, r.URL.Query().Get("agent"), r.URL.Query().Get("server"), "", "")
}

func (c *Console) askKey(w http.ResponseWriter, r *http.Request, status int, name, server, problem, hint string) {
	c.show(w, r, nil, status, "serverlogin", "Sign in to "+server, "", map[string]string{
		"Agent": name, "Server": server, "To": signin.PagePath, "Problem": problem, "Hint": hint,
	})
}

// serverLogin begins a sign-in of the person who holds the key in the form.
func (c *Console) serverLogin(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	if _, large := errors.AsType[*http.MaxBytesError](r.ParseForm()); large {
		c.loginFailed(w, r, http.StatusRequestEntityTooLarge, "The sign-in request is too large.")
		return
	}
	name, server, key := r.PostForm.Get("agent"), r.PostForm.Get("server"), strings.TrimSpace(r.PostForm.Get("key"))
	session := "sign-in page " + rand.Text()
	page, who, err := c.o.Backend.ConnectWith(r, name, server, key, session)
	to, parseErr := url.Parse(page)
	if refusal, ok := errors.AsType[*call.Refusal](err); ok {
		c.askKey(w, r, http.StatusForbidden, name, server, refusal.Message, refusal.HintFor(""))
		return
	}
	if err := errors.Join(err, parseErr); err != nil {
		c.unavailable(w, r, nil, "Signing in to this server is not possible at the moment.", err)
		return
	}
	c.showWay(w, r, nil, wayBack{Who: c.withoutRights(who), Session: session}, name, server, to)
}

// served completes a sign-in that began on the page of serverPage, in the same browser.
func (c *Console) served(w http.ResponseWriter, r *http.Request, back *wayBack) {
	if !c.isAccepted(back.Who) || c.o.Backend.Standing(r.Context(), back.Who) != nil {
		c.loginFailed(w, r, http.StatusForbidden, "The key that began this sign-in is no longer valid.")
		return
	}
	_, err := c.o.Backend.Connected(r.Context(), back.Who, back.Session, r.URL.Query())
	if refusal, ok := errors.AsType[*call.Refusal](err); ok {
		c.loginFailed(w, r, http.StatusForbidden, "The sign-in failed: "+refusal.Message+".")
		return
	}
	if err != nil {
		c.unavailable(w, r, nil, "Signing in to this server is not possible at the moment.", err)
		return
	}
	c.show(w, r, nil, http.StatusOK, "served", "Signed in", "", map[string]string{"Who": back.Who.Name})
}

// answer handles the request with which an authorization server sends the browser back. The browser does not send the
// session's cookie with this request, because another site began it. Therefore, answer shows a page whose form leads
// the browser to the session.
func (c *Console) answer(w http.ResponseWriter, r *http.Request) {
	var back wayBack
	cookie, err := r.Cookie(returnName)
	if err != nil || !c.open(returnPurpose, cookie.Value, &back) || back.Until < time.Now().Unix() {
		c.loginFailed(w, r, http.StatusForbidden,
			"This browser has not begun a sign-in to a server, or the sign-in has expired.")
		return
	}
	if back.Session != "" {
		c.served(w, r, &back)
		return
	}
	q, fields := r.URL.Query(), map[string]string{}
	for _, name := range []string{"code", "state", "iss", "error"} {
		if q.Has(name) {
			fields[name] = q.Get(name)
		}
	}
	c.show(w, r, nil, http.StatusOK, "answer", "Sign in", "",
		map[string]any{"To": (&session{Home: back.Home}).base() + "connected", "Fields": fields})
}

// connected completes a sign-in with the answer of the authorization server. Only the session that began the sign-in
// can complete it.
func (c *Console) connected(w http.ResponseWriter, r *http.Request, s *session) {
	name, err := c.o.Backend.Connected(r.Context(), s.Who, s.id(), r.URL.Query())
	if err != nil {
		c.connectFailed(w, r, s, err)
		return
	}
	http.Redirect(w, r, s.base()+"agents/"+url.PathEscape(name)+"#servers", http.StatusSeeOther)
}

func (c *Console) connectFailed(w http.ResponseWriter, r *http.Request, s *session, err error) {
	if refusal, ok := errors.AsType[*call.Refusal](err); ok {
		c.failed(w, r, s, http.StatusForbidden, "The sign-in failed: "+refusal.Message, refusal.HintFor(""))
		return
	}
	c.unavailable(w, r, s, "Signing in to this server is not possible at the moment.", err)
}
