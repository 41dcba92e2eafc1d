package identity

// Attributes contains what a verified credential says about its holder, apart from the holder's name. Policy rules can
// use the attributes. The claims of a client or an agent about itself are never attributes.
type Attributes struct {
	Kind Kind `json:"kind,omitempty"`
	// Issuer is the OpenID provider that issued the token. It is empty for an API key.
	Issuer string `json:"issuer,omitempty"`
	// Groups lists the holder's groups, by the names that policy rules use.
	Groups []string `json:"groups,omitempty"`
	// ACR and AMR describe how the holder signed in: the authentication context class, and the methods (RFC 8176).
	ACR string   `json:"acr,omitempty"`
	AMR []string `json:"amr,omitempty"`
}

// Attributes returns the attributes of the principal.
func (p *Principal) Attributes() *Attributes {
	return &Attributes{Kind: p.Kind, Issuer: p.Issuer, Groups: p.Groups, ACR: p.ACR, AMR: p.AMR}
}

// WithoutRights returns a copy of the principal that can use no agent. Tickets and sessions contain such a copy.
func (p *Principal) WithoutRights() Principal {
	q := *p
	q.Admin, q.Everywhere, q.Agents = false, false, nil
	return q
}

// AuthenticatedBy returns how the caller was authenticated, or "" if a is nil.
func (a *Attributes) AuthenticatedBy() Kind {
	if a == nil {
		return ""
	}
	return a.Kind
}
