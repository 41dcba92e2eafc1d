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
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/login"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// loginFlags contains the flags of "ambit login" and related verbs. Missing values come from config.toml.
type loginFlags struct {
	identity.LoginConfig
	hosts []string
}

// keeper returns the object that stores the sign-ins of a home.
func keeper(h home.Home) *login.Keeper { return login.New(h, credential.Open(h)) }

func (f *loginFlags) issuer(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Issuer, "issuer", "", "the `URL` of the OpenID provider")
}

func newLogin(t *terminal) *cobra.Command {
	var f loginFlags
	var s serverLogin
	cmd := verb("login [AGENT SERVER]", noneOrTwo, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return t.login(ctx, f)
		}
		s.agent, s.server, s.scopes = args[0], args[1], f.Scopes
		if s.daemon != "" {
			return t.loginDaemon(ctx, s)
		}
		return t.loginServer(ctx, s)
	})
	s.flags(cmd)
	s.daemonFlags(cmd)
	f.issuer(cmd)
	cmd.Flags().StringVar(&f.ClientID, "client-id", "", "the client `id` that the provider gave to ambit")
	cmd.Flags().StringSliceVar(&f.Scopes, "scope", nil, "the `scopes` to request (default openid,offline_access); "+
		"for a tool server, they are added to the scopes that the server requests")
	cmd.Flags().StringVar(&f.Resource, "resource", "",
		"the token's audience: the `URL` of the daemon (some providers require this)")
	cmd.Flags().StringSliceVar(&f.hosts, "host", nil,
		"the `hosts` of agents and tool servers to which the token is sent (default: the host of --resource)")
	cmd.AddCommand(newLoginToken(t), newLoginList(t))
	return cmd
}

func newLoginToken(t *terminal) *cobra.Command {
	var f loginFlags
	cmd := verb("token", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		l, err := keeper(t.home).Fresh(ctx, f.Issuer)
		if err != nil {
			return signInFailure(err)
		}
		doc := loginDocument(l)
		doc["access_token"] = l.Token()
		return t.say(doc, "%s\n", l.Token())
	})
	f.issuer(cmd)
	return cmd
}

func newLogout(t *terminal) *cobra.Command {
	var f loginFlags
	var s serverLogin
	cmd := verb("logout [AGENT SERVER]", noneOrTwo, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return t.logout(ctx, f.Issuer)
		}
		s.agent, s.server = args[0], args[1]
		if s.daemon != "" {
			return t.logoutDaemon(ctx, s)
		}
		return t.logoutServer(ctx, s)
	})
	s.dev.devFlags(cmd.Flags(), devLogin)
	s.daemonFlags(cmd)
	f.issuer(cmd)
	return cmd
}

// login signs the user in at the OpenID provider and stores the tokens.
func (t *terminal) login(ctx context.Context, asked loginFlags) error {
	c, err := loginConfig(t.home, asked.LoginConfig)
	if err != nil {
		return err
	}
	hosts, err := loginHosts(asked.hosts, c.Resource)
	if err != nil {
		return err
	}
	k := keeper(t.home)
	d, err := k.Device(ctx, c)
	if err != nil {
		return signInFailure(err)
	}
	code, err := d.Begin(ctx)
	if err != nil {
		return signInFailure(err)
	}
	page, userCode := t.paint(bold, diag.Printable(code.URL)), t.paint(bold, diag.Printable(code.UserCode))
	t.notef("open %s and enter the code %s", page, userCode)
	if code.CompleteURL != "" {
		t.notef("or open %s", diag.Printable(code.CompleteURL))
	}
	t.remarkf("waiting until %s for you to approve the sign-in on that page", code.Expires.Format("15:04"))
	l, err := d.Wait(ctx, code)
	if err == nil {
		err = k.Keep(l, hosts)
	}
	if err != nil {
		return signInFailure(err)
	}
	doc := loginDocument(l)
	doc["hosts"] = hosts
	return t.show(doc, func() {
		who := diag.Printable(cmp.Or(l.Subject, "an unnamed user"))
		t.printf("%s at %s as %s\n", t.paint(green, "signed in"), diag.Printable(l.Issuer), who)
		if len(hosts) > 0 {
			t.printf("the token is sent to %s, and to no other host\n", diag.Words(hosts, "and"))
		}
		if !l.Renewable() {
			t.remarkf("the provider gave no refresh token, so the token is valid only until %s", moment(l.Expires))
		}
	})
}

