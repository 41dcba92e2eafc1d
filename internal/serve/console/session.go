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
	// linkLife is how long a link to sign in is good, sessionLife how long
	// somebody stays signed in.
	linkLife    = 10 * time.Minute
	sessionLife = 12 * time.Hour

	// homes is where every session has an address of its own.
	homes = "/console/"

	linkPurpose    = "console/link"
	sessionPurpose = "console/session"
)

// link is what an address to sign in holds, sealed. Who also says with which key or
// token it was made: neither it nor its session is good for longer than that.
type link struct {
	ID    string              `json:"i"`
	Who   *identity.Principal `json:"p"`
	Until int64               `json:"u"`
}

// session is what a cookie holds, sealed. Token is what forms send along. Home is the
// part of its pages' address that nobody can guess.
type session struct {
	Who   *identity.Principal `json:"p"`
	Home  string              `json:"h"`
	Token string              `json:"t"`
	Until int64               `json:"u"`
}

// Link is the path of a link that signs a person in, once.
func (c *Console) Link(p *identity.Principal) string {
	who := &identity.Principal{Name: p.Name, Kind: p.Kind, KeyID: p.KeyID, Until: p.Until}
	if who.Kind == identity.Local {
		who.KeyID = c.own
	}
	return "/login?ticket=" + c.seal(linkPurpose, link{ID: rand.Text(), Who: who, Until: until(who, linkLife)})
}

// until is when something ends that somebody has for a while.
func until(who *identity.Principal, life time.Duration) int64 {
	end := time.Now().Add(life)
	if !who.Until.IsZero() && who.Until.Before(end) {
		end = who.Until
	}
	return end.Unix()
}

// ours reports whether somebody came by a key that is not another daemon's passing
// one: no store tells that such a key is over, and what opens a cookie outlives it.
func (c *Console) ours(who *identity.Principal) bool {
	return who != nil && (who.Kind != identity.Local || who.KeyID == c.own)
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

// stranger answers whoever is not signed in, or not at this address.
func (c *Console) stranger(w http.ResponseWriter, r *http.Request) {
	c.show(w, r, nil, http.StatusUnauthorized, "login", "Sign in", "", map[string]string{})
}

// maxLogin bounds what a stranger may send.
const maxLogin = 16 << 10

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	if _, large := errors.AsType[*http.MaxBytesError](r.ParseForm()); large {
		c.show(w, r, nil, http.StatusRequestEntityTooLarge, "login", "Sign in", "", map[string]string{"Problem": "This is larger than any link."})
		return
	}
	var l link
	good := c.open(linkPurpose, r.PostForm.Get("ticket"), &l) && l.Until >= time.Now().Unix() && c.ours(l.Who) && c.o.House.Standing(r.Context(), l.Who) == nil
	if good {
		var err error
		if good, err = c.o.House.Spend(r.Context(), "console link "+l.ID, time.Unix(l.Until, 0)); err != nil {
			c.broken(w, r, nil, "You cannot be signed in at the moment.", err)
			return
		}
	}
	if !good {
		c.show(w, r, nil, http.StatusForbidden, "login", "Sign in", "", map[string]string{"Problem": "This link was used before, or is too old, or its key is not good any more."})
		return
	}
	s := session{Who: l.Who, Home: rand.Text(), Token: rand.Text(), Until: until(l.Who, sessionLife)}
	http.SetCookie(w, c.cookie(&s, c.seal(sessionPurpose, s), int(s.Until-time.Now().Unix())))
	http.Redirect(w, r, s.base(), http.StatusSeeOther)
}

// logout ends a session everywhere: its cookie opens nothing any more.
func (c *Console) logout(w http.ResponseWriter, r *http.Request, s *session) {
	if _, err := c.o.House.Spend(r.Context(), s.id(), time.Unix(s.Until, 0)); err != nil {
		c.broken(w, r, s, "You could not be signed out.", err)
		return
	}
	http.SetCookie(w, c.cookie(s, "", -1))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// cookie is one that a browser sends to the pages of its session and nowhere else.
func (c *Console) cookie(s *session, value string, life int) *http.Cookie {
	return &http.Cookie{Name: cookieName, Value: value, Path: s.base(), MaxAge: life, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.o.Secure}
}

// who is the session of a request, nil if there is none: a cookie opens nothing but
// its own address.
func (c *Console) who(r *http.Request) *session {
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
	if over, err := c.over(r.Context(), &s); err != nil || over {
		return nil
	}
	return &s
}

// over reports whether a session has ended before its time: its person has signed
// out, or what they signed in with is not good any more.
func (c *Console) over(ctx context.Context, s *session) (bool, error) {
	if ended, err := c.o.House.IsSpent(ctx, s.id()); err != nil || ended {
		return ended, err
	}
	err := c.o.House.Standing(ctx, s.Who)
	if _, refused := errors.AsType[*call.Refusal](err); refused {
		return true, nil
	}
	return false, err
}

// base is what the addresses of a session's pages begin with.
func (s *session) base() string { return homes + s.Home + "/" }

// id is what a session is known by when it has ended.
func (s *session) id() string { return "console session " + s.Token }

// maxForm bounds what a form may send.
const maxForm = 1 << 20

// signedIn lets somebody pass who has a session, and forms that carry its token.
func (c *Console) signedIn(next page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := c.who(r)
		if s == nil {
			if r.Method == http.MethodGet {
				c.stranger(w, r)
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
		// A call may wait for a person for longer than the key is good.
		still := func(ctx context.Context) error { return c.o.House.Standing(ctx, s.Who) }
		next(c, w, r.WithContext(call.WithStanding(r.Context(), still)), s)
	})
}
