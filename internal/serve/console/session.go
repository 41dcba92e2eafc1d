package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

const (
	cookieName = "ambit_console"
	// linkLife is how long a sign-in link is valid, sessionLife how long a person stays signed in.
	linkLife    = 10 * time.Minute
	sessionLife = 12 * time.Hour

	// homes is the prefix of every session's own address.
	homes = "/console/"

	linkPurpose    = "console/link"
	sessionPurpose = "console/session"
)

// link is the sealed content of a sign-in link. Who names the key or token of the link: neither the
// link nor its session is valid for longer.
type link struct {
	ID    string              `json:"i"`
	Who   *identity.Principal `json:"p"`
	Until int64               `json:"u"`
}

// session is the sealed content of a cookie. Token is sent along with forms. Home is the part of
// the address that cannot be guessed.
type session struct {
	Who   *identity.Principal `json:"p"`
	Home  string              `json:"h"`
	Token string              `json:"t"`
	Until int64               `json:"u"`
}

// Link returns the path of a link that signs a person in once.
func (c *Console) Link(p *identity.Principal) string {
	who := &identity.Principal{Name: p.Name, Kind: p.Kind, KeyID: p.KeyID, Until: p.Until}
	if who.Kind == identity.Local {
		who.KeyID = c.daemonKey
	}
	return "/login?ticket=" + c.seal(linkPurpose, link{ID: rand.Text(), Who: who, Until: until(who, linkLife)})
}

// until returns the end of a lifetime, bounded by the principal's own.
func until(who *identity.Principal, life time.Duration) int64 {
	end := time.Now().Add(life)
	if !who.Until.IsZero() && who.Until.Before(end) {
		end = who.Until
	}
	return end.Unix()
}

// ours reports whether a principal may use this daemon's console. The temporary key of another
// daemon may not: no store records that it has ended, and the keys that seal cookies outlive it.
func (c *Console) ours(who *identity.Principal) bool {
	return who != nil && (who.Kind != identity.Local || who.KeyID == c.daemonKey)
}

func (c *Console) seal(purpose string, what any) string {
	plain, err := json.Marshal(what)
	if err != nil {
		panic(err) // only strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(c.o.Keys.Seal(purpose, plain))
}

func (c *Console) open(purpose, text string, into any) bool {
	if len(text) > 4<<10 {
		return false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	plain, err := c.o.Keys.Open(purpose, sealed)
	return err == nil && json.Unmarshal(plain, into) == nil
}

// loginPage shows a button, because link previews must not use up a link. The script presses it.
func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	c.show(w, r, nil, http.StatusOK, "login", "Sign in", "", map[string]string{"Ticket": r.URL.Query().Get("ticket")})
}

// signInFirst answers requests without a session, or at an address that is not the session's.
func (c *Console) signInFirst(w http.ResponseWriter, r *http.Request) {
	c.show(w, r, nil, http.StatusUnauthorized, "login", "Sign in", "", map[string]string{})
}

func (c *Console) loginFailed(w http.ResponseWriter, r *http.Request, status int, problem string) {
	c.show(w, r, nil, status, "login", "Sign in", "", map[string]string{"Problem": problem})
}

// maxLogin bounds the size of a request without a session.
const maxLogin = 16 << 10

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	if _, large := errors.AsType[*http.MaxBytesError](r.ParseForm()); large {
		c.loginFailed(w, r, http.StatusRequestEntityTooLarge, "The request is larger than any sign-in link.")
		return
	}
	var l link
	good := c.open(linkPurpose, r.PostForm.Get("ticket"), &l) && l.Until >= time.Now().Unix() &&
		c.ours(l.Who) && c.o.Backend.Standing(r.Context(), l.Who) == nil
	if good {
		var err error
		if good, err = c.o.SingleUse.Spend(r.Context(), "console link "+l.ID, time.Unix(l.Until, 0)); err != nil {
			c.unavailable(w, r, nil, "Signing in is not possible at the moment.", err)
			return
		}
	}
	if !good {
		c.loginFailed(w, r, http.StatusForbidden,
			"This link has been used, has expired, or belongs to a key that is no longer valid.")
		return
	}
	s := session{Who: l.Who, Home: rand.Text(), Token: rand.Text(), Until: until(l.Who, sessionLife)}
	http.SetCookie(w, c.cookie(&s, c.seal(sessionPurpose, s), int(s.Until-time.Now().Unix())))
	http.Redirect(w, r, s.base(), http.StatusSeeOther)
}

// logout ends a session: copies of its cookie are invalid too.
func (c *Console) logout(w http.ResponseWriter, r *http.Request, s *session) {
	if _, err := c.o.SingleUse.Spend(r.Context(), s.id(), time.Unix(s.Until, 0)); err != nil {
		c.unavailable(w, r, s, "You are still signed in: signing out failed.", err)
		return
	}
	http.SetCookie(w, c.cookie(s, "", -1))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// cookie returns a cookie that browsers send to the pages of its session only.
func (c *Console) cookie(s *session, value string, life int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: s.base(), MaxAge: life,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.o.Secure,
	}
}

// sessionOf returns the session of a request, or nil. A cookie is valid at its own address only.
func (c *Console) sessionOf(r *http.Request) *session {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	var s session
	if !c.open(sessionPurpose, cookie.Value, &s) || s.Until < time.Now().Unix() || s.Token == "" || !c.ours(s.Who) {
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

// ended reports whether a session ended early: the person signed out, or the key or token of the
// session is no longer valid.
func (c *Console) ended(ctx context.Context, s *session) (bool, error) {
	if spent, err := c.o.SingleUse.Spent(ctx, s.id()); err != nil || spent {
		return spent, err
	}
	err := c.o.Backend.Standing(ctx, s.Who)
	if _, refused := errors.AsType[*call.Refusal](err); refused {
		return true, nil
	}
	return false, err
}

// base is the prefix of the addresses of a session's pages.
func (s *session) base() string { return homes + s.Home + "/" }

// id names the session among the ended ones.
func (s *session) id() string { return "console session " + s.Token }

// maxForm bounds the size of a form.
const maxForm = 1 << 20

// signedIn requires a session, and its form token for changes.
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
		// A call may wait for approval for longer than the key is valid.
		still := func(ctx context.Context) error { return c.o.Backend.Standing(ctx, s.Who) }
		next(c, w, r.WithContext(call.WithStanding(r.Context(), still)), s)
	})
}
