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
//	[oidc.subjects]                    # the agents of each subject, "*" for all
//	"ada@example.com" = ["*"]
//	[oidc.groups]
//	researchers = ["neo", "forge"]
//	[oidc.admins]
//	groups = ["operators"]
//
// A subject that is in neither list may use nothing.
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

// ReadOIDC reads the [oidc] table of a file. It returns nil if there is none.
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
		return errors.New("issuer and audience are both required")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("issuer is not a URL")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("issuer must be https://: its keys decide which tokens are accepted")
	case c.PrincipalClaim == "" || c.GroupsClaim == "":
		return errors.New("the name of a claim is empty")
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ErrToken means that a token is refused. The wrapping error has the reason, for the log.
var ErrToken = errors.New("the token is not accepted")

// ErrProvider means that the provider's keys are unavailable.
var ErrProvider = errors.New("the OpenID provider cannot be reached")

// OIDC checks bearer tokens of an OpenID provider. It fetches the provider's keys for the
// first token, and again when a token names an unknown key.
type OIDC struct {
	config OIDCConfig
	client *http.Client
	now    func() time.Time

	mu   sync.Mutex
	last *discovery // nil before the first token
}

// discovery is one attempt to fetch the provider's configuration. All waiting requests
// share it.
type discovery struct {
	done chan struct{}
	// The other fields are set before done is closed.
	failed   time.Time
	verifier *oidc.IDTokenVerifier
	err      error
}

// algorithms are the accepted signature algorithms: all of them use public keys.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// NewOIDC returns a checker with the given configuration.
func NewOIDC(c OIDCConfig) *OIDC {
	return &OIDC{
		config: c, now: time.Now,
		client: &http.Client{
			Timeout:       10 * time.Second,
			Transport:     &frugal{next: http.DefaultTransport, rate: rate.NewLimiter(rate.Every(5*time.Second), 6)},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Issuer returns the issuer whose tokens are accepted.
func (o *OIDC) Issuer() string { return o.config.Issuer }

// retryProvider is the time between a failed discovery and the next one.
const retryProvider = 5 * time.Second

// ready waits for the discovery and returns its verifier.
func (o *OIDC) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	o.mu.Lock()
	if o.last == nil || o.last.again(o.now()) {
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

// discover starts a discovery.
func (o *OIDC) discover(ctx context.Context) *discovery {
	d := &discovery{done: make(chan struct{})}
	// The client outlives the request: other requests wait for the discovery, and the key
	// set keeps using the client.
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

// again reports whether the discovery failed and it is time for another one.
func (d *discovery) again(now time.Time) bool {
	select {
	case <-d.done:
		return d.err != nil && now.Sub(d.failed) >= retryProvider
	default:
		return false
	}
}

// Check returns the principal of a token, or fails with ErrToken or ErrProvider. A subject
// that is in none of the lists is a principal without agents.
func (o *OIDC) Check(ctx context.Context, token string) (*Principal, error) {
	verifier, err := o.ready(ctx)
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
		return nil, fmt.Errorf("%w: its claim %s is not a valid name", ErrToken, o.config.PrincipalClaim)
	}
	// An address that the provider has not verified may belong to another person.
	if o.config.PrincipalClaim == "email" && string(claims["email_verified"]) != "true" {
		return nil, fmt.Errorf("%w: its email is not verified", ErrToken)
	}
	if reserved(name) {
		return nil, fmt.Errorf("%w: its name is reserved for this machine", ErrToken)
	}
	p := o.rights(name, groups(claims[o.config.GroupsClaim]))
	p.Until = t.Expiry
	return p, nil
}

// rights returns a principal with the rights that the configuration grants to a name and
// its groups.
func (o *OIDC) rights(name string, groups []string) *Principal {
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

// groups decodes a claim that is a string or a list of strings.
func groups(claim json.RawMessage) []string {
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

// maxKeys bounds the size of a provider's response.
const maxKeys = 1 << 20

// frugal limits the rate of requests to the provider. Any token with an unknown key id
// makes the key set fetch keys, so strangers could cause requests without end.
type frugal struct {
	next http.RoundTripper
	rate *rate.Limiter
}

func (f *frugal) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.rate.Allow() {
		return nil, errors.New("too many requests to the provider; they are limited to one in 5 seconds")
	}
	return bounded{f.next}.RoundTrip(r)
}
