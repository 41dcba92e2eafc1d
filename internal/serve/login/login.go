// Package login keeps the sign-ins of the person who runs ambit, and gives their
// tokens out.
//
// A sign-in is ambit's own secret, not an agent's. It lies in the vault, and the
// vault seals it together with its audience: the hosts that the person named when
// they signed in. A token goes to these hosts, exactly, and to no other, whatever
// a manifest says: a manifest that names an address must not get to choose who
// hears who you are. On this machine anybody may listen at some port, and in the
// clear, so there the audience is a host and its port.
//
// A token that has ended is renewed when it is asked for. What renews it is good
// once, so one process does it at a time, and the others take what it got.
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

// owner is whose secret a sign-in is: ambit's own. Its refs have a colon in
// them, which no ref in a manifest can.
const owner = credential.Own

const prefix = "login:"

// NoneError says that nobody has signed in; Where is empty for nowhere at all.
type NoneError struct{ Where string }

func (e *NoneError) Error() string {
	if e.Where == "" {
		return "you are not signed in anywhere"
	}
	return "you are not signed in at " + e.Where
}

// SeveralError says that it is not clear which of several sign-ins is meant.
type SeveralError struct{ Where []string }

func (e *SeveralError) Error() string {
	return "you are signed in at several providers: " + diag.Words(e.Where, "and")
}

// PortlessError says that a sign-in is for a host of this machine without a port,
// as they once were, so its token is not sent.
type PortlessError struct{ Where, Host string }

func (e *PortlessError) Error() string {
	return "the sign-in at " + e.Where + " is for " + e.Host + " without a port, and a token stays with one: sign in again with --host HOST:PORT"
}

// VaultError says that the vault cannot be used.
type VaultError struct{ Err error }

func (e *VaultError) Error() string { return e.Err.Error() }

// Unwrap is what the vault said.
func (e *VaultError) Unwrap() error { return e.Err }

// Keeper keeps sign-ins.
type Keeper struct {
	home  home.Home
	vault credential.Vault
	now   func() time.Time

	nobody atomic.Int64 // when there was no sign-in at all

	mu    sync.Mutex
	given []string // tokens that were given out, the oldest first
}

// glance is how long it is believed that nobody has signed in: every call asks.
const glance = 2 * time.Millisecond

// New is the keeper of a home.
func New(h home.Home, v credential.Vault) *Keeper { return &Keeper{home: h, vault: v, now: time.Now} }

// Keep keeps a sign-in for some hosts.
func (k *Keeper) Keep(l *identity.Login, hosts []string) error {
	s, err := credential.New(credential.JSON, l.Reveal(), hosts)
	if err != nil {
		return err
	}
	if err := k.vault.Set(owner, identity.LoginRef(l.Issuer), s); err != nil {
		return &VaultError{err}
	}
	k.nobody.Store(0)
	return nil
}

// Kept is the sign-in at an issuer and the hosts it is for. No issuer means the
// only sign-in there is.
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

// entries are the sign-ins that are kept.
func (k *Keeper) entries() ([]credential.Entry, error) {
	all, err := k.vault.List()
	if err != nil {
		return nil, &VaultError{err}
	}
	return slices.DeleteFunc(all, func(e credential.Entry) bool { return e.Agent != owner || !strings.HasPrefix(e.Ref, prefix) }), nil
}

func places(entries []credential.Entry) []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimPrefix(e.Ref, prefix)
	}
	return names
}

// Forget takes a sign-in out of the vault.
func (k *Keeper) Forget(issuer string) error {
	if _, err := k.vault.Remove(owner, identity.LoginRef(issuer)); err != nil {
		return &VaultError{err}
	}
	return nil
}

// Device is the flow at a provider. A client that has a secret has it in the
// vault.
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

// Fresh is a sign-in whose token is good, renewed if need be.
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

// lock waits until no other process renews a token, and no longer than the caller:
// that process may have been stopped.
func (k *Keeper) lock(ctx context.Context) (unlock func(), err error) {
	unlock, err = home.Hold(ctx, filepath.Join(k.home.Dir(), "logins.lock"))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("another process is renewing the sign-in, or was stopped while it did: %w", err)
	case err != nil:
		return nil, &VaultError{err}
	}
	return unlock, nil
}

// Token is the token for a server at an address, if a sign-in is meant for its
// host.
func (k *Keeper) Token(ctx context.Context, address string) (token string, found bool, err error) {
	now := k.now().UnixNano()
	if age := now - k.nobody.Load(); age >= 0 && age < int64(glance) {
		return "", false, nil
	}
	entries, err := k.entries()
	if err != nil {
		return "", false, err
	}
	if len(entries) == 0 {
		k.nobody.Store(now)
		return "", false, nil
	}
	host, err := audience(address)
	if err != nil {
		return "", false, nil // nothing secret goes there
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

// maxGiven is how many tokens are remembered. Each was good for minutes or hours;
// the oldest of so many is over.
const maxGiven = 256

// give remembers a token that leaves.
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

// Given are the tokens that were given out, for the scan of what comes back.
func (k *Keeper) Given() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.given)
}

// portless is the error of a sign-in that was for a place on this machine when
// ports did not count; nil if there is none.
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

// Host is a host that a sign-in can be for: a name, or a name or address of this
// machine with a port.
func Host(text string) (string, error) {
	if host, port, err := net.SplitHostPort(text); err == nil {
		host = bare(host)
		if n, err := strconv.ParseUint(port, 10, 16); egress.IsLoopback(host) && err == nil && n > 0 {
			return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
		}
	}
	host := bare(text)
	if egress.IsLoopback(host) {
		return "", fmt.Errorf("%s is this machine, where anybody may listen: which port is meant?", diag.Quote(text))
	}
	if !isName(host) {
		return "", fmt.Errorf("%s is not the name of a host", diag.Quote(text))
	}
	return host, nil
}

// bare is a host's name as it is compared.
func bare(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

func isName(host string) bool {
	u, err := url.Parse("https://" + host)
	return err == nil && host != "" && u.Host == host && u.Hostname() == host && u.Path == "" && !strings.ContainsAny(host, "*@ ") && !strings.HasSuffix(host, ".")
}

// At is the host that a sign-in is for if it is meant for an address.
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

// audience is who at an address may hear a token: over https, or on this machine.
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
