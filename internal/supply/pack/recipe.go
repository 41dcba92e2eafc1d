package pack

// Builtin is the kind of a server that is part of ambit. Such a server has no digest.
const Builtin Kind = "builtin"

// Recipe describes how to start a server that was resolved by its id. It does not contain the user's settings.
type Recipe struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Digest is the digest of the published package. It is empty if the digest is not known before the package is
	// fetched.
	Digest string            `json:"digest,omitempty"`
	Args   []string          `json:"args,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	// Needs lists the variables that the user must set.
	Needs []string `json:"needs,omitempty"`
	// Foreign means that the recipe comes from an untrusted source. In such a recipe, references to secrets are not
	// resolved.
	Foreign bool `json:"foreign,omitempty"`
}

// Resolved is the result of resolving a required server.
type Resolved struct {
	// Version is the server's version, which can differ from the version of its package.
	Version string `json:"version"`
	Recipe  Recipe `json:"recipe"`
}

// Equal reports whether r and other have the same JSON encoding.
func (r *Resolved) Equal(other *Resolved) bool { return jsonText(r, true) == jsonText(other, true) }
