package console

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"
)

const (
	cookieName = "ambit_console"
	// linkLife is how long a link to sign in is good, sessionLife how long
	// somebody stays signed in.
	linkLife    = 10 * time.Minute
	sessionLife = 12 * time.Hour

	linkPurpose    = "console/link"
	sessionPurpose = "console/session"
)

// link is what an address to sign in holds, sealed.
type link struct {
	ID    string `json:"i"`
	Who   string `json:"w"`
	Until int64  `json:"u"`
}

// session is what a cookie holds, sealed. Token is what forms send along.
type session struct {
	Who   string `json:"w"`
	Token string `json:"t"`
	Until int64  `json:"u"`
}

// Link is the path of a link that signs a person in, once.
func (c *Console) Link(who string) string {
	return "/login?ticket=" + c.seal(linkPurpose, link{ID: rand.Text(), Who: who, Until: time.Now().Add(linkLife).Unix()})
}

func (c *Console) seal(purpose string, what any) string {
	plain, err := json.Marshal(what)
	if err != nil {
		panic(err) // they are strings and numbers
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

// loginPage shows a button, because whoever looks at links before a person does
// must not use them up. The script presses it.
func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	c.show(w, r, nil, http.StatusOK, "login", "Sign in", "", map[string]string{"Ticket": r.URL.Query().Get("ticket")})
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	var l link
	good := c.open(linkPurpose, r.PostFormValue("ticket"), &l) && l.Until >= time.Now().Unix()
	if good {
		var err error
		if good, err = c.o.House.Spend(r.Context(), "console link "+l.ID, time.Unix(l.Until, 0)); err != nil {
			c.broken(w, r, nil, "You cannot be signed in at the moment.", err)
			return
		}
	}
	if !good {
		c.show(w, r, nil, http.StatusForbidden, "login", "Sign in", "", map[string]string{"Problem": "This link was used before, or is too old."})
		return
	}
	s := session{Who: l.Who, Token: rand.Text(), Until: time.Now().Add(sessionLife).Unix()}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: c.seal(sessionPurpose, s), Path: "/", MaxAge: int(sessionLife.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.o.Secure,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// logout ends a session everywhere: its cookie opens nothing any more.
func (c *Console) logout(w http.ResponseWriter, r *http.Request, s *session) {
	if _, err := c.o.House.Spend(r.Context(), s.id(), time.Unix(s.Until, 0)); err != nil {
		c.broken(w, r, s, "You could not be signed out.", err)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.o.Secure})
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// who is the session of a request, nil if there is none.
func (c *Console) who(r *http.Request) *session {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	var s session
	if !c.open(sessionPurpose, cookie.Value, &s) || s.Until < time.Now().Unix() || s.Token == "" {
		return nil
	}
	if ended, err := c.o.House.IsSpent(r.Context(), s.id()); err != nil || ended {
		return nil
	}
	return &s
}

// id is what a session is known by when it has ended.
func (s *session) id() string { return "console session " + s.Token }

// maxForm bounds what a form may send.
const maxForm = 1 << 20

// signedIn lets somebody pass who has a session, and forms that carry its token.
func (c *Console) signedIn(next page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := c.who(r)
		if s == nil {
			if r.Method == http.MethodGet && r.URL.Path != "/live" {
				c.show(w, r, nil, http.StatusUnauthorized, "login", "Sign in", "", map[string]string{})
				return
			}
			http.Error(w, "sign in first", http.StatusUnauthorized)
			return
		}
		if r.Method != http.MethodGet {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			if subtle.ConstantTimeCompare([]byte(r.PostFormValue("token")), []byte(s.Token)) != 1 {
				c.sorry(w, r, s, http.StatusForbidden, "This form is not of this session.", "Go back, reload the page, and try again.")
				return
			}
		}
		c.seen()
		next(c, w, r, s)
	})
}
