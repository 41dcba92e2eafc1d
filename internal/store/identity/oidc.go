package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/time/rate"

	"github.com/ambit-run/ambit/internal/store/home"
)

// OIDCConfig is the [oidc] table of config.toml.
//
//	[oidc]
//	issuer = "https://login.example.com"
//	audience = "https://ambit.example.com"
//	principal_claim = "email"          # default: sub
//	groups_claim = "groups"            # the default; "/a/b" is the member b of the claim a
//	[oidc.group_names]                 # other names for groups of the token
//	"6f2c…" = "researchers"
//	[oidc.subjects]                    # the agents that each subject can use, "*" for all agents
//	"ada@example.com" = ["*"]
//	[oidc.groups]
//	researchers = ["neo", "forge"]
//	[oidc.admins]
//	groups = ["operators"]
//	[oidc.providers.partner]           # another provider: the same settings
//	issuer = "https://login.partner.example"
//
// A subject can use an agent only if [oidc] lists the subject or one of its groups. The tables subjects, groups and
// admins use the names from the provider's tokens and from group_names. Everywhere else, a name from a provider in
// [oidc.providers] has the provider's name as a prefix, as in partner:bob@partner.example and Group::"partner:sales".
// So a provider cannot impersonate a principal or a group of another provider. The only exception is a group whose name
// in group_names has the prefix of another provider.
type OIDCConfig struct {
	Issuer         string              `toml:"issuer"`
	Audience       string              `toml:"audience"`
	PrincipalClaim string              `toml:"principal_claim"`
	GroupsClaim    string              `toml:"groups_claim"`
	GroupNames     map[string]string   `toml:"group_names"`
	Subjects       map[string][]string `toml:"subjects"`
	Groups         map[string][]string `toml:"groups"`
	Admins         struct {
		Subjects []string `toml:"subjects"`
		Groups   []string `toml:"groups"`
	} `toml:"admins"`
	Providers map[string]*OIDCConfig `toml:"providers"`

	name   string   // the name of another provider
	others []string // the names of all other providers, if name is empty
}

// ReadOIDC reads the [oidc] table of a file. It returns nil if the table is missing. If the table has only other
// providers, the issuer of the result is empty.
func ReadOIDC(file string) (*OIDCConfig, error) {
	c := &OIDCConfig{}
	if found, err := home.ReadTable(file, "oidc", c); err != nil || !found {
		return nil, err
	}
	for name, p := range c.Providers {
		p.name = name
		c.others = append(c.others, name)
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("%s: [oidc.providers.%s]: %w", file, name, err)
		}
	}
	if len(c.Providers) > 0 && c.isEmpty() {
		return c, c.unique(file)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: [oidc]: %w", file, err)
	}
	return c, c.unique(file)
}

// isEmpty reports whether the table has no settings besides [oidc.providers].
func (c *OIDCConfig) isEmpty() bool {
	return c.Issuer+c.Audience+c.PrincipalClaim+c.GroupsClaim == "" && c.GroupNames == nil && c.Subjects == nil &&
		c.Groups == nil && c.Admins.Subjects == nil && c.Admins.Groups == nil
}

// unique returns an error if two providers have the same issuer, because a token names only its issuer.
func (c *OIDCConfig) unique(file string) error {
	issuers := map[string]bool{c.Issuer: true}
	for _, p := range c.Providers {
		if issuers[p.Issuer] {
			return fmt.Errorf("%s: [oidc]: two providers have the issuer %s, so their tokens cannot be distinguished", file, p.Issuer)
		}
		issuers[p.Issuer] = true
	}
	return nil
}

// providerName matches the names of providers in [oidc.providers]. The name "key" is reserved, because the principals
// of API keys begin with "key:".
var providerName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// maxRenamed is the maximum number of entries in group_names.
const maxRenamed = 10_000

func (c *OIDCConfig) check() error {
	c.PrincipalClaim, c.GroupsClaim = cmp.Or(c.PrincipalClaim, "sub"), cmp.Or(c.GroupsClaim, "groups")
	u, err := url.Parse(c.Issuer)
	switch {
	case c.name != "" && (!providerName.MatchString(c.name) || c.name+":" == keyRealm):
		return errors.New("the name of a provider must consist of lower-case letters, digits and \"-\", and must not be \"key\"")
	case c.name != "" && len(c.Providers) > 0:
		return errors.New("a provider cannot have providers of its own")
	case len(c.GroupNames) > maxRenamed:
		return fmt.Errorf("group_names has %d entries; the limit is %d", len(c.GroupNames), maxRenamed)
	case c.Issuer == "" || c.Audience == "":
		return errors.New("the issuer and the audience are both required")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("the issuer is not a URL")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("the issuer must begin with https://, because ambit downloads keys from the issuer")
	}
	for from, to := range c.GroupNames {
		if !ValidGroup(to) {
			return fmt.Errorf("group_names: %q is not a valid name for the group %q", to, from)
		}
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

// Agents returns the sorted names of the agents that subjects and groups of the providers can use.
func (c *OIDCConfig) Agents() []string {
	var names []string
	for _, of := range append(slices.Collect(maps.Values(c.Providers)), c) {
		for _, table := range []map[string][]string{of.Subjects, of.Groups} {
			for _, agents := range table {
				names = append(names, agents...)
			}
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "*" })
}

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
	done     chan struct{} // a channel that is closed after the other fields are set
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
	var claims map[string]jsontext.Value
	if err := t.Claims(&claims); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	var name string
	value, err := claim(claims, pathOf(claims, o.config.PrincipalClaim))
	if err != nil || json.Unmarshal(value, &name) != nil || !ValidName(name) {
		return nil, fmt.Errorf("%w: the claim %s does not contain a valid principal name", ErrToken, o.config.PrincipalClaim)
	}
	// An unverified email address could belong to another person.
	if strings.TrimPrefix(o.config.PrincipalClaim, "/") == "email" && string(claims["email_verified"]) != "true" {
		return nil, fmt.Errorf("%w: the provider has not verified the email address in the token", ErrToken)
	}
	if reserved(name) || o.config.isOthers(name) {
		return nil, fmt.Errorf("%w: the principal name in the token is reserved for local users, API keys and other providers",
			ErrToken)
	}
	groups, err := o.config.groupsOf(claims)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	p := o.principalFor(name, groups)
	if p.ACR, p.AMR, err = strength(claims); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	p.Name, p.Issuer, p.Groups, p.Until = o.config.qualify(name), o.config.Issuer, o.config.rename(groups), t.Expiry
	if !ValidName(p.Name) {
		return nil, fmt.Errorf("%w: the principal name in the token is too long", ErrToken)
	}
	return p, nil
}

// principalFor returns the principal that has the given name in the provider's tokens. The principal has the rights
// that the configuration grants to the name and to the groups.
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
		g = cmp.Or(o.config.GroupNames[g], g)
		grant(o.config.Groups[g])
		p.Admin = p.Admin || slices.Contains(o.config.Admins.Groups, g)
	}
	return p
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
