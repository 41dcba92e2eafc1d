package identity

// Attributes is what a verified credential says about its holder, in addition to the holder's name. Policy rules read it.
// It never contains anything that a client or an agent said about itself.
type Attributes struct {
	Kind Kind `json:"kind,omitempty"`
	// Issuer is the OpenID provider that issued the token. It is empty for an API key.
	Issuer string `json:"issuer,omitempty"`
	// Groups lists the groups of the holder, as policy rules name them.
	Groups []string `json:"groups,omitempty"`
	// ACR and AMR say how the holder signed in: the authentication context class, and the methods (RFC 8176).
	ACR string   `json:"acr,omitempty"`
	AMR []string `json:"amr,omitempty"`
}

// Attributes returns what the credential of the principal says about its holder.
func (p *Principal) Attributes() *Attributes {
	return &Attributes{Kind: p.Kind, Issuer: p.Issuer, Groups: p.Groups, ACR: p.ACR, AMR: p.AMR}
}

// WithoutRights returns a copy of the principal that can use no agent. Tickets and sessions contain such a copy.
func (p *Principal) WithoutRights() Principal {
	q := *p
	q.Admin, q.Everywhere, q.Agents = false, false, nil
	return q
}

// AuthenticatedBy says how the caller was authenticated. It is empty if a has no attributes.
func (a *Attributes) AuthenticatedBy() Kind {
	if a == nil {
		return ""
	}
	return a.Kind
}
