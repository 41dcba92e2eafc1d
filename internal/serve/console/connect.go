package console

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// SignIn is a remote server at which each person signs in for themselves. State is in, ended or none.
type SignIn struct{ Server, State string }

const (
	// AnswerPath is the path to which an authorization server sends the browser. It is outside the sessions, because an
	// address with the secret part of a session's path cannot be registered.
	AnswerPath = "/login/answer"

	returnName    = "ambit_return"
	returnPurpose = "console/return"
	returnLife    = 10 * time.Minute
)

// wayBack is the content of the cookie that leads from AnswerPath to the session that began a sign-in.
type wayBack struct {
	Home  string `json:"h"`
	Until int64  `json:"u"`
}

// connect begins a sign-in of the person to a remote server of an agent. The next page has a link to the authorization
// server, because the content security policy lets no form lead to another site.
func (c *Console) connect(w http.ResponseWriter, r *http.Request, s *session) {
	name, server := r.PathValue("name"), r.PostFormValue("server")
	page, err := c.o.Backend.Connect(r, name, server, s.Who, s.id())
	to, parseErr := url.Parse(page)
	if err != nil || parseErr != nil {
		c.connectFailed(w, r, s, errors.Join(err, parseErr))
		return
	}
	back := wayBack{s.Home, time.Now().Add(returnLife).Unix()}
	http.SetCookie(w, &http.Cookie{
		Name: returnName, Value: c.seal(returnPurpose, back), Path: AnswerPath, MaxAge: int(returnLife.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: c.o.Secure,
	})
	c.show(w, r, s, http.StatusOK, "connect", "Sign in to "+server, "agents",
		map[string]string{"Agent": name, "Server": server, "Page": to.String(), "Host": to.Host})
}

// answer receives the browser from the authorization server. The browser does not send the session's cookie with a
// request that another site began, so the page sends the browser on to the session.
func (c *Console) answer(w http.ResponseWriter, r *http.Request) {
	var back wayBack
	cookie, err := r.Cookie(returnName)
	if err != nil || !c.open(returnPurpose, cookie.Value, &back) || back.Until < time.Now().Unix() {
		c.loginFailed(w, r, http.StatusForbidden, "No sign-in to a server was begun in this browser, or it has expired.")
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
