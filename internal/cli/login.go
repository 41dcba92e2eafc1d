package cli

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/credential"
	"github.com/ambit-run/ambit/internal/home"
	"github.com/ambit-run/ambit/internal/identity"
	"github.com/ambit-run/ambit/manifest/diag"
)

// loginOwner is whose secret a sign-in is: ambit's own. Its refs have a colon in
// them, which no ref in a manifest can.
const loginOwner = "ambit"

// loginFlags say where to sign in; what they leave out is in config.toml.
type loginFlags struct{ identity.LoginConfig }

func (f *loginFlags) issuer(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Issuer, "issuer", "", "the `URL` of the OpenID provider")
}

func newLogin(t *terminal) *cobra.Command {
	var f loginFlags
	cmd := &cobra.Command{
		Use:     "login",
		GroupID: groupRun,
		Short:   "Sign in at an OpenID provider, on any device",
		Long: "Sign in at an OpenID provider by the device flow: open the page it shows on any device, enter the code and\n" +
			"agree. The token is kept in the vault and renewed when it is needed; ambit login token prints it, for agents\n" +
			"that are reached over HTTP and want to know who you are. The provider and the client id come from the flags,\n" +
			"or from [login] in config.toml.",
		Example: "  ambit login --issuer https://login.example.com --client-id ambit\n  curl -H \"Authorization: Bearer $(ambit login token)\" https://ambit.example.com/api/v1/agents\n  ambit logout",
		Args:    exactly(0, "no arguments"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.login(cmd.Context(), f.LoginConfig) },
	}
	f.issuer(cmd)
	cmd.Flags().StringVar(&f.ClientID, "client-id", "", "the `id` under which the provider knows ambit")
	cmd.Flags().StringSliceVar(&f.Scopes, "scope", nil, "the `scopes` to ask for (default openid,offline_access)")
	cmd.Flags().StringVar(&f.Resource, "resource", "", "whom the token is for: the `URL` of an ambit serve, if the provider asks")
	cmd.AddCommand(newLoginToken(t))
	return cmd
}

func newLoginToken(t *terminal) *cobra.Command {
	var f loginFlags
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Print the access token, renewed if need be",
		Long:    "Print the access token of a sign-in, renewed if need be. It is a secret: whoever has it is you until it ends.",
		Example: "  curl -H \"Authorization: Bearer $(ambit login token)\" https://ambit.example.com/api/v1/agents",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := home.Find()
			if err != nil {
				return &failure{code: exitMissing, err: err}
			}
			l, err := freshLogin(cmd.Context(), h, f.Issuer)
			if err != nil {
				return err
			}
			if t.json {
				doc := loginDocument(l)
				doc["access_token"] = l.Token()
				return t.document(doc)
			}
			t.printf("%s\n", l.Token())
			return nil
		},
	}
	f.issuer(cmd)
	return cmd
}

func newLogout(t *terminal) *cobra.Command {
	var f loginFlags
	cmd := &cobra.Command{
		Use:     "logout",
		GroupID: groupRun,
		Short:   "Forget a sign-in",
		Long:    "Forget a sign-in: tell the provider that its tokens are not needed any more, and take them out of the vault.",
		Example: "  ambit logout\n  ambit logout --issuer https://login.example.com",
		Args:    exactly(0, "no arguments"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.logout(cmd.Context(), f.Issuer) },
	}
	f.issuer(cmd)
	return cmd
}

