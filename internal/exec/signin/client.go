package signin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

// Upstream contains the settings for one remote host, from [upstream."HOST"] in config.toml.
type Upstream struct {
	// ClientID is the id of a client that the owner registered with the authorization server. Its secret, if any, is the
	// credential client:HOST of the agent "ambit" in the vault.
	ClientID string `toml:"client_id"`
	// MetadataURL is the URL of a client id metadata document that describes ambit.
	MetadataURL string `toml:"client_metadata_url"`
	// Issuer is the authorization server to use. The client id is sent to no other authorization server.
	Issuer string `toml:"issuer"`
	// Port is the port of the loopback address to which the browser returns. Zero means any free port.
	Port int `toml:"redirect_port"`
	// Scopes are requested instead of the scopes that the server names.
	Scopes []string `toml:"scopes"`
	// Grant is how to obtain tokens without a person: client_credentials, jwt_bearer or id_jag. If it is empty, a person
	// signs in.
	Grant string `toml:"grant"`
	// AssertionFile contains a token. The grant jwt_bearer presents this token. The grant id_jag needs an ID token in
	// the file, and exchanges it for an assertion.
	AssertionFile string `toml:"assertion_file"`
	// IDPTokenURL is the token endpoint at which id_jag exchanges the ID token, as the client IDPClientID.
	IDPTokenURL string `toml:"idp_token_endpoint"`
	IDPClientID string `toml:"idp_client_id"`
	// Identity determines whose sign-in the calls of a daemon use: caller, which is the default, or owner.
	Identity string `toml:"identity"`
	// Legacy accepts servers without metadata, which follow revision 2025-03-26.
	Legacy bool `toml:"legacy_discovery"`

	secret string // the secret or the private key of the client
}

// ReadUpstreams returns the settings for remote hosts, by host.
func ReadUpstreams(file string) (map[string]Upstream, error) {
	written := map[string]Upstream{}
	if _, err := home.ReadTable(file, "upstream", &written); err != nil {
		return nil, err
	}
	all := map[string]Upstream{}
	for name, u := range written {
		host, err := egress.AudienceHost(name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: [upstream.%s]: %w", file, diag.Quote(name), err)
		case u.ClientID != "" && u.Issuer == "":
			return nil, fmt.Errorf(`%s: [upstream.%s]: "client_id" needs "issuer", because a client id belongs to one `+
				"authorization server", file, diag.Quote(name))
		case u.badGrant() != "":
			return nil, fmt.Errorf("%s: [upstream.%s]: %s", file, diag.Quote(name), u.badGrant())
		case u.badIdentity() != "":
			return nil, fmt.Errorf("%s: [upstream.%s]: %s", file, diag.Quote(name), u.badIdentity())
		case u.Port < 0 || u.Port > 65535:
			return nil, fmt.Errorf("%s: [upstream.%s]: redirect_port %d is not a port", file, diag.Quote(name), u.Port)
		case u.MetadataURL != "" && !strings.HasPrefix(u.MetadataURL, "https://"):
			return nil, fmt.Errorf("%s: [upstream.%s]: client_metadata_url must begin with https://", file, diag.Quote(name))
		}
		all[host] = u
	}
	return all, nil
}

// badGrant describes what is wrong with the settings of the grant. It returns "" if they are complete.
func (u *Upstream) badGrant() string {
	switch {
	case u.Grant == "":
		return ""
	case u.Grant != clientGrant && u.Grant != workloadGrant && u.Grant != enterpriseGrant:
		return "grant must be " + diag.Words([]string{clientGrant, workloadGrant, enterpriseGrant}, "or")
	case u.Issuer == "":
		return "grant needs issuer, because the credentials are sent only to that authorization server"
	case u.Grant == clientGrant && u.ClientID == "":
		return clientGrant + " needs client_id"
	case u.Grant != clientGrant && u.AssertionFile == "":
		return u.Grant + " needs assertion_file"
	case u.Grant == enterpriseGrant && (u.IDPTokenURL == "" || u.IDPClientID == ""):
		return enterpriseGrant + " needs idp_token_endpoint and idp_client_id"
	}
	return ""
}

// badIdentity describes what is wrong with the setting "identity". It returns "" if the setting is valid.
func (u *Upstream) badIdentity() string {
	switch {
	case u.Identity != "" && u.Identity != callerIdentity && u.Identity != ownerIdentity:
		return "identity must be " + diag.Words([]string{callerIdentity, ownerIdentity}, "or")
	case u.Identity == callerIdentity && u.Grant != "":
		return "identity cannot be caller if grant is set, because grant obtains tokens of the owner"
	}
	return ""
}

