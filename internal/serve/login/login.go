// Package login stores the sign-ins of the person who runs ambit, and issues their tokens.
//
// A sign-in belongs to ambit, not to an agent. The vault seals it together with its audience: the
// hosts that the person named when signing in. A token is sent to exactly these hosts, whatever a
// manifest says, because a manifest that names an address must not choose who learns the person's
// identity. On this machine any process may listen on a port, without TLS, so there the audience is
// a host with its port.
//
// An expired token is renewed on demand. A refresh token is valid once, so one process renews at a
// time, and the others use its result.
package login

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// owner is ambit itself. Refs of sign-ins contain a colon, which refs in manifests cannot.
const owner = credential.Own

const prefix = "login:"

// NoneError reports a missing sign-in; Where is empty if there is none at all.
type NoneError struct{ Where string }

func (e *NoneError) Error() string {
	if e.Where == "" {
		return "you are not signed in"
	}
	return "you are not signed in at " + e.Where
}

// SeveralError reports that several sign-ins match.
type SeveralError struct{ Where []string }

func (e *SeveralError) Error() string {
	return "you are signed in at several providers: " + diag.Words(e.Where, "and")
}

// PortlessError reports a sign-in for a host of this machine without a port, as earlier versions
// stored it. Its token is not sent.
type PortlessError struct{ Where, Host string }

func (e *PortlessError) Error() string {
	return "the sign-in at " + e.Where + " is for " + e.Host + " without a port: sign in again with --host HOST:PORT"
}

// VaultError reports that the vault is unusable.
type VaultError struct{ Err error }

func (e *VaultError) Error() string { return e.Err.Error() }

func (e *VaultError) Unwrap() error { return e.Err }

// Keeper stores sign-ins.
type Keeper struct {
	home  home.Home
	vault credential.Vault
	now   func() time.Time

	empty atomic.Int64 // when the vault last had no sign-in

	mu    sync.Mutex
	given []string // issued tokens, the oldest first
}

// glance is how long an empty vault is not read again, because every call asks.
const glance = 2 * time.Millisecond

func New(h home.Home, v credential.Vault) *Keeper { return &Keeper{home: h, vault: v, now: time.Now} }

// Keep stores a sign-in for some hosts.
func (k *Keeper) Keep(l *identity.Login, hosts []string) error {
	s, err := credential.New(credential.JSON, l.Reveal(), hosts)
	if err != nil {
		return err
	}
	if err := k.vault.Set(owner, identity.LoginRef(l.Issuer), s); err != nil {
		return &VaultError{err}
	}
	k.empty.Store(0)
	return nil
}

// Kept returns the sign-in at an issuer and its hosts. An empty issuer means the only sign-in.
func (k *Keeper) Kept(issuer string) (*identity.Login, []string, error) {
	ref := identity.LoginRef(issuer)
	if issuer == "" {
		entries, err := k.entries()
		switch {
		case err != nil:
			return nil, nil, err
		case len(entries) > 1:
			return nil, nil, &SeveralError{places(entries)}
		case len(entries) == 0:
			return nil, nil, &NoneError{}
		}
		ref = entries[0].Ref
	}
	return k.open(ref)
}

func (k *Keeper) open(ref string) (*identity.Login, []string, error) {
	s, found, err := k.vault.Get(owner, ref)
	switch {
	case err != nil:
		return nil, nil, &VaultError{err}
	case !found:
		return nil, nil, &NoneError{strings.TrimPrefix(ref, prefix)}
	}
	l, err := identity.OpenLogin(s.Reveal())
	return l, s.Hosts(), err
}

// entries returns the stored sign-ins.
func (k *Keeper) entries() ([]credential.Entry, error) {
	all, err := k.vault.List()
	if err != nil {
		return nil, &VaultError{err}
	}
	return slices.DeleteFunc(all, func(e credential.Entry) bool {
		return e.Agent != owner || !strings.HasPrefix(e.Ref, prefix)
	}), nil
}

func places(entries []credential.Entry) []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimPrefix(e.Ref, prefix)
	}
	return names
}

// Forget removes a sign-in from the vault.
func (k *Keeper) Forget(issuer string) error {
	if _, err := k.vault.Remove(owner, identity.LoginRef(issuer)); err != nil {
		return &VaultError{err}
	}
	return nil
}

// Device starts the device flow at a provider. The vault has the secrets of confidential clients.
func (k *Keeper) Device(ctx context.Context, c identity.LoginConfig) (*identity.Device, error) {
	secret, found, err := k.vault.Get(owner, "client-"+identity.LoginRef(c.Issuer))
	if err != nil {
		return nil, &VaultError{err}
	}
	var reveal func() string
	if found {
		reveal = secret.Reveal
	}
	return identity.NewDevice(ctx, c, reveal)
}

