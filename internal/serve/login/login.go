// Package login stores the sign-ins of the person who runs ambit, and issues tokens for them.
//
// A sign-in belongs to ambit, not to an agent. The vault seals each sign-in together with its audience: the hosts that
// the person specified when signing in. Tokens are sent only to these hosts. The addresses in a manifest cannot change
// that, because the author of a manifest must not choose who learns the person's identity. On the loopback interface,
// any process can open a port, so there the audience is a host and a port.
//
// An expired token is renewed when it is needed. A refresh token can be used only once, so only one process at a time
// renews a token, and the other processes use the new token.
package login

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
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

// owner is the name under which the vault stores ambit's own credentials, including sign-ins.
const owner = credential.Own

// prefix is the prefix of each sign-in's reference in the vault. References in a manifest cannot contain a colon.
const prefix = "login:"

// NoneError reports that the person is not signed in at a provider. The field Where contains the provider. It is empty
// if the person is not signed in at all.
type NoneError struct{ Where string }

func (e *NoneError) Error() string {
	if e.Where == "" {
		return "you are not signed in"
	}
	return "you are not signed in at " + e.Where
}

// SeveralError reports that more than one sign-in matches. The field Where contains their providers.
type SeveralError struct{ Where []string }

func (e *SeveralError) Error() string {
	return "you are signed in at several providers: " + diag.Words(e.Where, "and")
}

// VaultError reports that the vault cannot be used.
type VaultError struct{ Err error }

func (e *VaultError) Error() string { return e.Err.Error() }

func (e *VaultError) Unwrap() error { return e.Err }

// Keeper stores sign-ins in the vault and issues tokens for them.
type Keeper struct {
	home  home.Home
	vault credential.Vault
	now   func() time.Time

	empty atomic.Int64 // when the vault was last found to contain no sign-ins, in Unix nanoseconds

	mu    sync.Mutex
	given []string // the issued tokens, oldest first
}

// emptyFor is how long Token remembers that the vault contains no sign-ins. Every call to a remote server asks for a
// token, and reading the vault each time would be slow.
const emptyFor = 2 * time.Millisecond

func New(h home.Home, v credential.Vault) *Keeper { return &Keeper{home: h, vault: v, now: time.Now} }

// Keep saves a sign-in in the vault. Its tokens can be sent only to the given hosts.
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

// Kept returns the sign-in at an issuer, and the hosts of this sign-in. If issuer is empty, there must be exactly one
// sign-in.
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

// Device starts the OAuth device flow at a provider. If the vault contains a client secret for the provider, Device
// uses it.
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

// Fresh returns the sign-in at an issuer. If the token of the sign-in has expired, Fresh renews the token first.
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
		return l, err // another process has renewed the token
	}
	config := identity.LoginConfig{Issuer: l.Issuer, ClientID: l.ClientID, Scopes: l.Scopes, Resource: l.Resource}
	d, err := k.Device(ctx, config)
	if err != nil {
		return nil, err
	}
	if l, err = d.Refresh(ctx, l); err != nil {
		return nil, err
	}
	return l, k.Keep(l, hosts)
}

// lock waits until no other process is renewing a token. The other process may be suspended, so the wait ends with an
// error when ctx is done.
func (k *Keeper) lock(ctx context.Context) (unlock func(), err error) {
	unlock, err = home.Hold(ctx, filepath.Join(k.home.Dir(), "logins.lock"))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("another process is still renewing the sign-in, or was suspended while doing so: %w", err)
	case err != nil:
		return nil, &VaultError{err}
	}
	return unlock, nil
}

// Token returns a token for the server at the given address. The second result is false if no sign-in covers the
// server's host.
func (k *Keeper) Token(ctx context.Context, address string) (token string, found bool, err error) {
	now := k.now().UnixNano()
	if age := now - k.empty.Load(); age >= 0 && age < int64(emptyFor) {
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
	host, err := egress.Audience(address)
	if err != nil {
		return "", false, nil // tokens are never sent to such an address
	}
	entries = slices.DeleteFunc(entries, func(e credential.Entry) bool { return !slices.Contains(e.Hosts, host) })
	switch len(entries) {
	case 0:
		return "", false, nil
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

// maxGiven is the maximum number of issued tokens that are remembered. Tokens are valid for minutes or hours, so a
// token that is no longer remembered has most likely expired.
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

// Given returns the issued tokens. The gateway removes these tokens from the results of tools.
func (k *Keeper) Given() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.given)
}
