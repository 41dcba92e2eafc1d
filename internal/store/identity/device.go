package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/ambit-run/ambit/internal/manifest/diag"

	"github.com/ambit-run/ambit/internal/store/home"
)

// LoginConfig is the [login] table of config.toml. The table configures the identity provider for "ambit login".
//
//	[login]
//	issuer = "https://login.example.com"
//	client_id = "ambit"
//	scopes = ["openid", "offline_access"]   # the default
//	resource = "https://ambit.example.com"  # the token's audience, if the provider requires it
type LoginConfig struct {
	Issuer   string   `toml:"issuer"`
	ClientID string   `toml:"client_id"`
	Scopes   []string `toml:"scopes"`
	Resource string   `toml:"resource"`
}

// ReadLogin reads the [login] table of a file. If the table is missing, the result contains only the default scopes.
func ReadLogin(file string) (LoginConfig, error) {
	c := LoginConfig{Scopes: []string{"openid", "offline_access"}}
	_, err := home.ReadTable(file, "login", &c)
	return c, err
}

// CheckIssuer returns an error unless issuer is an https URL, or an http URL with a loopback host.
func CheckIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" ||
		u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return errors.New("the issuer is not a URL")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("the issuer must begin with https://, because secrets are sent to it")
	}
	return nil
}

// LoginRef returns the name under which a sign-in at the issuer is stored. The name contains the issuer's path,
// because a host can have several issuers.
func LoginRef(issuer string) string {
	u, err := url.Parse(issuer)
	if err != nil {
		return "login:"
	}
	return "login:" + u.Host + strings.TrimSuffix(u.Path, "/")
}

// Device signs a person in with the device flow (RFC 8628). The person opens a page on any device, enters a code and
// consents. Meanwhile, this process polls the provider. The flow needs no browser on this machine and no redirect
// URL.
type Device struct {
	config                LoginConfig
	secret                func() string
	client                *http.Client
	verifier              *oidc.IDTokenVerifier
	device, token, revoke string
}

// These errors mean that a sign-in failed.
var (
	ErrDenied      = errors.New("the sign-in was denied")
	ErrCodeExpired = errors.New("the code expired before the sign-in was completed")
	ErrNoDevice    = errors.New("the provider does not offer the device flow")
	// ErrSignedOut means that the token cannot be renewed and that the person must sign in again.
	ErrSignedOut = errors.New("the sign-in has ended")
)

// NewDevice discovers the endpoints of the provider and returns a Device. The callback returns the client secret. The
// callback is nil for a public client. Desktop programs are usually public clients.
func NewDevice(ctx context.Context, c LoginConfig, secret func() string) (*Device, error) {
	if err := CheckIssuer(c.Issuer); err != nil {
		return nil, err
	}
	if c.ClientID == "" {
		return nil, errors.New("the client id is missing")
	}
	d := newDevice(c, secret, http.DefaultTransport)
	return d, d.discover(ctx)
}

func newDevice(c LoginConfig, secret func() string, transport http.RoundTripper) *Device {
	return &Device{config: c, secret: secret, client: &http.Client{
		Timeout:   20 * time.Second,
		Transport: boundedTransport{transport},
		// Do not follow redirects, because a redirect could send secrets to another endpoint.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (d *Device) discover(ctx context.Context) error {
	ctx = oidc.ClientContext(ctx, d.client)
	p, err := oidc.NewProvider(ctx, d.config.Issuer)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrProvider, diag.Printable(err.Error()))
	}
	var more struct {
		Revoke string `json:"revocation_endpoint"`
	}
	if err := p.Claims(&more); err != nil {
		return fmt.Errorf("%w: %w", ErrProvider, err)
	}
	d.device, d.token, d.revoke = p.Endpoint().DeviceAuthURL, p.Endpoint().TokenURL, more.Revoke
	config := &oidc.Config{ClientID: d.config.ClientID, SupportedSigningAlgs: algorithms}
	d.verifier = p.VerifierContext(ctx, config)
	if d.device == "" {
		return ErrNoDevice
	}
	for _, endpoint := range []string{d.device, d.token, d.revoke} {
		if endpoint != "" && !d.trusted(endpoint) {
			return fmt.Errorf("%w: the endpoint %s does not begin with https://", ErrProvider, diag.Quote(endpoint))
		}
	}
	return nil
}

// trusted reports whether it is safe to send secrets to an address. The address must use https. Plain http is accepted
// only for a loopback host, and only if the issuer uses http too.
func (d *Device) trusted(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	local := loopback(u.Hostname()) && strings.HasPrefix(d.config.Issuer, "http://")
	return u.Scheme == "https" || u.Scheme == "http" && local
}

// Code contains the code and the URLs that a person needs to sign in.
type Code struct {
	UserCode string
	// URL is the page on which the person enters UserCode. CompleteURL, if set, already contains the code.
	URL, CompleteURL string
	Expires          time.Time

	code     string
	interval time.Duration
}