// loginHosts returns the hosts that receive the token. If no host is given, the host of the resource URL receives the
// token.
func loginHosts(named []string, resource string) ([]string, error) {
	read := egress.AudienceHost
	if u, err := url.Parse(resource); len(named) == 0 && err == nil && u.Hostname() != "" {
		named, read = []string{resource}, egress.AudienceAt
	}
	hosts := []string{}
	for _, name := range named {
		host, err := read(name)
		if err != nil {
			return nil, usage("write only the name of a host, such as agents.example.com; "+
				"for this machine, add the port, such as localhost:8080", "%w", err)
		}
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts, nil
}

// loginConfig merges the flags with the settings in config.toml. Flags take precedence.
func loginConfig(h home.Home, asked identity.LoginConfig) (identity.LoginConfig, error) {
	file := h.Config()
	c, err := identity.ReadLogin(file)
	if err == nil && c.Issuer == "" && asked.Issuer == "" {
		// Use the provider whose tokens the daemon accepts.
		var o *identity.OIDCConfig
		if o, err = identity.ReadOIDC(file); o != nil {
			c.Issuer = o.Issuer
		}
	}
	if err != nil {
		return c, usage("fix config.toml, or remove the invalid table from it", "%w", err)
	}
	if asked.Issuer != "" && c.Issuer != "" && asked.Issuer != c.Issuer {
		c.ClientID, c.Resource = "", "" // these values in config.toml are for a different issuer
	}
	c.Issuer, c.ClientID = cmp.Or(asked.Issuer, c.Issuer), cmp.Or(asked.ClientID, c.ClientID)
	c.Resource = cmp.Or(asked.Resource, c.Resource)
	if len(asked.Scopes) > 0 {
		c.Scopes = asked.Scopes
	}
	switch {
	case c.Issuer == "":
		return c, usage(`add --issuer URL, or set "issuer" under [login] in `+file, "no OpenID provider is configured")
	case c.ClientID == "":
		return c, usage("add --client-id ID, or set client_id under [login] in "+file, "the provider needs a client id")
	}
	if err := identity.CheckIssuer(c.Issuer); err != nil {
		return c, usage("write the issuer exactly as the provider's discovery document does", "%w", err)
	}
	return c, nil
}

func signInFailure(err error) error {
	if several, ok := errors.AsType[*login.SeveralError](err); ok {
		return usage("add --issuer URL", "%w", several)
	}
	if none, ok := errors.AsType[*login.NoneError](err); ok {
		return no("run: ambit login", "%w", none)
	}
	if locked, ok := errors.AsType[*login.VaultError](err); ok {
		return vaultFailure(locked.Err)
	}
	switch {
	case errors.Is(err, identity.ErrProvider):
		return missing("check the issuer's address, and check that this machine can reach it", "%w", err)
	case errors.Is(err, identity.ErrNoDevice):
		return no("ask the provider's administrator to allow the device flow (RFC 8628) for this client", "%w", err)
	case errors.Is(err, identity.ErrCodeExpired):
		return no("run the command again", "%w", err)
	case errors.Is(err, identity.ErrSignedOut):
		return no("to sign in again, run: ambit login", "%w", err)
	}
	return no("", "%w", err)
}

// logout revokes and deletes the tokens of a sign-in. It deletes the tokens even if revoking fails.
func (t *terminal) logout(ctx context.Context, issuer string) error {
	k := keeper(t.home)
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
		t.warnf("the provider could not be reached, so the tokens stay valid there until they expire: %s",
			diag.Printable(err.Error()))
	}
	doc := map[string]any{"issuer": l.Issuer, "removed": true, "revoked": err == nil}
	return t.say(doc, "%s at %s\n", t.paint(green, "signed out"), diag.Printable(l.Issuer))
}

// loginDocument returns the JSON document for a sign-in. It does not contain tokens.
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
	return verb("whoami", exactly(0, "no arguments"), func(context.Context, []string) error {
		keys, err := identity.OpenKeys(t.home.Root())
		if err != nil {
			return notOpened(t.home, "", err)
		}
		name := identity.LocalName()
		signer := base64.StdEncoding.EncodeToString(keys.Signer().Public().(ed25519.PublicKey))
		rows := [][]string{
			{"principal", name},
			{"pubkey", keys.PublicOf(name)},
			{"signer", signer},
			{"journal_key", store.JournalKey(keys).String()},
		}
		doc := map[string]string{}
		for _, r := range rows {
			doc[r[0]] = r[1]
		}
		return t.show(doc, func() { t.table("", rows) })
	})
}
