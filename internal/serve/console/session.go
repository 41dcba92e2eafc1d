package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/http"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

const (
	cookieName = "ambit_console"
	// linkLife is the lifetime of a sign-in link, and sessionLife is the lifetime of a session.
	linkLife    = 10 * time.Minute
	sessionLife = 12 * time.Hour

	// sessionPrefix is the path prefix of all sessions.
	sessionPrefix = "/console/"

	linkPurpose    = "console/link"
	sessionPurpose = "console/session"
)

// link is the content of a sealed sign-in link. The field Who contains the principal that requested the link. The link
// and its session become invalid when the principal's key or token becomes invalid.
type link struct {
	ID    string              `json:"i"`
	Who   *identity.Principal `json:"p"`
	Until int64               `json:"u"`
}

// session is the content of a sealed session cookie. Token must be sent with every form. Home is the secret part of the
// session's path.
type session struct {
	Who   *identity.Principal `json:"p"`
	Home  string              `json:"h"`
	Token string              `json:"t"`
	Until int64               `json:"u"`
}

// Link returns the path and query of a link that signs a person in as the principal p. The link works once.
func (c *Console) Link(p *identity.Principal) string {
	who := c.withoutRights(p)
	return "/login?ticket=" + c.seal(linkPurpose, link{ID: rand.Text(), Who: who, Until: until(who, linkLife)})
}

// withoutRights returns a copy of a principal for a link or cookie.
func (c *Console) withoutRights(p *identity.Principal) *identity.Principal {
	who := p.WithoutRights()
	if who.Kind == identity.Local {
		who.KeyID = c.daemonKey
	}
	return &who
}

// until returns the expiry time of a link or session that is created now. The result is not later than the expiry time
// of the principal's key or token.
func until(who *identity.Principal, life time.Duration) int64 {
	end := time.Now().Add(life)
	if !who.Until.IsZero() && who.Until.Before(end) {
		end = who.Until
	}
	return end.Unix()
}

// isAccepted reports whether the principal is allowed to use this daemon's console. It rejects the temporary key of an
// earlier daemon. This check is necessary, because cookies of the earlier daemon can still be decrypted, and the store
// does not contain temporary keys.
func (c *Console) isAccepted(who *identity.Principal) bool {
	return who != nil && (who.Kind != identity.Local || who.KeyID == c.daemonKey)
}

func (c *Console) seal(purpose string, what any) string {
	text, err := c.o.Keys.SealText(purpose, what)
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	return text
}

func (c *Console) open(purpose, text string, into any) bool {
	return len(text) <= 4<<10 && c.o.Keys.OpenText(purpose, text, into) == nil
}

// loginPage shows a sign-in button. Opening the page does not use up the link, because link previews open the page too.
// In a browser, a script presses the button automatically.
func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	c.show(w, r, nil, http.StatusOK, "login", "Sign in", "", map[string]string{"Ticket": r.URL.Query().Get("ticket")})
}

// signInFirst shows the sign-in page. It handles GET requests that have no valid session.
func (c *Console) signInFirst(w http.ResponseWriter, r *http.Request) {
	c.show(w, r, nil, http.StatusUnauthorized, "login", "Sign in", "", map[string]string{})
}

func (c *Console) loginFailed(w http.ResponseWriter, r *http.Request, status int, problem string) {
	c.show(w, r, nil, status, "login", "Sign in", "", map[string]string{"Problem": problem})
}