// login signs somebody in.
func (t *terminal) login(ctx context.Context, asked identity.LoginConfig) error {
	h, err := home.Find()
	if err != nil {
		return &failure{code: exitMissing, err: err}
	}
	c, err := loginConfig(h, asked)
	if err != nil {
		return err
	}
	v := credential.Open(h)
	d, err := device(ctx, v, c)
	if err != nil {
		return err
	}
	code, err := d.Begin(ctx)
	if err != nil {
		return signInFailure(err)
	}
	t.notef("open %s and enter the code %s", t.paint(bold, diag.Printable(code.URL)), t.paint(bold, diag.Printable(code.UserCode)))
	if code.CompleteURL != "" {
		t.notef("or open %s", diag.Printable(code.CompleteURL))
	}
	t.notef("%s", t.paint(dim, "waiting until "+code.Expires.Format("15:04")+" for somebody to agree there"))
	l, err := d.Wait(ctx, code)
	if err != nil {
		return signInFailure(err)
	}
	if err := keepLogin(v, l); err != nil {
		return vaultFailure(err)
	}
	if t.json {
		return t.document(loginDocument(l))
	}
	t.printf("%s at %s as %s\n", t.paint(green, "signed in"), diag.Printable(l.Issuer), diag.Printable(cmp.Or(l.Subject, "somebody whom the provider does not name")))
	if !l.Renewable() {
		t.notef("%s", t.paint(dim, "the provider gave nothing to renew the token with, so it is good until "+l.Expires.Local().Format(time.DateTime)))
	}
	return nil
}

// loginConfig is where to sign in.
func loginConfig(h home.Home, asked identity.LoginConfig) (identity.LoginConfig, error) {
	file := filepath.Join(h.Dir(), "config.toml")
	c, err := identity.ReadLogin(file)
	if err != nil {
		return c, usage("mend the file, or take the table out", "%w", err)
	}
	if c.Issuer == "" && asked.Issuer == "" {
		// The provider whose tokens the daemon here takes.
		o, err := identity.ReadOIDC(file)
		if err != nil {
			return c, usage("mend the file, or take the table out", "%w", err)
		}
		if o != nil {
			c.Issuer = o.Issuer
		}
	}
	if asked.Issuer != "" && c.Issuer != "" && asked.Issuer != c.Issuer {
		c.ClientID, c.Resource = "", "" // those are for the other one
	}
	c.Issuer, c.ClientID, c.Resource = cmp.Or(asked.Issuer, c.Issuer), cmp.Or(asked.ClientID, c.ClientID), cmp.Or(asked.Resource, c.Resource)
	if len(asked.Scopes) > 0 {
		c.Scopes = asked.Scopes
	}
	switch {
	case c.Issuer == "":
		return c, usage("add --issuer URL, or [login] with issuer to "+file, "there is no provider to sign in at")
	case c.ClientID == "":
		return c, usage("add --client-id ID, or client_id to [login] in "+file, "the provider wants to know which program asks")
	}
	if err := identity.CheckIssuer(c.Issuer); err != nil {
		return c, usage("write it as the provider's discovery document does", "%w", err)
	}
	return c, nil
}

// device is the flow at a provider. A client that has a secret has it in the
// vault.
func device(ctx context.Context, v credential.Vault, c identity.LoginConfig) (*identity.Device, error) {
	secret, found, err := v.Get(loginOwner, "client-"+identity.LoginRef(c.Issuer))
	if err != nil {
		return nil, vaultFailure(err)
	}
	var reveal func() string
	if found {
		reveal = secret.Reveal
	}
	d, err := identity.NewDevice(ctx, c, reveal)
	if err != nil {
		return nil, signInFailure(err)
	}
	return d, nil
}

func signInFailure(err error) error {
	switch {
	case errors.Is(err, identity.ErrProvider):
		return &failure{code: exitMissing, err: err, hint: "check the issuer's address, and that it can be reached from here"}
	case errors.Is(err, identity.ErrNoDevice):
		return no("ask whoever runs it to allow the device flow (RFC 8628) for this client", "%w", err)
	case errors.Is(err, identity.ErrCodeExpired):
		return no("run it again", "%w", err)
	case errors.Is(err, identity.ErrSignedOut):
		return no("sign in again: ambit login", "%w", err)
	}
	return no("", "%w", err)
}

// keepLogin puts a sign-in into the vault, for its issuer alone.
func keepLogin(v credential.Vault, l *identity.Login) error {
	u, err := url.Parse(l.Issuer)
	if err != nil {
		return err
	}
	s, err := credential.New(credential.JSON, l.Reveal(), []string{u.Hostname()})
	if err != nil {
		return err
	}
	return v.Set(loginOwner, identity.LoginRef(l.Issuer), s)
}

