package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Providers checks bearer tokens from several OpenID providers. Only the provider that a token names as its issuer can
// accept the token.
type Providers struct {
	byIssuer map[string]*OIDC
	issuers  []string
}

// NewProviders returns the providers of a configuration. It sends no requests.
func NewProviders(c *OIDCConfig) *Providers {
	p := &Providers{byIssuer: map[string]*OIDC{}}
	if c.Issuer != "" {
		p.byIssuer[c.Issuer] = NewOIDC(*c)
		p.issuers = append(p.issuers, c.Issuer)
	}
	for _, name := range slices.Sorted(slices.Values(c.others)) {
		other := c.Providers[name]
		p.byIssuer[other.Issuer] = NewOIDC(*other)
		p.issuers = append(p.issuers, other.Issuer)
	}
	return p
}

// Issuers returns the issuers whose tokens are accepted. The unnamed provider comes first.
func (p *Providers) Issuers() []string { return p.issuers }

// Reach fetches the configuration of each provider, and returns the errors of the providers that do not answer.
func (p *Providers) Reach(ctx context.Context) error {
	var all []error
	for _, issuer := range p.issuers {
		if _, err := p.byIssuer[issuer].tokenVerifier(ctx); err != nil {
			all = append(all, fmt.Errorf("%s: %w", issuer, err))
		}
	}
	return errors.Join(all...)
}

// Check returns the principal of a token, or fails with ErrToken or ErrProvider.
func (p *Providers) Check(ctx context.Context, token string) (*Principal, error) {
	o := p.byIssuer[issuerOf(token)]
	if o == nil {
		return nil, fmt.Errorf("%w: its issuer is not configured", ErrToken)
	}
	return o.Check(ctx, token)
}

// issuerOf returns the issuer that a token names, without checking the token. [OIDC.Check] then checks the signature
// and compares the issuer again.
func issuerOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// qualify returns the name of a principal or group of the provider, as used outside the provider's own settings.
func (c *OIDCConfig) qualify(name string) string {
	if c.name == "" {
		return name
	}
	return c.name + ":" + name
}

// isOthers reports whether a name has the prefix of another provider.
func (c *OIDCConfig) isOthers(name string) bool {
	return slices.ContainsFunc(c.others, func(other string) bool { return strings.HasPrefix(name, other+":") })
}

// rename returns the names that the groups of a token have in policy rules. It leaves out groups with the prefix of
// another provider.
func (c *OIDCConfig) rename(groups []string) []string {
	var names []string
	for _, g := range groups {
		if to := c.GroupNames[g]; to != "" {
			names = append(names, to)
		} else if !c.isOthers(g) {
			names = append(names, c.qualify(g))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

const (
	// maxGroups is the maximum number of groups in a token. A token with more groups is rejected, because dropping a
	// group could disable a rule that forbids something to this group.
	maxGroups = 500
	// maxMethods is the maximum number of authentication methods in a token.
	maxMethods = 32
)

// pathOf returns the path to a claim. A name that begins with / is a JSON pointer (RFC 6901), unless a claim has this
// name.
func pathOf(claims map[string]jsontext.Value, name string) []string {
	if claims[name] != nil || !strings.HasPrefix(name, "/") {
		return []string{name}
	}
	return slices.Collect(jsontext.Pointer(name).Tokens())
}

// claim returns the claim at a path. It returns nil if the claim is absent or null. It fails if a value on the way to
// the claim is not an object.
func claim(claims map[string]jsontext.Value, path []string) (value jsontext.Value, err error) {
	members := claims
	for i, token := range path {
		if i > 0 && value != nil && json.Unmarshal(value, &members) != nil {
			return nil, errors.New("cannot be read, because part of its path is not an object")
		}
		if value, members = members[token], nil; string(value) == "null" {
			value = nil
		}
	}
	return value, nil
}

// groupsOf returns the groups of a token. The claim is a string or a list of strings. groupsOf fails if the token may
// have more groups than the claim contains.
func (c *OIDCConfig) groupsOf(claims map[string]jsontext.Value) ([]string, error) {
	path := pathOf(claims, c.GroupsClaim)
	var elsewhere map[string]jsontext.Value
	if names := claims["_claim_names"]; names != nil && json.Unmarshal(names, &elsewhere) != nil {
		return nil, errors.New("the claim _claim_names is not an object")
	}
	// If the groups would make the token too long, Microsoft Entra ID can send hasgroups instead of the groups.
	if elsewhere[path[0]] != nil || claims[path[0]] == nil && string(claims["hasgroups"]) == "true" {
		return nil, fmt.Errorf("the token has too many groups for its provider, so the claim %s is not in the token", c.GroupsClaim)
	}
	value, err := claim(claims, path)
	if err != nil {
		return nil, fmt.Errorf("the claim %s %w", c.GroupsClaim, err)
	}
	groups, err := texts(value, maxGroups, ValidGroup)
	if err != nil {
		return nil, fmt.Errorf("the claim %s %w", c.GroupsClaim, err)
	}
	return groups, nil
}

// strength returns the claims acr and amr of a token.
func strength(claims map[string]jsontext.Value) (acr string, amr []string, err error) {
	one, err := texts(claims["acr"], 1, ValidGroup)
	if err != nil {
		return "", nil, fmt.Errorf("the claim acr %w", err)
	}
	if len(one) == 1 {
		acr = one[0]
	}
	if amr, err = texts(claims["amr"], maxMethods, ValidGroup); err != nil {
		return "", nil, fmt.Errorf("the claim amr %w", err)
	}
	return acr, amr, nil
}

// texts decodes a claim that is a string or a list of strings. Every string must be valid. An absent claim, null and
// an empty string result in an empty list.
func texts(claim jsontext.Value, limit int, valid func(string) bool) ([]string, error) {
	var list []string
	var one string
	switch {
	case claim == nil, string(claim) == "null", string(claim) == `""`:
		return nil, nil
	case claim.Kind() == '"' && json.Unmarshal(claim, &one) == nil:
		list = []string{one}
	case json.Unmarshal(claim, &list) != nil:
		return nil, errors.New("is neither a string nor a list of strings")
	}
	if len(list) > limit {
		return nil, fmt.Errorf("has %d entries; the limit is %d", len(list), limit)
	}
	for _, text := range list {
		if !valid(text) {
			return nil, errors.New("contains a name that is empty, too long, or has invisible characters")
		}
	}
	return list, nil
}