// Fresh returns a sign-in with a valid token, renewed if necessary.
func (k *Keeper) Fresh(ctx context.Context, issuer string) (*identity.Login, error) {
	l, _, err := k.Kept(issuer)
	if err != nil || l.Good(k.now()) {
		return l, err
	}
	unlock, err := k.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	l, hosts, err := k.Kept(l.Issuer)
	if err != nil || l.Good(k.now()) {
		return l, err // another process has renewed it
	}
	d, err := k.Device(ctx, identity.LoginConfig{Issuer: l.Issuer, ClientID: l.ClientID, Scopes: l.Scopes, Resource: l.Resource})
	if err != nil {
		return nil, err
	}
	if l, err = d.Refresh(ctx, l); err != nil {
		return nil, err
	}
	return l, k.Keep(l, hosts)
}

// lock waits until no other process renews a token, or until ctx ends: that process may be
// suspended.
func (k *Keeper) lock(ctx context.Context) (unlock func(), err error) {
	unlock, err = home.Hold(ctx, filepath.Join(k.home.Dir(), "logins.lock"))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("another process is renewing the sign-in or was suspended meanwhile: %w", err)
	case err != nil:
		return nil, &VaultError{err}
	}
	return unlock, nil
}

// Token returns the token for a server, if a sign-in covers its host.
func (k *Keeper) Token(ctx context.Context, address string) (token string, found bool, err error) {
	now := k.now().UnixNano()
	if age := now - k.empty.Load(); age >= 0 && age < int64(glance) {
		return "", false, nil
	}
	entries, err := k.entries()
	if err != nil {
		return "", false, err
	}
	if len(entries) == 0 {
		k.empty.Store(now)
		return "", false, nil
	}
	host, err := audience(address)
	if err != nil {
		return "", false, nil // no secret is sent there
	}
	portless := portless(entries, host)
	entries = slices.DeleteFunc(entries, func(e credential.Entry) bool { return !slices.Contains(e.Hosts, host) })
	switch len(entries) {
	case 0:
		return "", false, portless
	case 1:
	default:
		return "", false, &SeveralError{places(entries)}
	}
	l, _, err := k.open(entries[0].Ref)
	if err != nil {
		return "", false, err
	}
	if l, err = k.Fresh(ctx, l.Issuer); err != nil {
		return "", false, err
	}
	k.give(l.Token())
	return l.Token(), true, nil
}

// maxGiven bounds the remembered tokens. Tokens are valid for minutes or hours; the oldest of so
// many has expired.
const maxGiven = 256

// give remembers an issued token.
func (k *Keeper) give(token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.given, token) {
		return
	}
	if len(k.given) == maxGiven {
		k.given = slices.Delete(k.given, 0, 1)
	}
	k.given = append(k.given, token)
}

// Given returns the issued tokens, which results are searched for.
func (k *Keeper) Given() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.given)
}

// portless returns the error of a sign-in for a loopback host without a port, or nil.
func portless(entries []credential.Entry, place string) error {
	host, _, err := net.SplitHostPort(place)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if slices.Contains(e.Hosts, host) {
			return &PortlessError{places([]credential.Entry{e})[0], host}
		}
	}
	return nil
}

// Host validates a host of a sign-in: a name, or a loopback name or address with a port.
func Host(text string) (string, error) {
	if host, port, err := net.SplitHostPort(text); err == nil {
		host = bare(host)
		if n, err := strconv.ParseUint(port, 10, 16); egress.IsLoopback(host) && err == nil && n > 0 {
			return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
		}
	}
	host := bare(text)
	if egress.IsLoopback(host) {
		return "", fmt.Errorf("%s is this machine, where any process may listen: add the port", diag.Quote(text))
	}
	if !isName(host) {
		return "", fmt.Errorf("%s is not a host name", diag.Quote(text))
	}
	return host, nil
}

// bare normalises a host name for comparison.
func bare(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

func isName(host string) bool {
	u, err := url.Parse("https://" + host)
	return err == nil && host != "" && u.Host == host && u.Hostname() == host && u.Path == "" &&
		!strings.ContainsAny(host, "*@ ") && !strings.HasSuffix(host, ".")
}

// At returns the host of a sign-in that would cover an address.
func At(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	host := u.Hostname()
	if !egress.IsLoopback(bare(host)) {
		return Host(host)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return Host(net.JoinHostPort(host, port))
}

// audience returns the host that may receive a token for an address: over https, or on this
// machine.
func audience(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && egress.IsLoopback(bare(u.Hostname()))) || u.User != nil {
		return "", errors.New("the connection would not be encrypted")
	}
	return At(address)
}
