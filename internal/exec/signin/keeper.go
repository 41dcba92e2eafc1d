package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/store/home"
)

// Keeper stores sign-ins, and renews and revokes their tokens.
type Keeper struct {
	home      home.Home
	vault     credential.Vault
	shared    *sharedStorage // nil, except in a daemon
	address   atomic.Pointer[string]
	egress    *egress.Client
	client    *http.Client
	upstreams func() (map[string]Upstream, error)
	now       func() time.Time

	mu    sync.Mutex
	given []string // the tokens that were used, oldest first
}

// New returns a keeper. The keeper sends all requests to authorization servers through the client c. The caller must
// close this client.
func New(h home.Home, v credential.Vault, c *egress.Client) *Keeper {
	return &Keeper{
		home: h, vault: v, egress: c, client: newClient(c), now: time.Now,
		upstreams: func() (map[string]Upstream, error) { return ReadUpstreams(h.Config()) },
	}
}

// load returns the sign-in for a target. The result is empty if no sign-in is stored, or if the stored one belongs to
// another agent, host, resource or principal.
func (k *Keeper) load(t *Target) (*grant, error) {
	if t.Agent == "" || t.Agent == credential.Own {
		return &grant{}, nil // the vault stores no sign-in for an agent without a name or with ambit's own name
	}
	s, found, err := k.storageOf(t.Principal).get(t)
	if err != nil || !found {
		return &grant{}, err
	}
	g, err := unseal(s)
	if err != nil {
		return nil, err
	}
	if !g.fits(t, s) {
		return &grant{}, nil
	}
	return g, nil
}

// save stores a sign-in. The claim is the result of lock, or "" if the caller does not hold the lock.
func (k *Keeper) save(t *Target, g *grant, claim string) error {
	host, err := egress.Audience(t.Endpoint)
	if err != nil {
		return err
	}
	text, err := g.seal()
	if err != nil {
		return err
	}
	s, err := credential.New(credential.JSON, text, []string{host})
	if err != nil {
		return err
	}
	return k.storageOf(t.Principal).set(t, s.Of(t.ID), claim)
}

// lock keeps other processes from changing the sign-in for a target.
func (k *Keeper) lock(ctx context.Context, t *Target) (claim string, unlock func(), err error) {
	return k.storageOf(t.Principal).lock(ctx, t)
}

// renew exchanges the refresh token of a sign-in for new tokens. It does nothing if another process or call has
// already replaced the spent access token. If the authorization server rejects the refresh token, renew removes the
// tokens.
func (k *Keeper) renew(ctx context.Context, t *Target, spent string) (*grant, error) {
	// Continue even if the caller disconnects, because the server may already have invalidated the old refresh token.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	claim, unlock, err := k.lock(ctx, t)
	if err != nil {
		return nil, err
	}
	defer unlock()
	g, err := k.load(t)
	if err != nil || g.Access != spent || g.Access == "" {
		return g, err
	}
	if g.Refresh == "" {
		return &grant{}, nil
	}
	if err := k.secure(g.TokenURL); err != nil {
		return nil, err
	}
	// Do not use Config.TokenSource, because it cannot send the resource, which the specification requires.
	token, err := g.Client.config(g.TokenURL).Exchange(k.withClient(ctx, g.Key), "",
		oauth2.SetAuthURLParam("grant_type", "refresh_token"),
		oauth2.SetAuthURLParam("refresh_token", g.Refresh),
		oauth2.SetAuthURLParam("resource", g.Resource))
	refused, isRefused := asOAuthError(err)
	switch {
	case isRefused && (refused.code == "invalid_grant" || refused.code == "invalid_client"):
		g.Access, g.Refresh = "", ""
		return g, k.save(t, g, claim)
	case err != nil:
		return nil, fmt.Errorf("the authorization server did not renew the token: %w", codeOnly(err))
	}
	if err := g.accept(token); err != nil {
		return nil, err
	}
	return g, k.save(t, g, claim)
}

// current returns the sign-in for a target. If its access token has expired, current renews the token. If the
// principal is not signed in, the result has no access token.
func (k *Keeper) current(ctx context.Context, t *Target) (*grant, error) {
	g, err := k.load(t)
	if err == nil && g.Access != "" && !g.good(k.now()) {
		g, err = k.renew(ctx, t, g.Access)
	}
	if err != nil {
		return nil, t.unusable(err)
	}
	k.give(g.Access)
	return g, nil
}

