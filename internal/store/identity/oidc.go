package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"github.com/ambit-run/ambit/internal/store/home"
)

// OIDCConfig is the [oidc] table of config.toml.
//
//	[oidc]
//	issuer = "https://login.example.com"
//	audience = "https://ambit.example.com"
//	principal_claim = "email"          # default: sub
//	groups_claim = "groups"            # the default
//	[oidc.subjects]                    # the agents that each subject can use, "*" for all agents
//	"ada@example.com" = ["*"]
//	[oidc.groups]
//	researchers = ["neo", "forge"]
//	[oidc.admins]
//	groups = ["operators"]
//
// A subject can use an agent only if the table lists the subject or one of its groups.
type OIDCConfig struct {
	Issuer         string              `toml:"issuer"`
	Audience       string              `toml:"audience"`
	PrincipalClaim string              `toml:"principal_claim"`
	GroupsClaim    string              `toml:"groups_claim"`
	Subjects       map[string][]string `toml:"subjects"`
	Groups         map[string][]string `toml:"groups"`
	Admins         struct {
		Subjects []string `toml:"subjects"`
		Groups   []string `toml:"groups"`
	} `toml:"admins"`
}

// ReadOIDC reads the [oidc] table of a file. It returns nil if the table is missing.
func ReadOIDC(file string) (*OIDCConfig, error) {
	c := &OIDCConfig{PrincipalClaim: "sub", GroupsClaim: "groups"}
	if found, err := home.ReadTable(file, "oidc", c); err != nil || !found {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: [oidc]: %w", file, err)
	}
	return c, nil
}

