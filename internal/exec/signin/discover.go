package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

const (
	// maxAnswer is the maximum size of an answer of an authorization server.
	maxAnswer = 1 << 20
	// answerTime is the time limit for a request to an authorization server, including its answer.
	answerTime = 30 * time.Second
)

// checked sends requests with the egress client, which checks addresses. It also limits the size of the answers.
type checked struct{ client *egress.Client }

func (c checked) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	return resp, nil
}

// newClient returns a client for requests to authorization servers. It follows no redirects.
func newClient(c *egress.Client) *http.Client {
	return &http.Client{
		Transport: checked{c}, Timeout: answerTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// provider is the authorization server of a remote server.
type provider struct {
	resource string   // the resource for which tokens are requested
	scopes   []string // the scopes that the remote server supports
	proofs   []string // the algorithms of proofs (DPoP) that the authorization server supports
	*oauthex.AuthServerMeta
}

// discover finds the authorization server of a remote server. The challenges come from the server's answer to a request
// without a valid token, and may be empty.
func (k *Keeper) discover(
	ctx context.Context, endpoint string, challenges []oauthex.Challenge, u Upstream,
) (*provider, error) {
	meta, err := k.resourceMetadata(ctx, endpoint, challenges)
	if err != nil {
		return nil, err
	}
	if meta == nil {
		if !u.Legacy {
			return nil, errNoMetadata
		}
		origin, err := url.Parse(endpoint)
		if err != nil {
			return nil, err
		}
		issuer := origin.Scheme + "://" + origin.Host
		meta = &oauthex.ProtectedResourceMetadata{Resource: endpoint, AuthorizationServers: []string{issuer}}
	}
	issuer, err := chooseIssuer(meta.AuthorizationServers, u.Issuer)
	if err != nil {
		return nil, err
	}
	if err := k.secure(issuer); err != nil {
		return nil, err
	}
	reader, announced := *k.client, &announcedProofs{next: k.client.Transport}
	reader.Transport = announced
	found, err := auth.GetAuthServerMetadata(ctx, issuer, &reader)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the metadata of the authorization server %s cannot be used: %w", diag.Quote(issuer), err)
	case found == nil && !u.Legacy:
		return nil, fmt.Errorf("the authorization server %s publishes no metadata", diag.Quote(issuer))
	case found == nil:
		// Revision 2025-03-26 prescribes these addresses for servers without metadata.
		found = &oauthex.AuthServerMeta{
			Issuer: issuer, AuthorizationEndpoint: issuer + "/authorize", TokenEndpoint: issuer + "/token",
			RegistrationEndpoint: issuer + "/register", CodeChallengeMethodsSupported: []string{"S256"},
		}
	}
	return &provider{meta.Resource, meta.ScopesSupported, announced.list, found}, k.check(found)
}

// errNoMetadata means that a remote server does not publish the metadata that names its authorization server.
var errNoMetadata = errors.New("the server publishes no metadata that names an authorization server (RFC 9728)")

// chooseIssuer returns the authorization server to use.
func chooseIssuer(offered []string, wanted string) (string, error) {
	switch {
	case len(offered) == 0:
		return "", errors.New("the server's metadata names no authorization server")
	case wanted == "":
		return offered[0], nil
	case slices.Contains(offered, wanted):
		return wanted, nil
	}
	return "", fmt.Errorf("the server does not offer the configured authorization server %s", diag.Quote(wanted))
}

// check returns an error if an authorization server cannot be used safely.
func (k *Keeper) check(m *oauthex.AuthServerMeta) error {
	if !slices.Contains(m.CodeChallengeMethodsSupported, "S256") {
		return fmt.Errorf("the authorization server %s does not support PKCE with S256, which ambit requires",
			diag.Quote(m.Issuer))
	}
	if m.TokenEndpoint == "" {
		return fmt.Errorf("the authorization server %s has no token endpoint", diag.Quote(m.Issuer))
	}
	for _, address := range []string{
		m.Issuer, m.AuthorizationEndpoint, m.TokenEndpoint, m.RegistrationEndpoint, m.RevocationEndpoint,
	} {
		if address == "" {
			continue
		}
		if err := k.secure(address); err != nil {
			return err
		}
	}
	return nil
}

// secure returns an error unless an address uses https and contains a host name. In development, http to this machine
// is also accepted.
func (k *Keeper) secure(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Opaque != "" || u.Fragment != "" {
		return fmt.Errorf("the address %s of the authorization server is not a plain https URL", diag.Quote(address))
	}
	if _, err := k.egress.Switches().Host(u); err != nil {
		return fmt.Errorf("the address %s of the authorization server is refused: %w", diag.Quote(address), err)
	}
	return nil
}

// resourceMetadata returns the metadata of a remote server. It returns nil if the server has none.
func (k *Keeper) resourceMetadata(
	ctx context.Context, endpoint string, challenges []oauthex.Challenge,
) (*oauthex.ProtectedResourceMetadata, error) {
	e, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	origin := e.Scheme + "://" + e.Host
	places := []string{origin + wellKnown + strings.TrimSuffix(e.EscapedPath(), "/"), origin + wellKnown}
	if named := parameter(challenges, "resource_metadata"); named != "" {
		places = []string{named}
	}
	for _, place := range slices.Compact(places) {
		if err := k.secure(place); err != nil {
			return nil, err
		}
		meta, err := k.fetch(ctx, place)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the server's metadata %s cannot be used: %w", diag.Quote(place), err)
		case meta == nil:
			continue
		case !covers(meta.Resource, endpoint) || !mayName(place, meta.Resource, e):
			return nil, fmt.Errorf("the server's metadata is for another resource, %s", diag.Quote(meta.Resource))
		}
		return meta, nil
	}
	return nil, nil
}