// Defaults and limits for durations that the provider sends.
const (
	defaultInterval = 5 * time.Second
	maxInterval     = time.Minute
	maxLife         = time.Hour
)

// Begin requests a code from the provider.
func (d *Device) Begin(ctx context.Context) (*Code, error) {
	form := url.Values{"scope": {strings.Join(d.config.Scopes, " ")}}
	if slices.Contains(d.config.Scopes, "offline_access") {
		form.Set("prompt", "consent") // OpenID Connect Core, section 11, requires this parameter for offline access
	}
	if d.config.Resource != "" {
		form.Set("resource", d.config.Resource)
	}
	var answer struct {
		DeviceCode  string  `json:"device_code"`
		UserCode    string  `json:"user_code"`
		URL         string  `json:"verification_uri"`
		CompleteURL string  `json:"verification_uri_complete"`
		ExpiresIn   float64 `json:"expires_in"`
		Interval    float64 `json:"interval"`
	}
	if err := d.post(ctx, d.device, form, &answer); err != nil {
		return nil, err
	}
	c := &Code{
		UserCode: answer.UserCode, URL: answer.URL, CompleteURL: answer.CompleteURL, code: answer.DeviceCode,
		Expires:  time.Now().Add(seconds(answer.ExpiresIn, maxLife, 10*time.Minute)),
		interval: seconds(answer.Interval, maxInterval, defaultInterval),
	}
	if c.CompleteURL != "" && !d.trusted(c.CompleteURL) {
		c.CompleteURL = ""
	}
	if c.code == "" || !ValidName(c.UserCode) || !d.trusted(c.URL) {
		return nil, fmt.Errorf("%w: the response does not conform to RFC 8628", ErrProvider)
	}
	return c, nil
}

// seconds converts n seconds to a duration. The result is at most limit. If n is not positive, the result is fallback.
func seconds(n float64, limit, fallback time.Duration) time.Duration {
	switch {
	case !(n > 0):
		return fallback
	case n > limit.Seconds():
		return limit
	}
	return time.Duration(n * float64(time.Second))
}

// Wait polls the provider until the person signs in or denies the request, or until the code expires.
func (d *Device) Wait(ctx context.Context, c *Code) (*Login, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, c.Expires, ErrCodeExpired)
	defer cancel()
	interval := c.interval
	for {
		timer := time.NewTimer(interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
		l, err := d.requestTokens(ctx, url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {c.code},
		})
		var refusal *oauthError
		switch {
		case err == nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.As(err, &refusal):
			if !errors.Is(err, ErrProvider) {
				return nil, err
			}
			interval = min(2*interval, maxInterval) // RFC 8628, section 3.5, requires longer pauses
		case refusal.Code == "authorization_pending":
		case refusal.Code == "slow_down":
			interval = min(interval+5*time.Second, maxInterval)
		case refusal.Code == "access_denied":
			return nil, ErrDenied
		case refusal.Code == "expired_token":
			return nil, ErrCodeExpired
		default:
			return nil, err
		}
	}
}

// Refresh renews a sign-in. It fails with ErrSignedOut if the person must sign in again.
func (d *Device) Refresh(ctx context.Context, l *Login) (*Login, error) {
	if l.refresh() == "" {
		return nil, ErrSignedOut
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {l.refresh()}}
	if l.Resource != "" {
		form.Set("resource", l.Resource)
	}
	fresh, err := d.requestTokens(ctx, form)
	if refusal, ok := errors.AsType[*oauthError](err); ok && refusal.Code == "invalid_grant" {
		return nil, ErrSignedOut
	}
	if err != nil {
		return nil, err
	}
	if fresh.refresh() == "" {
		fresh.refresh = l.refresh
	}
	if fresh.Subject == "" {
		fresh.Subject = l.Subject
	} else if l.Subject != "" && fresh.Subject != l.Subject {
		return nil, fmt.Errorf("%w: the renewed token belongs to another subject", ErrProvider)
	}
	return fresh, nil
}

// Revoke asks the provider to revoke the tokens. It does nothing if the provider has no revocation endpoint.
func (d *Device) Revoke(ctx context.Context, l *Login) error {
	if d.revoke == "" {
		return nil
	}
	for hint, token := range map[string]string{"refresh_token": l.refresh(), "access_token": l.Token()} {
		if token == "" {
			continue
		}
		if err := d.post(ctx, d.revoke, url.Values{"token": {token}, "token_type_hint": {hint}}, nil); err != nil {
			return err
		}
	}
	return nil
}

