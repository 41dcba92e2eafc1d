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

// LoginConfig is the [login] table of config.toml: where ambit login signs in.
//
//	[login]
//	issuer = "https://login.example.com"
//	client_id = "ambit"
//	scopes = ["openid", "offline_access"]   # the default
//	resource = "https://ambit.example.com"  # whom the token is for, if the provider asks
type LoginConfig struct {
	Issuer   string   `toml:"issuer"`
	ClientID string   `toml:"client_id"`
	Scopes   []string `toml:"scopes"`
	Resource string   `toml:"resource"`
}

// ReadLogin reads the [login] table of a file; empty if there is none. An unknown
// key in the table is an error.
func ReadLogin(file string) (LoginConfig, error) {
	c := LoginConfig{Scopes: []string{"openid", "offline_access"}}
	_, err := home.ReadTable(file, "login", &c)
	return c, err
}

// CheckIssuer refuses what cannot be trusted with a sign-in: anything but https,
// save on this machine.
func CheckIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return errors.New("the issuer is not a URL")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("the issuer must be https://")
	}
	return nil
}

// LoginRef is the name under which the sign-in at an issuer is kept: its host,
// and its path where one host has several issuers.
func LoginRef(issuer string) string {
	u, err := url.Parse(issuer)
	if err != nil {
		return "login:"
	}
	return "login:" + u.Host + strings.TrimSuffix(u.Path, "/")
}

// Device signs a person in by the device flow (RFC 8628): the person opens a
// page on any device, enters a code and agrees, while this process asks the
// provider now and then whether that has happened. It needs no browser here and
// no address that the provider could send anybody back to.
type Device struct {
	config   LoginConfig
	secret   func() string
	client   *http.Client
	verifier *oidc.IDTokenVerifier
	// The provider's endpoints.
	device, token, revoke string
}

// Errors of a sign-in.
var (
	ErrDenied      = errors.New("the sign-in was refused")
	ErrCodeExpired = errors.New("nobody signed in before the code expired")
	ErrNoDevice    = errors.New("the provider does not offer the device flow")
	// ErrSignedOut says that the provider does not renew the token any more.
	ErrSignedOut = errors.New("the sign-in has ended")
)

// NewDevice asks the provider where its endpoints are. The secret is that of the
// client, nil for one that has none, as a program on a desktop should.
func NewDevice(ctx context.Context, c LoginConfig, secret func() string) (*Device, error) {
	if err := CheckIssuer(c.Issuer); err != nil {
		return nil, err
	}
	if c.ClientID == "" {
		return nil, errors.New("there is no client id")
	}
	d := newDevice(c, secret, http.DefaultTransport)
	return d, d.discover(ctx)
}

func newDevice(c LoginConfig, secret func() string, transport http.RoundTripper) *Device {
	return &Device{config: c, secret: secret, client: &http.Client{
		Timeout:   20 * time.Second,
		Transport: bounded{transport},
		// What is secret is for the endpoint that was named, and for no other.
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
	d.verifier = p.VerifierContext(ctx, &oidc.Config{ClientID: d.config.ClientID, SupportedSigningAlgs: algorithms})
	if d.device == "" {
		return ErrNoDevice
	}
	for _, endpoint := range []string{d.device, d.token, d.revoke} {
		if endpoint != "" && !d.trusted(endpoint) {
			return fmt.Errorf("%w: its endpoint %s is not https://", ErrProvider, diag.Quote(endpoint))
		}
	}
	return nil
}

// trusted reports whether something secret may go to an address: plain http only
// on this machine, and only if the issuer is there too.
func (d *Device) trusted(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()) && strings.HasPrefix(d.config.Issuer, "http://")
}

// Code is what a person needs to sign in.
type Code struct {
	UserCode string
	// URL is where the code is entered; CompleteURL, if there is one, has the code
	// in it.
	URL, CompleteURL string
	Expires          time.Time

	code     string
	interval time.Duration
}

// Bounds of what a provider can make us do.
const (
	defaultInterval = 5 * time.Second
	maxInterval     = time.Minute
	maxLife         = time.Hour
)

// Begin asks for a code.
func (d *Device) Begin(ctx context.Context) (*Code, error) {
	form := url.Values{"scope": {strings.Join(d.config.Scopes, " ")}}
	if slices.Contains(d.config.Scopes, "offline_access") {
		form.Set("prompt", "consent") // OpenID Connect Core 11: else it is not granted
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
		Expires: time.Now().Add(seconds(answer.ExpiresIn, maxLife, 10*time.Minute)), interval: seconds(answer.Interval, maxInterval, defaultInterval),
	}
	if c.CompleteURL != "" && !d.trusted(c.CompleteURL) {
		c.CompleteURL = ""
	}
	if c.code == "" || !ValidName(c.UserCode) || !d.trusted(c.URL) {
		return nil, fmt.Errorf("%w: its answer is not what RFC 8628 says", ErrProvider)
	}
	return c, nil
}

// seconds is a number of seconds within a bound; one that says nothing is other.
func seconds(n float64, most, other time.Duration) time.Duration {
	switch {
	case !(n > 0):
		return other
	case n > most.Seconds():
		return most
	}
	return time.Duration(n * float64(time.Second))
}

// Wait asks until the person has signed in or refused, or the code has expired.
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
		l, err := d.tokens(ctx, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {c.code}})
		var told *oauthError
		switch {
		case err == nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.As(err, &told):
			if !errors.Is(err, ErrProvider) {
				return nil, err
			}
			interval = min(2*interval, maxInterval) // it could not be reached: RFC 8628, 3.5
		case told.Code == "authorization_pending":
		case told.Code == "slow_down":
			interval = min(interval+5*time.Second, maxInterval)
		case told.Code == "access_denied":
			return nil, ErrDenied
		case told.Code == "expired_token":
			return nil, ErrCodeExpired
		default:
			return nil, err
		}
	}
}