// keptLogin is the sign-in at an issuer; empty means the only one there is.
func keptLogin(v credential.Vault, issuer string) (*identity.Login, error) {
	ref := identity.LoginRef(issuer)
	if issuer == "" {
		entries, err := v.List()
		if err != nil {
			return nil, vaultFailure(err)
		}
		var refs []string
		for _, e := range entries {
			if e.Agent == loginOwner && strings.HasPrefix(e.Ref, "login:") {
				refs = append(refs, e.Ref)
			}
		}
		if len(refs) > 1 {
			return nil, usage("add --issuer URL", "you are signed in at several providers: %s", strings.ReplaceAll(diag.Words(refs, "and"), "login:", ""))
		}
		if ref = ""; len(refs) == 1 {
			ref = refs[0]
		}
	}
	signIn := "sign in: ambit login"
	if ref == "" {
		return nil, no(signIn, "you are not signed in anywhere")
	}
	s, found, err := v.Get(loginOwner, ref)
	switch {
	case err != nil:
		return nil, vaultFailure(err)
	case !found:
		return nil, no(signIn, "you are not signed in at %s", strings.TrimPrefix(ref, "login:"))
	}
	l, err := identity.OpenLogin(s.Reveal())
	if err != nil {
		return nil, no(signIn, "%w", err)
	}
	return l, nil
}

// freshLogin is a sign-in whose token is good, renewed if need be.
func freshLogin(ctx context.Context, h home.Home, issuer string) (*identity.Login, error) {
	v := credential.Open(h)
	l, err := keptLogin(v, issuer)
	if err != nil || l.Good(time.Now()) {
		return l, err
	}
	// A token to renew with is good once: two processes that used it would end
	// the sign-in.
	unlock, err := lockLogins(h)
	if err != nil {
		return nil, &failure{code: exitMissing, err: err}
	}
	defer unlock()
	if l, err = keptLogin(v, l.Issuer); err != nil || l.Good(time.Now()) {
		return l, err
	}
	d, err := device(ctx, v, identity.LoginConfig{Issuer: l.Issuer, ClientID: l.ClientID, Scopes: l.Scopes, Resource: l.Resource})
	if err != nil {
		return nil, err
	}
	if l, err = d.Refresh(ctx, l); err != nil {
		return nil, signInFailure(err)
	}
	if err := keepLogin(v, l); err != nil {
		return nil, vaultFailure(err)
	}
	return l, nil
}

// lockLogins waits until no other process renews a token.
func lockLogins(h home.Home) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(h.Dir(), "logins.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// logout forgets a sign-in. What the provider says to that does not matter to
// what is kept here.
func (t *terminal) logout(ctx context.Context, issuer string) error {
	h, err := home.Find()
	if err != nil {
		return &failure{code: exitMissing, err: err}
	}
	v := credential.Open(h)
	l, err := keptLogin(v, issuer)
	if err != nil {
		return err
	}
	d, err := device(ctx, v, identity.LoginConfig{Issuer: l.Issuer, ClientID: l.ClientID})
	if err == nil {
		err = d.Revoke(ctx, l)
	}
	if _, removeErr := v.Remove(loginOwner, identity.LoginRef(l.Issuer)); removeErr != nil {
		return vaultFailure(removeErr)
	}
	if err != nil {
		t.notef("%s the provider was not told, so the tokens are good there until they end: %s", t.paint(yellow, "ambit:"), diag.Printable(err.Error()))
	}
	if t.json {
		return t.document(map[string]any{"issuer": l.Issuer, "removed": true, "revoked": err == nil})
	}
	t.printf("%s at %s\n", t.paint(green, "signed out"), diag.Printable(l.Issuer))
	return nil
}

// loginDocument is a sign-in without its tokens.
func loginDocument(l *identity.Login) map[string]any {
	doc := map[string]any{
		"issuer": l.Issuer, "client_id": l.ClientID, "subject": l.Subject, "scopes": append([]string{}, l.Scopes...),
		"expires_at": nil, "renewable": l.Renewable(), "ref": identity.LoginRef(l.Issuer),
	}
	if !l.Expires.IsZero() {
		doc["expires_at"] = l.Expires.Format(time.RFC3339)
	}
	return doc
}