// unusable returns the refusal for a sign-in that cannot be used at the moment.
func (t *Target) unusable(err error) *call.Refusal {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r
	}
	r := call.Refuse(Stage, call.ServerUnavailable, "the sign-in for server %s cannot be used: %v", t.Server, err).Again()
	r.Hint = "try again later; if the problem remains, sign in again: " + t.Command()
	return r
}

// maxGiven is the maximum number of sent tokens that the keeper remembers.
const maxGiven = 256

func (k *Keeper) give(token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if token == "" || slices.Contains(k.given, token) {
		return
	}
	if len(k.given) == maxGiven {
		k.given = slices.Delete(k.given, 0, 1)
	}
	k.given = append(k.given, token)
}

// Given returns the tokens that were sent to servers. The gateway redacts these tokens in the results of tools.
func (k *Keeper) Given() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.given)
}

// List returns the sign-ins in the home, sorted by agent and server.
func (k *Keeper) List() ([]Grant, error) { return listed(vaultStorage{k.vault, k.home}, "") }

// listed returns the sign-ins in a storage. If the principal is not "", it returns only the sign-ins of the
// principal.
func listed(in storage, principal string) ([]Grant, error) {
	entries, err := in.list(principal)
	if err != nil {
		return nil, err
	}
	all := []Grant{}
	for _, e := range entries {
		g, err := unseal(e.secret)
		if err != nil {
			return nil, err
		}
		if hosts := e.secret.Hosts(); g.Access != "" && len(hosts) == 1 { // a sign-in without tokens only keeps its client
			all = append(all, g.public(e.agent, e.server, e.principal, hosts[0]))
		}
	}
	return all, nil
}

// public returns a sign-in without its tokens.
func (g *grant) public(agent, server, principal, host string) Grant {
	return Grant{
		Agent: agent, Server: server, Principal: principal, Host: host, Resource: g.Resource, Issuer: g.Issuer,
		Scopes: append([]string{}, g.Scopes...), Expires: g.Expires, Renewable: g.Refresh != "",
	}
}

// Status reports whether a target has a sign-in, or settings to obtain tokens without a person. It sends no request.
// If calls will be refused because the sign-in is no longer valid, Status also returns the refusal of these calls.
func (k *Keeper) Status(t *Target) (found bool, ended *call.Refusal) {
	u, err := k.upstream(t.Endpoint)
	if err == nil && u.Grant != "" {
		return true, nil
	}
	g := &grant{}
	if err == nil {
		g, err = k.load(t)
	}
	switch {
	case err != nil:
		return true, t.unusable(err)
	case g.Issuer == "":
		return false, nil
	case g.Access == "" || g.Refresh == "" && !g.good(k.now()):
		return true, t.ended()
	}
	return true, nil
}

// SignOut removes a sign-in and revokes its tokens. The first result reports whether there was a sign-in. The error
// is the reason why the tokens could not be revoked. Even after an error, the tokens are no longer stored.
func (k *Keeper) SignOut(ctx context.Context, t *Target) (found bool, err error) {
	_, unlock, err := k.lock(ctx, t)
	if err != nil {
		return false, err
	}
	defer unlock()
	s, found, err := k.storageOf(t.Principal).get(t)
	if err != nil || !found {
		return false, err
	}
	if err := k.storageOf(t.Principal).remove(t); err != nil {
		return true, err
	}
	g, err := unseal(s)
	if err != nil {
		return true, err
	}
	return g.Access != "" || g.Refresh != "", k.revoke(ctx, g)
}

// revoke asks the authorization server to revoke the tokens (RFC 7009). Package x/oauth2 does not support this
// request.
func (k *Keeper) revoke(ctx context.Context, g *grant) error {
	if g.RevokeURL == "" {
		return errNoRevocation
	}
	if err := k.secure(g.RevokeURL); err != nil {
		return err
	}
	for _, token := range []struct{ hint, value string }{{"refresh_token", g.Refresh}, {"access_token", g.Access}} {
		if token.value == "" {
			continue
		}
		form := url.Values{"token": {token.value}, "token_type_hint": {token.hint}}
		if g.Client.Method != methodBasic {
			form.Set("client_id", g.Client.ID)
			if g.Client.Secret != "" {
				form.Set("client_secret", g.Client.Secret)
			}
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.RevokeURL, strings.NewReader(form.Encode()))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if g.Client.Method == methodBasic {
			req.SetBasicAuth(url.QueryEscape(g.Client.ID), url.QueryEscape(g.Client.Secret))
		}
		resp, err := k.client.Do(req)
		if err != nil {
			return withoutURL(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the authorization server answered with status %d", resp.StatusCode)
		}
	}
	return nil
}

var errNoRevocation = errors.New("the authorization server does not support revoking tokens")
