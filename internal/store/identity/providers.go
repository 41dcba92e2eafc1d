package identity

import (
	"bytes"
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

// Check returns the principal of a token, or fails with ErrToken or ErrProvider.
func (p *Providers) Check(ctx context.Context, token string) (*Principal, error) {
	o := p.byIssuer[issuerOf(token)]
	if o == nil {
		return nil, fmt.Errorf("%w: its issuer is not configured", ErrToken)
	}
	return o.Check(ctx, token)
}

// issuerOf returns the issuer that a token names, without checking the token. [OIDC.Check] then checks the signature and
// compares the issuer again.
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

// qualify returns the name that a principal or group of the provider has outside the provider's tables.
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

// claim returns a claim by its name, or by a JSON pointer (RFC 6901) if the name begins with a slash. It returns nil if
// the claim is absent or null.
func claim(claims map[string]jsontext.Value, name string) jsontext.Value {
	value := claims[name]
	if value == nil && strings.HasPrefix(name, "/") {
		first := true
		for token := range jsontext.Pointer(name).Tokens() {
			if first {
				value, first = claims[token], false
				continue
			}
			var members map[string]jsontext.Value
			if json.Unmarshal(value, &members) != nil {
				return nil
			}
			value = members[token]
		}
	}
	if bytes.Equal(value, []byte("null")) {
		return nil
	}
	return value
}

// groupsOf returns the groups of a token. The claim is a string or a list of strings. groupsOf fails if the token may
// have more groups than the claim contains.
func (c *OIDCConfig) groupsOf(claims map[string]jsontext.Value) ([]string, error) {
	var elsewhere map[string]jsontext.Value
	if json.Unmarshal(claims["_claim_names"], &elsewhere) == nil && elsewhere[c.GroupsClaim] != nil {
		return nil, fmt.Errorf("the token has too many groups for its provider, so the claim %s is not in the token", c.GroupsClaim)
	}
	groups, err := texts(claim(claims, c.GroupsClaim), maxGroups, ValidGroup)
	if err != nil {
		return nil, fmt.Errorf("the claim %s %w", c.GroupsClaim, err)
	}
	return groups, nil
}

// strength returns the claims acr and amr of a token.
func strength(claims map[string]jsontext.Value) (acr string, amr []string, err error) {
	one, err := texts(claim(claims, "acr"), 1, ValidGroup)
	if err != nil {
		return "", nil, fmt.Errorf("the claim acr %w", err)
	}
	if len(one) == 1 {
		acr = one[0]
	}
	if amr, err = texts(claim(claims, "amr"), maxMethods, ValidGroup); err != nil {
		return "", nil, fmt.Errorf("the claim amr %w", err)
	}
	return acr, amr, nil
}

// texts decodes a claim that is a string or a list of strings. Every string must be valid. An absent claim and an empty
// string result in an empty list.
func texts(claim jsontext.Value, limit int, valid func(string) bool) ([]string, error) {
	var list []string
	var one string
	switch {
	case claim == nil, string(claim) == `""`:
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