// Refresh renews a sign-in. ErrSignedOut says that the person has to come back.
func (d *Device) Refresh(ctx context.Context, l *Login) (*Login, error) {
	if l.refresh() == "" {
		return nil, ErrSignedOut
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {l.refresh()}}
	if l.Resource != "" {
		form.Set("resource", l.Resource)
	}
	fresh, err := d.tokens(ctx, form)
	if told, ok := errors.AsType[*oauthError](err); ok && told.Code == "invalid_grant" {
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
		return nil, fmt.Errorf("%w: the renewed token is somebody else's", ErrProvider)
	}
	return fresh, nil
}

// Revoke tells the provider that the tokens are not needed any more, if it wants
// to know.
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

// tokens asks the token endpoint.
func (d *Device) tokens(ctx context.Context, form url.Values) (*Login, error) {
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
		return nil, fmt.Errorf("%w: it gave no bearer token", ErrToken)
	}
	l := &Login{
		Issuer: d.config.Issuer, ClientID: d.config.ClientID, Resource: d.config.Resource, Scopes: strings.Fields(answer.Scope),
		access: func() string { return answer.Access }, refresh: func() string { return answer.Refresh },
	}
	if len(l.Scopes) == 0 {
		l.Scopes = d.config.Scopes
	}
	if answer.ExpiresIn > 0 {
		l.Expires = time.Now().Add(seconds(answer.ExpiresIn, 10*365*24*time.Hour, 0)).UTC().Truncate(time.Second)
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

// oauthError is an error as OAuth tells it.
type oauthError struct {
	Code        string `json:"error"`
	Description string `json:"error_description"`
}

func (e *oauthError) Error() string {
	s := "the provider says " + diag.Quote(e.Code)
	if e.Description != "" {
		s += ": " + diag.Quote(e.Description)
	}
	return s
}

// post sends a form and reads the answer, if somebody wants it. The error is an
// oauthError, or ErrProvider if there was no answer.
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
		var told oauthError
		if resp.StatusCode/100 == 4 && json.Unmarshal(body, &told) == nil && told.Code != "" {
			return &told
		}
		return fmt.Errorf("%w: it answers %s", ErrProvider, diag.Printable(resp.Status))
	}
	// What is in the answer may be secret, so the error does not quote it.
	if answer != nil && json.Unmarshal(body, answer) != nil {
		return fmt.Errorf("%w: its answer is not the JSON it should be", ErrProvider)
	}
	return nil
}

// bounded cuts what is read from a provider.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxKeys), resp.Body}
	return resp, nil
}

// Login is a sign-in that was made. Its tokens do not show in what prints it.
type Login struct {
	Issuer   string
	ClientID string
	Resource string
	// Subject is who signed in; empty if the provider did not say.
	Subject string
	Scopes  []string
	// Expires is when the token ends; zero if that is not known.
	Expires time.Time

	access, refresh func() string
}

// Token is the access token itself.
func (l *Login) Token() string { return l.access() }

// Renewable reports whether the token can be renewed.
func (l *Login) Renewable() bool { return l.refresh() != "" }

// margin is how long before its end a token counts as ended.
const margin = 30 * time.Second

// Good reports whether the token will be taken for a while yet.
func (l *Login) Good(now time.Time) bool {
	return l.Expires.IsZero() || now.Add(margin).Before(l.Expires)
}

// keptLogin is a Login as it is kept: secret.
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

// Reveal is all of a sign-in, for a vault: its tokens are in it.
func (l *Login) Reveal() string {
	text, err := json.Marshal(keptLogin{l.Issuer, l.ClientID, l.Resource, l.Subject, l.Scopes, l.Expires, l.access(), l.refresh()})
	if err != nil {
		return ""
	}
	return string(text)
}

// OpenLogin reads what Reveal wrote.
func OpenLogin(text string) (*Login, error) {
	var k keptLogin
	if json.Unmarshal([]byte(text), &k) != nil || k.Access == "" || k.Issuer == "" {
		return nil, errors.New("what is kept is not a sign-in")
	}
	return &Login{
		Issuer: k.Issuer, ClientID: k.ClientID, Resource: k.Resource, Subject: k.Subject, Scopes: k.Scopes, Expires: k.Expires,
		access: func() string { return k.Access }, refresh: func() string { return k.Refresh },
	}, nil
}