// wellKnown is the path of a resource's metadata on its origin. The path of the resource follows.
const wellKnown = "/.well-known/oauth-protected-resource"

// mayName reports whether the metadata at an address may name a resource that contains the endpoint. If the resource
// is a parent path of the endpoint, servers of other owners below this path accept the same token. The metadata may
// therefore name a parent path only if it is at a well-known address, where only the owner of the origin can write.
// The server itself chooses all other addresses.
func mayName(place, resource string, endpoint *url.URL) bool {
	p, err := url.Parse(place)
	r, errR := url.Parse(resource)
	if err != nil || errR != nil {
		return false
	}
	path := func(u *url.URL) string { return strings.TrimSuffix(u.EscapedPath(), "/") }
	return path(r) == path(endpoint) || egress.Same(p, endpoint) && p.RawQuery == "" &&
		slices.Contains([]string{wellKnown, wellKnown + path(r), wellKnown + path(endpoint)}, path(p))
}

// fetch reads the metadata of a protected resource. It returns nil if the address has no JSON document. The SDK's
// function is not used, because it accepts only one exact resource. A server may use one resource for several paths.
func (k *Keeper) fetch(ctx context.Context, address string) (*oauthex.ProtectedResourceMetadata, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer resp.Body.Close()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode/100 == 4 || resp.StatusCode == http.StatusOK && kind != "application/json":
		return nil, nil
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("its HTTP status is %d", resp.StatusCode)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, withoutURL(err)
	}
	meta := &oauthex.ProtectedResourceMetadata{}
	if err := json.Unmarshal(text, meta); err != nil {
		return nil, errors.New("it is not the expected JSON")
	}
	return meta, nil
}

// withoutURL removes net/http's wrapper from an error, because the wrapper repeats the whole URL.
func withoutURL(err error) error {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("the answer is larger than %d bytes", large.Limit)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		if wrapped.Timeout() {
			return fmt.Errorf("the server did not send a complete answer within %v", answerTime)
		}
		return wrapped.Err
	}
	return err
}

// parameter returns a parameter of the first Bearer or DPoP challenge that contains it.
func parameter(challenges []oauthex.Challenge, name string) string {
	for _, c := range challenges {
		if isToken(c) && c.Params[name] != "" {
			return c.Params[name]
		}
	}
	return ""
}

func isToken(c oauthex.Challenge) bool { return c.Scheme == "bearer" || isDPoP(c) }

func isDPoP(c oauthex.Challenge) bool { return c.Scheme == "dpop" }