func (c *OIDCConfig) check() error {
	u, err := url.Parse(c.Issuer)
	switch {
	case c.Issuer == "" || c.Audience == "":
		return errors.New("the issuer and the audience are both required")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("the issuer is not a URL")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("the issuer must begin with https://, because ambit downloads keys from the issuer")
	case c.PrincipalClaim == "" || c.GroupsClaim == "":
		return errors.New("principal_claim and groups_claim must not be empty")
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ErrToken means that a token was rejected. Errors that wrap ErrToken also contain the reason, which is meant for the
// log.
var ErrToken = errors.New("the token is not accepted")

// ErrProvider means that the provider cannot be reached or sent an invalid response.
var ErrProvider = errors.New("the OpenID provider gave no valid response")

// OIDC checks bearer tokens from an OpenID provider. It fetches the provider's keys when it checks the first token. It
// fetches them again when a token was signed with an unknown key.
type OIDC struct {
	config OIDCConfig
	client *http.Client
	now    func() time.Time

	mu   sync.Mutex
	last *discovery // the most recent discovery; nil before the first token
}

// discovery is one attempt to fetch the provider's configuration. All requests that need the configuration wait for
// the same attempt.
type discovery struct {
	done     chan struct{} // closed after the other fields are set
	failed   time.Time
	verifier *oidc.IDTokenVerifier
	err      error
}

// algorithms lists the accepted signature algorithms. All of them use public keys.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// NewOIDC returns an OIDC with the given configuration. It sends no requests.
func NewOIDC(c OIDCConfig) *OIDC {
	return &OIDC{
		config: c, now: time.Now,
		client: &http.Client{
			Timeout:       10 * time.Second,
			Transport:     &throttledTransport{next: http.DefaultTransport, rate: rate.NewLimiter(rate.Every(5*time.Second), 6)},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Issuer returns the issuer whose tokens are accepted.
func (o *OIDC) Issuer() string { return o.config.Issuer }

// retryDelay is the minimum time between a failed discovery and the next discovery.
const retryDelay = 5 * time.Second

// tokenVerifier returns the token verifier. It starts a discovery if necessary and waits for the result.
func (o *OIDC) tokenVerifier(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	o.mu.Lock()
	if o.last == nil || o.last.shouldRetry(o.now()) {
		o.last = o.discover(ctx)
	}
	d := o.last
	o.mu.Unlock()
	select {
	case <-d.done:
		return d.verifier, d.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrProvider, context.Cause(ctx))
	}
}

func (o *OIDC) discover(ctx context.Context) *discovery {
	d := &discovery{done: make(chan struct{})}
	// The discovery must outlive the request that started it, because other requests wait for the result. The
	// verifier also keeps this context and uses it to fetch keys later.
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), o.client)
	go func() {
		defer close(d.done)
		provider, err := oidc.NewProvider(ctx, o.config.Issuer)
		if err != nil {
			d.failed, d.err = o.now(), fmt.Errorf("%w: %w", ErrProvider, err)
			return
		}
		d.verifier = provider.VerifierContext(ctx, &oidc.Config{
			ClientID: o.config.Audience, SupportedSigningAlgs: algorithms, Now: func() time.Time { return o.now() },
		})
	}()
	return d
}

// shouldRetry reports whether d failed at least retryDelay ago. If so, the caller starts a new discovery.
func (d *discovery) shouldRetry(now time.Time) bool {
	select {
	case <-d.done:
		return d.err != nil && now.Sub(d.failed) >= retryDelay
	default:
		return false
	}
}

// Check returns the principal of a token, or fails with ErrToken or ErrProvider. The principal can use agents only if
// the configuration lists the token's subject or one of its groups.
func (o *OIDC) Check(ctx context.Context, token string) (*Principal, error) {
	verifier, err := o.tokenVerifier(ctx)
	if err != nil {
		return nil, err
	}
	t, err := verifier.Verify(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	var claims map[string]json.RawMessage
	if err := t.Claims(&claims); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	var name string
	if json.Unmarshal(claims[o.config.PrincipalClaim], &name) != nil || !ValidName(name) {
		return nil, fmt.Errorf("%w: the claim %s does not contain a valid principal name", ErrToken, o.config.PrincipalClaim)
	}
	// An unverified email address could belong to another person.
	if o.config.PrincipalClaim == "email" && string(claims["email_verified"]) != "true" {
		return nil, fmt.Errorf("%w: the provider has not verified the email address in the token", ErrToken)
	}
	if reserved(name) {
		return nil, fmt.Errorf("%w: the principal name in the token is reserved for local users and API keys", ErrToken)
	}
	p := o.principalFor(name, decodeGroups(claims[o.config.GroupsClaim]))
	p.Until = t.Expiry
	return p, nil
}

// principalFor returns a principal with the given name. The principal has the rights that the configuration grants to
// the name and to the groups.
func (o *OIDC) principalFor(name string, groups []string) *Principal {
	p := &Principal{Name: name, Kind: ByToken}
	grant := func(agents []string) {
		for _, a := range agents {
			if a == "*" {
				p.Everywhere = true
			} else if !slices.Contains(p.Agents, a) {
				p.Agents = append(p.Agents, a)
			}
		}
	}
	grant(o.config.Subjects[name])
	p.Admin = slices.Contains(o.config.Admins.Subjects, name)
	for _, g := range groups {
		grant(o.config.Groups[g])
		p.Admin = p.Admin || slices.Contains(o.config.Admins.Groups, g)
	}
	return p
}

// decodeGroups decodes a claim that is a string or a list of strings.
func decodeGroups(claim json.RawMessage) []string {
	var list []string
	if json.Unmarshal(claim, &list) == nil {
		return list
	}
	var one string
	if json.Unmarshal(claim, &one) == nil && one != "" {
		return []string{one}
	}
	return nil
}

// maxResponse is the maximum size of a provider's response, in bytes.
const maxResponse = 1 << 20

// throttledTransport is an http.RoundTripper that limits the rate of requests to the provider. Every token with an
// unknown key id causes a request for keys. Without the limit, anyone could make ambit send any number of requests.
type throttledTransport struct {
	next http.RoundTripper
	rate *rate.Limiter
}

func (f *throttledTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.rate.Allow() {
		return nil, errors.New("ambit has sent too many requests to the provider; the limit is one every 5 seconds")
	}
	return boundedTransport{f.next}.RoundTrip(r)
}
