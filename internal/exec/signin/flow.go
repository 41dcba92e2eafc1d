package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/net/http/httpguts"
	"golang.org/x/oauth2"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Browser shows a page to a person and returns what the page sends back.
type Browser interface {
	redirector
	// Visit shows a page and waits for the answer with the given state.
	Visit(ctx context.Context, page, state string) (url.Values, error)
}

type redirector interface {
	// Redirect returns the address to which the page must return. The preferred port comes from an earlier sign-in or the
	// settings. It may be 0.
	Redirect(ctx context.Context, port int) (string, error)
}

const (
	maxToken  = 16 << 10 // the maximum length of a token
	maxScopes = 4 << 10  // the maximum length of all requested scopes
	offline   = "offline_access"
)

// visit is a sign-in whose page the person has not answered yet.
type visit struct {
	Target    Target   `json:"target"`
	Client    client   `json:"client"`
	Resource  string   `json:"resource"`
	Issuer    string   `json:"issuer"`
	TokenURL  string   `json:"token_endpoint"`
	RevokeURL string   `json:"revocation_endpoint,omitempty"`
	Scopes    []string `json:"scopes,omitempty"`
	Verifier  string   `json:"verifier"`
	State     string   `json:"state"`
	// SendsIssuer reports whether the answer must contain the issuer (RFC 9207).
	SendsIssuer bool     `json:"sends_issuer,omitempty"`
	Proofs      []string `json:"proofs,omitempty"`
}

// authorize asks a person to sign in and returns the new sign-in. If the old sign-in, which may be empty, is for the
// same authorization server, authorize reuses its client and scopes.
func (k *Keeper) authorize(
	ctx context.Context, b Browser, t *Target, challenges []oauthex.Challenge, old *grant, more []string,
) (*grant, error) {
	v, page, err := k.begin(ctx, b, t, challenges, old, more)
	if err != nil {
		return nil, err
	}
	answer, err := b.Visit(ctx, page, v.State)
	if err != nil {
		return nil, err
	}
	return k.finish(ctx, v, answer)
}

// begin prepares a sign-in and returns the address of the page.
func (k *Keeper) begin(
	ctx context.Context, b redirector, t *Target, challenges []oauthex.Challenge, old *grant, more []string,
) (v *visit, page string, err error) {
	u, err := k.upstream(t.Endpoint)
	if err != nil {
		return nil, "", err
	}
	p, err := k.discover(ctx, t.Endpoint, challenges, u)
	if err != nil {
		return nil, "", err
	}
	if p.AuthorizationEndpoint == "" {
		return nil, "", fmt.Errorf("the authorization server %s has no sign-in page", diag.Quote(p.Issuer))
	}
	if old.Issuer != p.Issuer {
		old = &grant{} // another authorization server cannot use the clients, scopes and tokens of the old sign-in
	}
	redirect, err := b.Redirect(ctx, preferredPort(u, old.Client))
	if err != nil {
		return nil, "", err
	}
	c, err := k.register(ctx, p, u, old.Client, redirect)
	if err != nil {
		return nil, "", err
	}
	scopes := chooseScopes(p, u, parameter(challenges, "scope"), slices.Concat(old.Scopes, more))
	if length := len(strings.Join(scopes, " ")); length > maxScopes {
		return nil, "", fmt.Errorf("the server asks for scopes with %d bytes in total; the limit is %d", length, maxScopes)
	}
	v = &visit{
		Target: *t, Client: c, Resource: p.resource, Issuer: p.Issuer, TokenURL: p.TokenEndpoint,
		RevokeURL: p.RevocationEndpoint, Scopes: scopes, Verifier: oauth2.GenerateVerifier(), State: rand.Text(),
		SendsIssuer: p.AuthorizationResponseIssParameterSupported, Proofs: p.proofs,
	}
	config := v.config()
	config.Endpoint.AuthURL, config.Scopes = p.AuthorizationEndpoint, scopes
	options := []oauth2.AuthCodeOption{
		oauth2.S256ChallengeOption(v.Verifier), oauth2.SetAuthURLParam("resource", v.Resource),
	}
	if slices.Contains(scopes, offline) {
		options = append(options, oauth2.SetAuthURLParam("prompt", "consent")) // see OpenID Connect Core, section 11
	}
	return v, config.AuthCodeURL(v.State, options...), nil
}

func (v *visit) config() *oauth2.Config {
	config := v.Client.config(v.TokenURL)
	config.RedirectURL = v.Client.Redirect
	return config
}

