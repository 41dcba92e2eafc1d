package cli

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/login"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// loginFlags say where to sign in; what they leave out is in config.toml.
type loginFlags struct {
	identity.LoginConfig
	hosts []string
}

// keeper keeps the sign-ins of a home.
func keeper(h home.Home) *login.Keeper { return login.New(h, credential.Open(h)) }

func (f *loginFlags) issuer(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Issuer, "issuer", "", "the `URL` of the OpenID provider")
}

func newLogin(t *terminal) *cobra.Command {
	var f loginFlags
	cmd := &cobra.Command{
		Use:     "login",
		GroupID: groupSecrets,
		Short:   "Sign in at an OpenID provider, on any device",
		Long: "Sign in at an OpenID provider by the device flow: open the page it shows on any device, enter the code and\n" +
			"agree. The token is kept in the vault and renewed when it is needed. It is sent to the hosts that --host\n" +
			"names, or else to that of --resource, and to no other: to hosted agents and to tool servers there. A host of this\n" +
			"machine is named with its port, such as localhost:8080. ambit login token prints the token for other programs.\n" +
			"The provider and the client id come from the flags, or from [login] in config.toml.",
		Example: "  ambit login --issuer https://login.example.com --client-id ambit --host agents.example.com\n  curl -H \"Authorization: Bearer $(ambit login token)\" https://ambit.example.com/api/v1/agents\n  ambit logout",
		Args:    exactly(0, "no arguments"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.login(cmd.Context(), f) },
	}
	f.issuer(cmd)
	cmd.Flags().StringVar(&f.ClientID, "client-id", "", "the `id` under which the provider knows ambit")
	cmd.Flags().StringSliceVar(&f.Scopes, "scope", nil, "the `scopes` to ask for (default openid,offline_access)")
	cmd.Flags().StringVar(&f.Resource, "resource", "", "whom the token is for: the `URL` of an ambit serve, if the provider asks")
	cmd.Flags().StringSliceVar(&f.hosts, "host", nil, "the `hosts` of agents and tool servers that the token is sent to (default that of --resource)")
	cmd.AddCommand(newLoginToken(t))
	return cmd
}

func newLoginToken(t *terminal) *cobra.Command {
	var f loginFlags
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Print the access token, renewed if need be",
		Long:    "Print the access token of a sign-in, renewed if necessary. It is a secret: until it expires, its holder acts as you.",
		Example: "  curl -H \"Authorization: Bearer $(ambit login token)\" https://ambit.example.com/api/v1/agents",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h := t.home
			l, err := keeper(h).Fresh(cmd.Context(), f.Issuer)
			if err != nil {
				return signInFailure(err)
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
		GroupID: groupSecrets,
		Short:   "Forget a sign-in",
		Long:    "Forget a sign-in: revoke its tokens at the provider, and remove them from the vault.",
		Example: "  ambit logout\n  ambit logout --issuer https://login.example.com",
		Args:    exactly(0, "no arguments"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.logout(cmd.Context(), f.Issuer) },
	}
	f.issuer(cmd)
	return cmd
}

// login signs the user in.
func (t *terminal) login(ctx context.Context, asked loginFlags) error {
	h := t.home
	c, err := loginConfig(h, asked.LoginConfig)
	if err != nil {
		return err
	}
	hosts, err := loginHosts(asked.hosts, c.Resource)
	if err != nil {
		return err
	}
	k := keeper(h)
	d, err := k.Device(ctx, c)
	if err != nil {
		return signInFailure(err)
	}
	code, err := d.Begin(ctx)
	if err != nil {
		return signInFailure(err)
	}
	t.notef("open %s and enter the code %s", t.paint(bold, diag.Printable(code.URL)), t.paint(bold, diag.Printable(code.UserCode)))
	if code.CompleteURL != "" {
		t.notef("or open %s", diag.Printable(code.CompleteURL))
	}
	t.notef("%s", t.paint(dim, "waiting until "+code.Expires.Format("15:04")+" for your consent there"))
	l, err := d.Wait(ctx, code)
	if err != nil {
		return signInFailure(err)
	}
	if err := k.Keep(l, hosts); err != nil {
		return signInFailure(err)
	}
	if t.json {
		doc := loginDocument(l)
		doc["hosts"] = hosts
		return t.document(doc)
	}
	t.printf("%s at %s as %s\n", t.paint(green, "signed in"), diag.Printable(l.Issuer), diag.Printable(cmp.Or(l.Subject, "a person whom the provider does not name")))
	if len(hosts) > 0 {
		t.printf("its token is sent to %s, and to no other host\n", diag.Words(hosts, "and"))
	}
	if !l.Renewable() {
		t.notef("%s", t.paint(dim, "the provider gave nothing to renew the token with, so it is good until "+moment(l.Expires)))
	}
	return nil
}

