// Package signin signs ambit in to remote tool servers with OAuth 2.1, and adds the tokens to the servers' requests.
//
// # The sign-in
//
// A server answers a request without a valid token with status 401. [Session.Refused] then finds the server's
// authorization server (RFC 9728, RFC 8414), obtains a client id from it, and sends a person to its page. The page
// sends the browser back with a code, and ambit exchanges the code for tokens. Only a [Session] with a [Browser] does
// this, because an agent must not be able to open pages on a person's screen. Every other session refuses the call and
// names the command that signs in. The sign-in of a daemon's caller has two steps: [Keeper.Begin] returns the address
// of the page, and [Keeper.Complete] takes the page's answer.
//
// The package uses golang.org/x/oauth2 and the oauthex package of the MCP SDK. It does not use the SDK's
// AuthorizationCodeHandler, which keeps tokens and clients only in memory, registers a new client each time, and
// falls back to guessed addresses if the metadata is invalid.
//
// # What is checked
//
//   - Metadata, registration and token requests are sent through [egress.Client]: https only, to public addresses, and
//     without redirects. Answers are limited in size and time.
//   - The metadata of a server must name the server itself as the resource, or a parent path of it on the same origin.
//   - PKCE with S256 is always used. An authorization server that does not announce S256 is refused.
//   - The page's answer must contain the state of the request, and the issuer where RFC 9207 requires one.
//   - If the authorization server announces DPoP with ES256 (RFC 9449), tokens are bound to a key. A remote server that
//     does not know DPoP gets these tokens without a proof, but renewing the tokens still requires the key.
//   - If a server asks only for scopes that the sign-in has already requested, the person is not asked again.
//
// # The owner of a token
//
// A sign-in is stored under the agent's name, the server and the principal, together with the agent's id, the
// server's host, the resource and the issuer. It is used only if all of them match. An authorization server's client
// id and refresh token are sent only to that authorization server.
//
// The vault of a home keeps the sign-ins of its owner. The store of a daemon keeps those of the daemon's callers, so
// that all replicas use the same ones. A caller's call uses the owner's sign-in only if the settings of the host
// say so. Only the browser session or key that began a sign-in can complete it.
package signin

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Target is a remote server that an agent uses on behalf of a principal.
type Target struct {
	// Agent is the name under which the agent runs. ID is its id in the manifest.
	Agent, ID string
	// Manifest is the name or path by which a person refers to the agent. It appears in hints.
	Manifest string
	// Server is the alias of the remote server, and Endpoint is its URL.
	Server, Endpoint string
	Principal        string
	// Daemon is the address of the daemon at which the principal signs in. It is empty for the owner of the home.
	Daemon string
}

// prefix is the prefix of each sign-in's reference in the vault. References in a manifest cannot contain a colon.
const prefix = "signin:"

// ref returns the vault's reference for the sign-in. Aliases contain no colon.
func (t *Target) ref() string { return prefix + t.Server + ":" + t.Principal }

// Command returns the command that signs in.
func (t *Target) Command() string { return t.command("") }

// command returns the command that signs in, with further flags.
func (t *Target) command(flags string) string {
	if t.Daemon != "" {
		flags += "--url " + diag.ShellWord(t.Daemon) + " "
	}
	return "ambit login " + flags + diag.ShellWord(cmp.Or(t.Manifest, t.Agent, "AGENT")) + " " + diag.ShellWord(t.Server)
}

// Stage is the stage that appears in refusals of this package.
const Stage = "act"

// refuse returns a refusal whose hint is the command that signs in.
func (t *Target) refuse(format string, args ...any) *call.Refusal {
	r := call.Refuse(Stage, call.CredentialMissing, format, args...)
	r.Hint = "to sign in, run: " + t.Command()
	return r
}

// ended returns the refusal for a sign-in whose tokens are no longer valid.
func (t *Target) ended() *call.Refusal {
	r := t.refuse("the sign-in for server %s is no longer valid (%s)", t.Server, t.Command())
	r.SignIn = t.Server
	return r
}

// Grant is a stored sign-in without its tokens.
type Grant struct {
	Agent     string `json:"agent"`
	Server    string `json:"server"`
	Principal string `json:"principal"`
	// Host is the only host that receives the token.
	Host     string   `json:"host"`
	Resource string   `json:"resource"`
	Issuer   string   `json:"issuer"`
	Scopes   []string `json:"scopes"`
	// Expires is the time when the access token expires. It is zero if the authorization server did not report a
	// time.
	Expires   time.Time `json:"expires_at,omitzero"`
	Renewable bool      `json:"renewable"`
}

// grant is a sign-in as it is stored.
type grant struct {
	// ID is different for each new sign-in. It stays the same when the tokens are renewed.
	ID        string   `json:"id,omitempty"`
	Principal string   `json:"principal"`
	Resource  string   `json:"resource"`
	Issuer    string   `json:"issuer"`
	Client    client   `json:"client"`
	TokenURL  string   `json:"token_endpoint"`
	RevokeURL string   `json:"revocation_endpoint,omitempty"`
	Scopes    []string `json:"scopes,omitempty"`
	// Access and Refresh are the tokens. A sign-in whose tokens were rejected has no tokens, but keeps its client.
	Access  string    `json:"access_token,omitempty"`
	Refresh string    `json:"refresh_token,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	// Key is the private key to which the tokens are bound (DPoP). It is nil for tokens that are not bound to a key.
	Key *jose.JSONWebKey `json:"dpop_key,omitempty"`
}

// margin is the remaining lifetime at which a token is renewed.
const margin = 30 * time.Second

// good reports whether the access token is probably still valid.
func (g *grant) good(now time.Time) bool {
	return g.Access != "" && (g.Expires.IsZero() || now.Add(margin).Before(g.Expires))
}

// fits reports whether the tokens may be sent to the target. The vault has already compared the name of the agent.
func (g *grant) fits(t *Target, s credential.Secret) bool {
	host := hostOf(t.Endpoint)
	return host != "" && s.ID() == t.ID && slices.Equal(s.Hosts(), []string{host}) &&
		g.Principal == t.Principal && covers(g.Resource, t.Endpoint)
}

// hostOf returns the only host that receives the token for an endpoint. It returns "" if the endpoint is not valid.
func hostOf(endpoint string) string {
	host, err := egress.Audience(endpoint)
	if err != nil {
		return ""
	}
	return host
}

// covers reports whether a resource contains an endpoint: both have the same origin, and the resource's path is the
// endpoint's path or a parent of it. URLs that two programs could parse differently are refused.
func covers(resource, endpoint string) bool {
	r, err := url.Parse(resource)
	e, errE := url.Parse(endpoint)
	if err != nil || errE != nil || !egress.Same(r, e) || r.User != nil || r.Fragment != "" || r.Opaque != "" ||
		r.RawQuery != "" && r.RawQuery != e.RawQuery {
		return false
	}
	parent, path := strings.TrimSuffix(r.EscapedPath(), "/"), e.EscapedPath()
	if strings.Contains(parent+"/", "/./") || strings.Contains(parent+"/", "/../") {
		return false
	}
	return path == parent || strings.HasPrefix(path, parent+"/")
}

func (g *grant) seal() (string, error) {
	text, err := json.Marshal(g)
	if err != nil {
		return "", errors.New("the sign-in cannot be encoded")
	}
	return string(text), nil
}

func unseal(s credential.Secret) (*grant, error) {
	g := &grant{}
	if json.Unmarshal([]byte(s.Reveal()), g) != nil || g.Resource == "" || g.Issuer == "" {
		return nil, errors.New("the stored sign-in is damaged")
	}
	return g, nil
}