// requestTokens sends a request to the token endpoint and returns the resulting sign-in.
func (d *Device) requestTokens(ctx context.Context, form url.Values) (*Login, error) {
	var answer struct {
		Access    string  `json:"access_token"`
		Type      string  `json:"token_type"`
		Refresh   string  `json:"refresh_token"`
		ID        string  `json:"id_token"`
		ExpiresIn float64 `json:"expires_in"`
		Scope     string  `json:"scope"`
	}
	if err := d.post(ctx, d.token, form, &answer); err != nil {
		return nil, err
	}
	if answer.Access == "" || !strings.EqualFold(answer.Type, "Bearer") {
		return nil, fmt.Errorf("%w: the response contains no bearer token", ErrToken)
	}
	l := &Login{
		Issuer: d.config.Issuer, ClientID: d.config.ClientID, Resource: d.config.Resource,
		Scopes: strings.Fields(answer.Scope),
		access: func() string { return answer.Access }, refresh: func() string { return answer.Refresh },
	}
	if len(l.Scopes) == 0 {
		l.Scopes = d.config.Scopes
	}
	if answer.ExpiresIn > 0 {
		life := seconds(answer.ExpiresIn, 10*365*24*time.Hour, 0)
		l.Expires = time.Now().Add(life).UTC().Truncate(time.Second)
	}
	if answer.ID != "" {
		id, err := d.verifier.Verify(oidc.ClientContext(ctx, d.client), answer.ID)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", ErrToken, diag.Printable(err.Error()))
		}
		l.Subject = id.Subject
	}
	return l, nil
}

// oauthError is an OAuth error response.
type oauthError struct {
	Code        string `json:"error"`
	Description string `json:"error_description"`
}

func (e *oauthError) Error() string {
	s := "the provider returned the error " + diag.Quote(e.Code)
	if e.Description != "" {
		s += ": " + diag.Quote(e.Description)
	}
	return s
}

// post sends a form to an endpoint. The parameter answer is nil, or a pointer to the variable for the decoded response.
// An OAuth error response is returned as an oauthError. All other failures wrap ErrProvider.
func (d *Device) post(ctx context.Context, endpoint string, form url.Values, answer any) error {
	form.Set("client_id", d.config.ClientID)
	if d.secret != nil {
		form.Set("client_secret", d.secret())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProvider, err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProvider, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProvider, err)
	}
	if resp.StatusCode/100 != 2 {
		var refusal oauthError
		if resp.StatusCode/100 == 4 && json.Unmarshal(body, &refusal) == nil && refusal.Code != "" {
			return &refusal
		}
		return fmt.Errorf("%w: the provider responded with status %s", ErrProvider, diag.Printable(resp.Status))
	}
	// The response may contain secrets, so the error does not quote the response.
	if answer != nil && json.Unmarshal(body, answer) != nil {
		return fmt.Errorf("%w: the response is not the expected JSON", ErrProvider)
	}
	return nil
}

// boundedTransport is an http.RoundTripper that truncates response bodies after maxResponse bytes.
type boundedTransport struct{ next http.RoundTripper }

func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxResponse), resp.Body}
	return resp, nil
}

// Login is a completed sign-in. Printing a Login does not reveal its tokens.
type Login struct {
	Issuer   string
	ClientID string
	Resource string
	// Subject identifies the person who signed in. Subject is empty if the provider sent no ID token.
	Subject string
	Scopes  []string
	// Expires is the time when the access token expires. Expires is zero if the provider did not send this time.
	Expires time.Time

	access, refresh func() string
}

// Token returns the access token.
func (l *Login) Token() string { return l.access() }

// Renewable reports whether the token can be renewed.
func (l *Login) Renewable() bool { return l.refresh() != "" }

// margin is a safety margin. A token is treated as expired this long before its expiry time.
const margin = 30 * time.Second

// Good reports whether the access token remains valid for longer than margin.
func (l *Login) Good(now time.Time) bool {
	return l.Expires.IsZero() || now.Add(margin).Before(l.Expires)
}

// keptLogin is the stored form of a Login. It is secret, because it contains the tokens.
type keptLogin struct {
	Issuer   string    `json:"issuer"`
	ClientID string    `json:"client_id"`
	Resource string    `json:"resource,omitempty"`
	Subject  string    `json:"subject,omitempty"`
	Scopes   []string  `json:"scopes,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
	Access   string    `json:"access_token"`
	Refresh  string    `json:"refresh_token,omitempty"`
}

// Reveal returns the sign-in and its tokens as JSON, for storage in the vault.
func (l *Login) Reveal() string {
	kept := keptLogin{
		l.Issuer, l.ClientID, l.Resource, l.Subject, l.Scopes, l.Expires, l.access(), l.refresh(),
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return ""
	}
	return string(text)
}

// OpenLogin parses the JSON that Reveal returns.
func OpenLogin(text string) (*Login, error) {
	var k keptLogin
	if json.Unmarshal([]byte(text), &k) != nil || k.Access == "" || k.Issuer == "" {
		return nil, errors.New("the stored sign-in is damaged")
	}
	return &Login{
		Issuer: k.Issuer, ClientID: k.ClientID, Resource: k.Resource,
		Subject: k.Subject, Scopes: k.Scopes, Expires: k.Expires,
		access: func() string { return k.Access }, refresh: func() string { return k.Refresh },
	}, nil
}
