package daemon

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Checker identifies the holder of a key or token.
type Checker interface {
	Check(ctx context.Context, text string) (*identity.Principal, error)
}

type Keys interface {
	Checker
	// Standing reports whether a key that was checked before is still valid.
	Standing(ctx context.Context, id string) error
}

type principalKey struct{}

// principalOf returns the principal of an authenticated request; nil on open paths.
func principalOf(r *http.Request) *identity.Principal {
	p, _ := r.Context().Value(principalKey{}).(*identity.Principal)
	return p
}

// authenticate returns a request with its principal, or refuses the request and returns nil. Open
// paths need no principal.
func (d *Daemon) authenticate(w http.ResponseWriter, r *http.Request) *http.Request {
	if d.openTo(r.URL.Path) {
		return r
	}
	p, trouble := d.principal(r)
	if trouble != nil {
		if trouble.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", d.challenge(r, trouble.Code))
		}
		// Otherwise the server reads the whole body of an unauthenticated request before it
		// answers.
		w.Header().Set("Connection", "close")
		trouble.write(w)
		return nil
	}
	ctx := context.WithValue(r.Context(), principalKey{}, p)
	if mayEnd(p) {
		ctx = call.WithStanding(ctx, func(ctx context.Context) error { return d.standing(ctx, p) })
	}
	r = r.WithContext(ctx)
	// The key is removed here, so that no later code can pass it on.
	r.Header.Del("Authorization")
	return r
}

// openTo reports whether a path needs no key.
func (d *Daemon) openTo(path string) bool {
	switch {
	case path == "/healthz":
		return true
	case strings.HasPrefix(path, "/ui/"):
		return true // the address contains a ticket
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
	hint := "send Authorization: Bearer KEY; create a key with: ambit key new"
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return nil, &problem{status: http.StatusUnauthorized, Code: codeNoKey, Message: "this address requires an API key", Hint: hint}
	}
	scheme, text, ok := strings.Cut(values[0], " ")
	text = strings.TrimSpace(text)
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || text == "" {
		return nil, &problem{status: http.StatusUnauthorized, Code: codeNoKey, Message: "the Authorization header must be Bearer and one key", Hint: hint}
	}
	if p := d.options.Passing.Check(text); p != nil {
		return p, nil
	}
	check, isKey := Checker(d.options.APIKeys), identity.LooksLikeKey(text)
	if !isKey && d.options.OIDC != nil {
		check = d.options.OIDC
	}
	p, err := check.Check(r.Context(), text)
	refused := func(message string) *problem {
		return &problem{status: http.StatusUnauthorized, Code: codeBadKey, Message: message, Hint: "create another key with: ambit key new"}
	}
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, identity.ErrExpired), errors.Is(err, identity.ErrRevoked), errors.Is(err, identity.ErrUnknown):
		return nil, refused(err.Error())
	case errors.Is(err, identity.ErrToken):
		d.options.Log("rejected a token: %v", err)
		return nil, &problem{status: http.StatusUnauthorized, Code: codeBadKey, Message: identity.ErrToken.Error(), Hint: "sign in again; the daemon's log has the reason"}
	}
	// Without a check, no request is admitted.
	d.options.Log("rejecting requests: keys cannot be checked: %v", err)
	return nil, &problem{
		status: http.StatusServiceUnavailable, Code: "unavailable",
		Message: "keys cannot be checked at the moment", Hint: "the daemon's log has the reason",
	}
}

// resourceMetadata is the path of RFC 9728 metadata.
const resourceMetadata = "/.well-known/oauth-protected-resource"

// challenge is the WWW-Authenticate header of a rejection. With an OpenID provider it names the
// metadata for signing in.
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

// base is the daemon's URL as the request used it.
func (d *Daemon) base(r *http.Request) string {
	if u := d.options.public; u != nil {
		return strings.TrimSuffix(u.String(), "/")
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return scheme + r.Host // the shield has checked it
}

// describeResource answers RFC 9728, in the same way whether the agent exists or not.
func (d *Daemon) describeResource(w http.ResponseWriter, r *http.Request) {
	resource := d.base(r)
	if name := r.PathValue("name"); name != "" {
		resource += "/mcp/" + url.PathEscape(name)
	}
	reply(w, http.StatusOK, map[string]any{
		"resource": resource, "resource_name": "ambit", "authorization_servers": []string{d.options.OIDC.Issuer()},
		"bearer_methods_supported": []string{"header"},
	})
}