// loginHosts returns the hosts that get the token.
func loginHosts(named []string, resource string) ([]string, error) {
	read := login.Host
	if u, err := url.Parse(resource); len(named) == 0 && err == nil && u.Hostname() != "" {
		named, read = []string{resource}, login.At
	}
	hosts := []string{}
	for _, name := range named {
		host, err := read(name)
		if err != nil {
			return nil, usage("write the host's name alone, such as agents.example.com, or one of this machine with its port, such as localhost:8080", "%w", err)
		}
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts, nil
}

// loginConfig merges the flags with the settings.
func loginConfig(h home.Home, asked identity.LoginConfig) (identity.LoginConfig, error) {
	file := h.Config()
	c, err := identity.ReadLogin(file)
	if err != nil {
		return c, usage("fix the file, or remove the table", "%w", err)
	}
	if c.Issuer == "" && asked.Issuer == "" {
		// The provider whose tokens the daemon here takes.
		o, err := identity.ReadOIDC(file)
		if err != nil {
			return c, usage("fix the file, or remove the table", "%w", err)
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
		return c, usage("add --client-id ID, or client_id to [login] in "+file, "the provider needs a client id")
	}
	if err := identity.CheckIssuer(c.Issuer); err != nil {
		return c, usage("write it as the provider's discovery document does", "%w", err)
	}
	return c, nil
}

func signInFailure(err error) error {
	if several, ok := errors.AsType[*login.SeveralError](err); ok {
		return usage("add --issuer URL", "%w", several)
	}
	if none, ok := errors.AsType[*login.NoneError](err); ok {
		return no("sign in: ambit login", "%w", none)
	}
	if locked, ok := errors.AsType[*login.VaultError](err); ok {
		return vaultFailure(locked.Err)
	}
	switch {
	case errors.Is(err, identity.ErrProvider):
		return &failure{code: exitMissing, err: err, hint: "check the issuer's address, and that it can be reached from here"}
	case errors.Is(err, identity.ErrNoDevice):
		return no("ask its administrator to allow the device flow (RFC 8628) for this client", "%w", err)
	case errors.Is(err, identity.ErrCodeExpired):
		return no("run it again", "%w", err)
	case errors.Is(err, identity.ErrSignedOut):
		return no("sign in again: ambit login", "%w", err)
	}
	return no("", "%w", err)
}

// logout forgets a sign-in, also if the provider cannot revoke it.
func (t *terminal) logout(ctx context.Context, issuer string) error {
	h := t.home
	k := keeper(h)
	l, _, err := k.Kept(issuer)
	if err != nil {
		return signInFailure(err)
	}
	d, err := k.Device(ctx, identity.LoginConfig{Issuer: l.Issuer, ClientID: l.ClientID})
	if err == nil {
		err = d.Revoke(ctx, l)
	}
	if removeErr := k.Forget(l.Issuer); removeErr != nil {
		return signInFailure(removeErr)
	}
	if err != nil {
		t.notef("%s the provider could not be reached, so the tokens stay valid there until they expire: %s", t.paint(yellow, "ambit:"), diag.Printable(err.Error()))
	}
	return t.say(map[string]any{"issuer": l.Issuer, "removed": true, "revoked": err == nil}, "%s at %s\n", t.paint(green, "signed out"), diag.Printable(l.Issuer))
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

func newWhoami(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "whoami",
		GroupID: groupSecrets,
		Short:   "Show who calls from here, and which key this ambit signs with",
		Long: "Show who calls from here: the name that grants and the journal use, and the public key that programs see with it.\n" +
			"signer is the key by which this ambit signs grants and the journal.",
		Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			h := t.home
			keys, err := identity.OpenKeys(h.Root())
			if err != nil {
				return notOpened(h, "", err)
			}
			name := identity.LocalName()
			signer := base64.StdEncoding.EncodeToString(keys.Signer().Public().(ed25519.PublicKey))
			return t.show(map[string]string{"principal": name, "pubkey": keys.PublicOf(name), "signer": signer}, func() {
				t.table("", [][]string{{"principal", name}, {"pubkey", keys.PublicOf(name)}, {"signer", signer}})
			})
		},
	}
}