// maxLogin is the maximum size of a request without a session.
const maxLogin = 16 << 10

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	if _, large := errors.AsType[*http.MaxBytesError](r.ParseForm()); large {
		c.loginFailed(w, r, http.StatusRequestEntityTooLarge, "The sign-in request is too large.")
		return
	}
	var l link
	good := c.open(linkPurpose, r.PostForm.Get("ticket"), &l) && l.Until >= time.Now().Unix() &&
		c.isAccepted(l.Who) && c.o.Backend.Standing(r.Context(), l.Who) == nil
	if good {
		var err error
		if good, err = c.o.SingleUse.Spend(r.Context(), "console link "+l.ID, time.Unix(l.Until, 0)); err != nil {
			c.unavailable(w, r, nil, "Signing in is not possible at the moment.", err)
			return
		}
	}
	if !good {
		c.loginFailed(w, r, http.StatusForbidden,
			"This link has already been used, has expired, or belongs to a key that is no longer valid.")
		return
	}
	s := session{Who: l.Who, Home: rand.Text(), Token: rand.Text(), Until: until(l.Who, sessionLife)}
	http.SetCookie(w, c.cookie(&s, c.seal(sessionPurpose, s), int(s.Until-time.Now().Unix())))
	http.Redirect(w, r, s.base(), http.StatusSeeOther)
}

// logout ends a session. It also invalidates copies of the session's cookie.
func (c *Console) logout(w http.ResponseWriter, r *http.Request, s *session) {
	if _, err := c.o.SingleUse.Spend(r.Context(), s.id(), time.Unix(s.Until, 0)); err != nil {
		c.unavailable(w, r, s, "Signing out failed, so you are still signed in.", err)
		return
	}
	http.SetCookie(w, c.cookie(s, "", -1))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// cookie returns a session cookie. Browsers send it only to the pages of the session.
func (c *Console) cookie(s *session, value string, life int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: s.base(), MaxAge: life,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.o.Secure,
	}
}

// sessionOf returns the session of a request, or nil if there is no valid session. The cookie and the path must
// belong to the same session.
func (c *Console) sessionOf(r *http.Request) *session {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	var s session
	if !c.open(sessionPurpose, cookie.Value, &s) || s.Until < time.Now().Unix() || s.Token == "" || !c.isAccepted(s.Who) {
		return nil
	}
	if subtle.ConstantTimeCompare([]byte(r.PathValue("home")), []byte(s.Home)) != 1 {
		return nil
	}
	if ended, err := c.ended(r.Context(), &s); err != nil || ended {
		return nil
	}
	return &s
}

// ended reports whether a session has ended early. This is the case if the person has signed out, or if the session's
// key or token is invalid.
func (c *Console) ended(ctx context.Context, s *session) (bool, error) {
	if out, err := c.SignedOut(ctx, s.id()); err != nil || out {
		return out, err
	}
	err := c.o.Backend.Standing(ctx, s.Who)
	if _, refused := errors.AsType[*call.Refusal](err); refused {
		return true, nil
	}
	return false, err
}

// SignedOut reports whether the person has signed out of the session with this id. The answer is reliable until the
// session expires.
func (c *Console) SignedOut(ctx context.Context, session string) (bool, error) {
	return c.o.SingleUse.Spent(ctx, session)
}

// base returns the path of the session's pages.
func (s *session) base() string { return sessionPrefix + s.Home + "/" }

// id returns the id under which a closed session is recorded.
func (s *session) id() string { return "console session " + s.Token }

const maxForm = 1 << 20

// signedIn returns a handler that passes requests with a valid session to the given page. Requests other than GET must
// also contain the session's form token.
func (c *Console) signedIn(next page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := c.sessionOf(r)
		if s == nil {
			if r.Method == http.MethodGet {
				c.signInFirst(w, r)
				return
			}
			http.Error(w, "sign in first", http.StatusUnauthorized)
			return
		}
		if r.Method != http.MethodGet {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			if subtle.ConstantTimeCompare([]byte(r.PostFormValue("token")), []byte(s.Token)) != 1 {
				c.failed(w, r, s, http.StatusForbidden, "This form belongs to another session.",
					"Go back, reload the page, and try again.")
				return
			}
		}
		c.watchActivity()
		// The key may expire while the call waits for approval. The gateway therefore checks the key again after the wait.
		still := func(ctx context.Context) error { return c.o.Backend.Standing(ctx, s.Who) }
		next(c, w, r.WithContext(call.WithStanding(r.Context(), still)), s)
	})
}