// upstream returns the settings for the host of an endpoint, with the secret of the client.
func (k *Keeper) upstream(endpoint string) (Upstream, error) {
	host, err := egress.Audience(endpoint)
	if err != nil {
		return Upstream{}, err
	}
	all, err := k.upstreams()
	if err != nil {
		return Upstream{}, err
	}
	u := all[host]
	if u.ClientID != "" {
		secret, _, err := k.vault.Get(credential.Own, "client:"+host)
		if err != nil {
			return Upstream{}, err
		}
		u.secret = secret.Reveal()
	}
	return u, nil
}

// client is an OAuth client at one authorization server.
type client struct {
	Issuer string `json:"issuer"`
	ID     string `json:"client_id"`
	Secret string `json:"client_secret,omitempty"`
	// Method is how the client authenticates to the token endpoint.
	Method string `json:"token_endpoint_auth_method"`
	// Redirect is the address to which the browser returns.
	Redirect string `json:"redirect_uri"`
	// Registered is set if ambit registered the client itself.
	Registered bool `json:"registered,omitempty"`
}

const (
	methodNone  = "none"
	methodPost  = "client_secret_post"
	methodBasic = "client_secret_basic"
)

// register returns the client for an authorization server. It uses the first available of these: the client in the
// settings, a client that ambit registered earlier for the same redirect address, a client id metadata document, and
// dynamic registration.
func (k *Keeper) register(
	ctx context.Context, p *provider, u Upstream, before client, redirect string,
) (client, error) {
	c := client{Issuer: p.Issuer, Redirect: redirect, Method: methodNone}
	switch {
	case u.ClientID != "":
		c.ID, c.Secret, c.Method = u.ClientID, u.secret, secretMethod(u.secret, p.TokenEndpointAuthMethodsSupported)
		return c, nil
	case before.Registered && before.Issuer == p.Issuer && before.Redirect == redirect:
		return before, nil
	case u.MetadataURL != "" && p.ClientIDMetadataDocumentSupported:
		c.ID = u.MetadataURL
		return c, nil
	case p.RegistrationEndpoint == "":
		return client{}, errNoClient
	}
	answer, err := oauthex.RegisterClient(ctx, p.RegistrationEndpoint, &oauthex.ClientRegistrationMetadata{
		RedirectURIs: []string{redirect}, ClientName: "ambit", ApplicationType: applicationType(redirect),
		GrantTypes:    []string{"authorization_code", "refresh_token"},
		ResponseTypes: []string{"code"}, TokenEndpointAuthMethod: wantedMethod(p.TokenEndpointAuthMethodsSupported),
	}, k.client)
	if err != nil {
		return client{}, fmt.Errorf("the authorization server %s did not register ambit: %w", diag.Quote(p.Issuer), codeOnly(err))
	}
	c.ID, c.Secret, c.Registered = answer.ClientID, answer.ClientSecret, true
	c.Method = answer.TokenEndpointAuthMethod
	if c.Secret == "" {
		c.Method = methodNone
	} else if c.Method != methodPost && c.Method != methodBasic {
		c.Method = secretMethod(c.Secret, p.TokenEndpointAuthMethodsSupported)
	}
	return c, nil
}

// applicationType returns the OpenID Connect application type of a client with this redirect address: web or native.
func applicationType(redirect string) string {
	if strings.HasPrefix(redirect, "https://") {
		return "web"
	}
	return "native"
}

// codeOnly removes the authorization server's text from an error. An OAuth error keeps only its code.
func codeOnly(err error) error {
	if r, ok := asOAuthError(err); ok {
		return r
	}
	return withoutURL(err)
}

// wantedMethod returns the authentication method to register for. It prefers the method "none", because ambit runs on
// people's machines, where a client secret cannot be kept secret.
func wantedMethod(supported []string) string {
	if len(supported) == 0 || slices.Contains(supported, methodNone) {
		return methodNone
	}
	return secretMethod("secret", supported)
}

// secretMethod returns the method with which a client with this secret authenticates. If the server lists no
// supported methods, it returns the default of the specification.
func secretMethod(secret string, supported []string) string {
	switch {
	case secret == "":
		return methodNone
	case slices.Contains(supported, methodPost) && !slices.Contains(supported, methodBasic):
		return methodPost
	}
	return methodBasic
}

// config returns the settings of the client for x/oauth2.
func (c *client) config(tokenURL string) *oauth2.Config {
	style := oauth2.AuthStyleInParams
	if c.Method == methodBasic {
		style = oauth2.AuthStyleInHeader
	}
	return &oauth2.Config{
		ClientID: c.ID, ClientSecret: c.Secret,
		Endpoint: oauth2.Endpoint{TokenURL: tokenURL, AuthStyle: style},
	}
}

var errNoClient = errors.New("the authorization server does not support dynamic client registration")
