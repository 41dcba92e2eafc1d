package signin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Session adds tokens to the requests to one remote server, and handles the server's refusals.
type Session struct {
	keeper *Keeper
	target Target
	// browser lets a person sign in. If it is nil, requests that need a sign-in are refused.
	browser Browser
	scopes  []string // requested in addition to the scopes that the server names
	// id is the id of the only sign-in whose tokens the session uses. If it is "", the session uses any sign-in of the
	// principal. If there is no sign-in, the session sends requests without a token.
	id string

	mu      sync.Mutex // held during a sign-in
	signIns int

	nonce atomic.Value // the nonce that the server requires in proofs (DPoP)

	// asBearer is the key-bound token that the server refused because the server does not know the scheme DPoP. After
	// this refusal, the session sends tokens with the scheme Bearer, which such a server accepts (RFC 9449, section
	// 7.2).
	asBearer atomic.Pointer[string]

	// refused is the token of the last request that was refused for lack of a valid sign-in. It points to "" if the
	// request had no token.
	refused atomic.Pointer[string]
}

// maxSignIns is the maximum number of times that a session asks the person to sign in. Without this limit, a server
// could ask for more and more scopes.
const maxSignIns = 3

// maxNonceTries is the maximum number of times that a request is sent again because the server asks for a nonce.
const maxNonceTries = 3

// Session returns a session. A session with a browser lets a person sign in, and requests the given additional
// scopes. It reuses the client and the scopes of an earlier sign-in, but not its tokens.
func (k *Keeper) Session(t Target, b Browser, scopes ...string) *Session {
	return &Session{keeper: k, target: t, browser: b, scopes: scopes}
}

// Header adds the token of the principal's sign-in to a request. It returns the token, or "" if there is none.
func (s *Session) Header(ctx context.Context, h http.Header) (string, error) {
	if s.fresh() || s.target.Principal == noPrincipal {
		return "", nil
	}
	g, err := s.keeper.current(ctx, &s.target)
	switch {
	case err == nil && s.id != "" && (g.Access == "" || g.key() != s.id):
		// Without a token, the server may recognize the session by its id and answer the request, so refuse the
		// request here.
		return "", s.target.ended()
	case err != nil || g.Access == "":
		return "", err
	case g.Key != nil && s.asBearer.Load() == nil:
		h.Set("Authorization", typeDPoP+" "+g.Access)
	default:
		h.Set("Authorization", "Bearer "+g.Access)
	}
	return g.Access, nil
}

// credentials returns the scheme and the token of a request.
func credentials(req *http.Request) (scheme, token string) {
	scheme, token, _ = strings.Cut(req.Header.Get("Authorization"), " ")
	return scheme, token
}

// Refused handles a response with status 401 or 403. It reports whether the request must be sent again. The parameter
// try is the number of earlier refusals of the request.
func (s *Session) Refused(
	ctx context.Context, req *http.Request, resp *http.Response, try int,
) (again bool, err error) {
	challenges, err := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate"))
	if err != nil {
		challenges = nil // find the authorization server without a challenge
	}
	scheme, sent := credentials(req)
	if scheme == typeDPoP && resp.StatusCode == http.StatusUnauthorized {
		if nonce := nonceOf(resp); nonce != "" && parameter(challenges, "error") == nonceWanted {
			s.nonce.Store(nonce)
			return try < maxNonceTries, nil
		}
		if !slices.ContainsFunc(challenges, isDPoP) {
			s.asBearer.Store(&sent)
			return true, nil
		}
		try = max(0, try-1) // the first refusal may have been only for the missing nonce
	}
	if token := s.asBearer.Load(); token != nil && *token == sent {
		try = max(0, try-1) // the first refusal was for the scheme
	}
	if resp.StatusCode == http.StatusForbidden {
		if parameter(challenges, "error") != "insufficient_scope" {
			return false, nil
		}
		return s.stepUp(ctx, sent, challenges)
	}
	if foreign(challenges) {
		return false, nil
	}
	u, err := s.keeper.upstream(s.target.Endpoint)
	switch {
	case err != nil:
		return false, s.target.unusable(err)
	case u.Grant != "" && s.target.Principal != noPrincipal:
		return s.obtain(ctx, sent, challenges, u, try)
	case s.fresh():
		return s.signIn(ctx, sent, challenges)
	}
	g, err := s.keeper.load(&s.target)
	if err == nil && try == 0 && sent != "" && g.Access == sent {
		g, err = s.keeper.renew(ctx, &s.target, sent)
	}
	switch {
	case err != nil:
		return false, s.target.unusable(err)
	case g.Access != "" && g.Access != sent:
		return true, nil // this call or another one has renewed the token
	case s.browser != nil:
		return s.signIn(ctx, sent, challenges)
	}
	s.refused.Store(&sent)
	if sent != "" || g.Issuer != "" {
		return false, s.target.ended()
	}
	return false, s.target.NotSignedIn()
}