// finish checks the code in the answer of the sign-in page and exchanges it for tokens.
func (k *Keeper) finish(ctx context.Context, v *visit, answer url.Values) (*grant, error) {
	code, err := v.readAnswer(answer)
	if err != nil {
		return nil, err
	}
	key, err := newProofKey(v.Proofs)
	if err != nil {
		return nil, err
	}
	token, err := v.config().Exchange(k.withClient(ctx, key), code,
		oauth2.VerifierOption(v.Verifier), oauth2.SetAuthURLParam("resource", v.Resource))
	if err != nil {
		return nil, fmt.Errorf("the authorization server %s did not exchange the code for a token: %w",
			diag.Quote(v.Issuer), codeOnly(err))
	}
	g := &grant{
		ID: rand.Text(), Principal: v.Target.Principal, Resource: v.Resource, Issuer: v.Issuer, Client: v.Client,
		TokenURL: v.TokenURL, RevokeURL: v.RevokeURL, Scopes: v.Scopes, Key: key,
	}
	return g, g.accept(token)
}

// chooseScopes returns the scopes to request. It uses the scopes in the settings, or else those in the challenge, or
// else those in the server's metadata. It adds the scopes of earlier sign-ins, so that signing in again removes no
// rights.
func chooseScopes(p *provider, u Upstream, challenged string, earlier []string) []string {
	scopes := strings.Fields(challenged)
	switch {
	case len(u.Scopes) > 0:
		scopes = slices.Clone(u.Scopes)
	case len(scopes) == 0:
		scopes = slices.Clone(p.scopes)
	}
	if slices.Contains(p.ScopesSupported, offline) {
		scopes = append(scopes, offline)
	}
	var all []string
	for _, s := range slices.Concat(earlier, scopes) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// readAnswer returns the code in the answer of an authorization page.
func (v *visit) readAnswer(answer url.Values) (string, error) {
	if !sameState(answer.Get("state"), v.State) {
		return "", errors.New(`the "state" in the answer does not match this sign-in; begin the sign-in again`)
	}
	// Check the issuer (RFC 9207). Otherwise, a malicious server could send the person to another authorization
	// server, and obtain a code of that server.
	iss, sent := answer["iss"]
	switch {
	case sent && !slices.Equal(iss, []string{v.Issuer}):
		return "", fmt.Errorf("the issuer in the answer is not the authorization server %s", diag.Quote(v.Issuer))
	case !sent && v.SendsIssuer:
		return "", fmt.Errorf("the answer does not name its issuer, but the authorization server %s always does",
			diag.Quote(v.Issuer))
	}
	if code := answer.Get("error"); code != "" {
		return "", &oauthError{code: code}
	}
	if code := answer["code"]; len(code) == 1 && code[0] != "" {
		return code[0], nil
	}
	return "", errors.New("the answer contains no authorization code")
}

func sameState(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// accept checks the tokens in the answer of a token endpoint and stores them in the grant.
func (g *grant) accept(t *oauth2.Token) error {
	bound := strings.EqualFold(t.Type(), typeDPoP)
	switch {
	case bound && g.Key == nil || !bound && !strings.EqualFold(t.Type(), "bearer"):
		return fmt.Errorf("the token has the unknown type %s", diag.Quote(t.Type()))
	case !bound && g.Key != nil && g.Access != "":
		return errors.New("the new token is not bound to the sign-in's key (DPoP), although the old token was")
	case t.AccessToken == "" || len(t.AccessToken) > maxToken || !httpguts.ValidHeaderFieldValue(t.AccessToken) ||
		strings.ContainsAny(t.AccessToken, " \t"):
		return errors.New("the authorization server's answer contains no usable token")
	case len(t.RefreshToken) > maxToken:
		return errors.New("the refresh token is too long")
	}
	if !bound {
		g.Key = nil // the authorization server announced DPoP, but did not use it
	}
	g.Access, g.Expires = t.AccessToken, t.Expiry.UTC()
	if t.RefreshToken != "" {
		g.Refresh = t.RefreshToken
	}
	return nil
}

// oauthError is the code of an OAuth error response. Its message contains no other text of the response. Such text
// comes from a stranger and may repeat secrets, and a model reads the message. For the same reasons, an invalid code
// is omitted.
type oauthError struct {
	code   string
	status int // the HTTP status of a response without a code
}

var isErrorCode = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`).MatchString

func (e *oauthError) Error() string {
	switch {
	case e.code == "access_denied":
		return "the sign-in was refused on the page"
	case isErrorCode(e.code):
		return "it answered with the error " + diag.Quote(e.code)
	case e.status != 0:
		return "it answered with status " + strconv.Itoa(e.status)
	}
	return "it answered with an error"
}

// asOAuthError returns the OAuth error response in an error.
func asOAuthError(err error) (*oauthError, bool) {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return &oauthError{e.ErrorCode, e.Response.StatusCode}, true
	}
	if e, ok := errors.AsType[*oauthex.ClientRegistrationError](err); ok {
		return &oauthError{code: e.ErrorCode}, true
	}
	e, ok := errors.AsType[*oauthError](err)
	return e, ok
}

func preferredPort(u Upstream, c client) int {
	if u.Port != 0 {
		return u.Port
	}
	return portOf(c.Redirect)
}
