package daemon

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Checker finds the principal that holds a key or token.
type Checker interface {
	Check(ctx context.Context, text string) (*identity.Principal, error)
}

// Keys checks API keys.
type Keys interface {
	Checker
	// Standing returns nil if the key with this id is still valid.
	Standing(ctx context.Context, id string) error
}

type principalKey struct{}

// principalOf returns the principal of an authenticated request. It returns nil if the path of the request requires no
// key.
func principalOf(r *http.Request) *identity.Principal {
	p, _ := r.Context().Value(principalKey{}).(*identity.Principal)
	return p
}

// authenticate checks the key of a request and adds the principal to the request's context. It returns nil if it has
// rejected the request. On a path that requires no key, the request gets no principal. On /readyz, the key is optional,
// because a load balancer has no key.
func (d *Daemon) authenticate(w http.ResponseWriter, r *http.Request) *http.Request {
	if d.isPublic(r.URL.Path) || r.URL.Path == "/readyz" && len(r.Header.Values("Authorization")) == 0 {
		return r
	}
	p, trouble := d.principal(r)
	if trouble != nil {
		if trouble.status == http.StatusUnauthorized {
			trouble.challenge = d.challenge(r, trouble.Code)
		}
		// Without this header, the server would read the whole body of the rejected request before it answers.
		w.Header().Set("Connection", "close")
		trouble.write(w)
		return nil
	}
	r = d.withPrincipal(r, p)
	r.Header.Del("Authorization") // delete the header, so that no later code can forward the key
	return r
}

// withPrincipal returns a copy of a request that has a principal.
func (d *Daemon) withPrincipal(r *http.Request, p *identity.Principal) *http.Request {
	ctx := context.WithValue(r.Context(), principalKey{}, p)
	if canExpire(p) {
		ctx = call.WithStanding(ctx, func(ctx context.Context) error { return d.standing(ctx, p) })
	}
	return r.WithContext(ctx)
}

// isPublic reports whether a path can be requested without a key.
func (d *Daemon) isPublic(path string) bool {
	switch {
	case path == "/healthz":
		return true
	case strings.HasPrefix(path, "/ui/"):
		return true // the ticket in the path replaces the key, even if a page makes a call
	case path == "/metrics":
		return d.options.MetricsOpen
	}
	return d.options.OIDC != nil && (path == resourceMetadata || strings.HasPrefix(path, resourceMetadata+"/mcp/"))
}

const (
	codeNoKey  = "key_missing"
	codeBadKey = "key_refused"
)

func (d *Daemon) principal(r *http.Request) (*identity.Principal, *problem) {
	hint := "send the header \"Authorization: Bearer KEY\"; to create a key, run: ambit key new --agents NAME"
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return nil, failure(codeNoKey, "this address requires an API key", hint)
	}
	scheme, text, ok := strings.Cut(values[0], " ")
	text = strings.TrimSpace(text)
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || text == "" {
		return nil, failure(codeNoKey, "the Authorization header must have the form \"Bearer KEY\"", hint)
	}
	return d.holder(r.Context(), text)
}

// holder returns the principal that holds a key or token.
func (d *Daemon) holder(ctx context.Context, text string) (*identity.Principal, *problem) {
	if p := d.options.Passing.Check(text); p != nil {
		return p, nil
	}
	check, isKey := Checker(d.options.APIKeys), identity.LooksLikeKey(text)
	if !isKey && d.options.OIDC != nil {
		check = d.options.OIDC
	}
	p, err := check.Check(ctx, text)
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, identity.ErrExpired), errors.Is(err, identity.ErrRevoked), errors.Is(err, identity.ErrUnknown):
		return nil, failure(codeBadKey, err.Error(), "to create another key, run: ambit key new --agents NAME")
	case errors.Is(err, identity.ErrToken):
		d.options.Log("rejected a token: %v", err)
		return nil, failure(codeBadKey, identity.ErrToken.Error(), "sign in again; see the daemon's log for the reason")
	}
	// The key could not be checked, so the request must be rejected.
	d.options.Log("rejecting requests, because keys cannot be checked: %v", err)
	return nil, failure("unavailable", "keys cannot be checked at the moment", "see the daemon's log for the reason")
}

// needsSignIn reports whether callers must present a token of the OpenID provider. For an agent that runs on another
// server, "auth" in the manifest applies to that server and not to this daemon.
func needsSignIn(a *agent.Agent) bool {
	return a.Delivery.Auth == "oauth-device" && a.Server(agent.RemoteAlias) == nil
}

// enter calls fleet.enter for the principal of a request.
func (d *Daemon) enter(r *http.Request, name string) (*visit, *problem) {
	v, trouble := d.fleet.enter(name, principalOf(r))
	if trouble != nil && trouble.status == http.StatusUnauthorized {
		trouble.challenge = d.challenge(r, trouble.Code)
	}
	return v, trouble
}

// resourceMetadata is the path of the OAuth 2.0 protected resource metadata (RFC 9728).
const resourceMetadata = "/.well-known/oauth-protected-resource"

// challenge returns the WWW-Authenticate header for a rejected request. If an OpenID provider is configured, the header
// contains the address of the metadata that a client needs to sign in.
func (d *Daemon) challenge(r *http.Request, code string) string {
	c := `Bearer realm="ambit"`
	if code == codeBadKey {
		c += `, error="invalid_token"`
	}
	if d.options.OIDC != nil {
		path := resourceMetadata
		if name, ok := strings.CutPrefix(r.URL.Path, "/mcp/"); ok && name != "" && !strings.Contains(name, "/") {
			path += "/mcp/" + url.PathEscape(name)
		}
		c += `, resource_metadata="` + d.base(r) + path + `"`
	}
	return c
}

// base returns the daemon's public URL. If no public URL is configured, base returns the URL of the request.
func (d *Daemon) base(r *http.Request) string {
	if u := d.options.public; u != nil {
		return strings.TrimSuffix(u.String(), "/")
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return scheme + r.Host // the shield has already checked r.Host
}

// describeResource answers with the metadata of RFC 9728. The answer does not reveal whether the agent exists.
func (d *Daemon) describeResource(r *http.Request) (any, *problem) {
	resource := d.base(r)
	if name := r.PathValue("name"); name != "" {
		resource += "/mcp/" + url.PathEscape(name)
	}
	return map[string]any{
		"resource": resource, "resource_name": "ambit", "authorization_servers": d.options.OIDC.Issuers(),
		"bearer_methods_supported": []string{"header"},
	}, nil
}