// obtain requests a token without a person and stores it. If several calls find an expired token, only one of them
// requests a new token. A failed token request is not repeated.
func (s *Session) obtain(
	ctx context.Context, sent string, challenges []oauthex.Challenge, u Upstream, try int,
) (again bool, err error) {
	k, t := s.keeper, &s.target
	claim, unlock, err := k.lock(ctx, t)
	if err != nil {
		return false, t.unusable(err)
	}
	defer unlock()
	g, err := k.load(t)
	switch {
	case err != nil:
		return false, t.unusable(err)
	case g.good(k.now()) && g.Access != sent:
		return true, nil
	case try > 0:
		err = errors.New("the server refuses a new token")
	default:
		if g, err = k.obtain(ctx, t, challenges, u); err == nil {
			err = k.save(t, g, claim)
		}
		s.mu.Lock()
		s.signIns++ // from now on, a session with a browser uses this token
		s.mu.Unlock()
	}
	if err != nil {
		r := t.failed(err)
		r.Hint = "check [upstream.\"HOST\"] in config.toml and the secret of the client"
		return false, r
	}
	return true, nil
}

// Missing reports whether the server refused the last request for lack of a valid sign-in, and the sign-in has not
// changed since.
func (s *Session) Missing() bool {
	sent := s.refused.Load()
	if sent == nil || s.target.Principal == noPrincipal {
		return sent != nil
	}
	g, err := s.keeper.load(&s.target)
	if err == nil && g.Access != *sent {
		s.refused.Store(nil)
		return false
	}
	return true
}

// foreign reports whether a server accepts only authentication schemes other than Bearer and DPoP, such as Basic.
func foreign(challenges []oauthex.Challenge) bool {
	return len(challenges) > 0 && !slices.ContainsFunc(challenges, isToken)
}

// stepUp handles a server that asks for more scopes.
func (s *Session) stepUp(ctx context.Context, sent string, challenges []oauthex.Challenge) (again bool, err error) {
	g, err := s.keeper.load(&s.target)
	if err != nil {
		return false, s.target.unusable(err)
	}
	if g.Access != "" && g.Access != sent {
		return true, nil
	}
	missing := slices.DeleteFunc(strings.Fields(parameter(challenges, "scope")), func(scope string) bool {
		return slices.Contains(g.Scopes, scope)
	})
	if len(missing) == 0 {
		return false, s.target.refuse("server %s still asks for scopes that this sign-in has already requested",
			s.target.Server)
	}
	if s.browser == nil {
		r := s.target.refuse("server %s needs additional scopes: %s", s.target.Server, diag.Quote(strings.Join(missing, " ")))
		r.Hint = "if the agent may have these scopes, run: " +
			s.target.command("--scope "+diag.ShellWord(strings.Join(missing, ","))+" ")
		return false, r
	}
	return s.signIn(ctx, sent, challenges)
}

// SignIn lets a person sign in, even if the server has not refused a request yet. Some servers require a sign-in only
// for some requests.
func (s *Session) SignIn(ctx context.Context) error {
	_, err := s.signIn(ctx, "", nil)
	return err
}

// Done reports whether a person has signed in with this session.
func (s *Session) Done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signIns > 0
}

// fresh reports whether the session still waits for its new sign-in. Such a session sends no old token, because the
// person asked to sign in again.
func (s *Session) fresh() bool { return s.browser != nil && !s.Done() }

// signIn lets a person sign in and stores the tokens. It does nothing if another request of this session has
// completed a sign-in in the meantime.
func (s *Session) signIn(ctx context.Context, sent string, challenges []oauthex.Challenge) (again bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, t := s.keeper, &s.target
	old, err := k.load(t)
	switch {
	case err != nil:
		return false, t.unusable(err)
	case s.signIns > 0 && old.Access != "" && old.Access != sent:
		return true, nil
	case s.signIns == maxSignIns:
		return false, t.refuse("server %s still refuses the token after %d sign-ins", t.Server, maxSignIns)
	}
	s.signIns++
	g, err := k.authorize(ctx, s.browser, t, challenges, old, s.scopes)
	if err != nil {
		return false, t.failed(err)
	}
	if err := k.replace(ctx, t, g); err != nil {
		return false, t.unusable(err)
	}
	return true, nil
}

// replace stores a new sign-in and revokes the tokens of the old one.
func (k *Keeper) replace(ctx context.Context, t *Target, g *grant) error {
	claim, unlock, err := k.lock(ctx, t)
	if err != nil {
		return err
	}
	defer unlock()
	old, err := k.load(t) // another process may have renewed the old sign-in
	if err == nil {
		err = k.save(t, g, claim)
	}
	if err == nil {
		// The new sign-in works even if the old tokens stay valid until they expire, so ignore the error.
		_ = k.revoke(ctx, old)
	}
	return err
}

// failed returns the refusal for a sign-in that failed.
func (t *Target) failed(err error) *call.Refusal {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		why := *r
		return &why
	}
	r := t.refuse("signing in to server %s failed: %v", t.Server, err)
	if errors.Is(err, errNoClient) {
		r.Hint = "register ambit with the authorization server as a native application, and write client_id and issuer " +
			"under [upstream.\"HOST\"] in config.toml"
	}
	return r
}
