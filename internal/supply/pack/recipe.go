package pack

import (
	"maps"
	"slices"

	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// Builtin is a server that is part of ambit. It has no digest of its own.
const Builtin Kind = "builtin"

// Recipe is the way to start a server that was resolved by its id, without the user's
// settings.
type Recipe struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Digest is the published package's; empty until it is fetched.
	Digest string            `json:"digest,omitempty"`
	Args   []string          `json:"args,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	// Needs are variables that the user must set.
	Needs []string `json:"needs,omitempty"`
	// Foreign marks a recipe from an untrusted source: ambit resolves no reference to
	// a secret in it.
	Foreign bool `json:"foreign,omitempty"`
}

// Resolved is the result of resolving a required server.
type Resolved struct {
	// Version is the server's version, which may differ from its package's.
	Version string `json:"version"`
	Recipe  Recipe `json:"recipe"`
}

func (r *lockReader) resolved(v doc.Value) *Resolved {
	if !v.Ok() {
		return nil
	}
	o := r.Object(v)
	var out Resolved
	out.Version, _ = o.Text("version", read.Required)
	p := r.Object(o.Get("recipe", read.Required))
	kinds := make([]string, len(Kinds))
	for i, k := range Kinds {
		kinds[i] = string(k)
	}
	kind, _ := p.Enum("kind", read.Required, kinds)
	out.Recipe.Kind = Kind(kind)
	out.Recipe.Name, _ = p.Text("name", read.Required)
	out.Recipe.Version, _ = p.Text("version", read.Optional)
	if d := p.Get("digest", read.Optional); d.Ok() && r.Is(d, doc.String) && r.digest(d.Text(), d.Place()) {
		out.Recipe.Digest = d.Text()
	}
	out.Recipe.Args = p.Texts("args", read.Optional)
	if env := p.Get("env", read.Optional); env.Ok() {
		out.Recipe.Env = map[string]string{}
		for m := range r.members(env) {
			if r.Is(m, doc.String) {
				out.Recipe.Env[m.Key()] = m.Text()
			}
		}
	}
	out.Recipe.Needs = p.Texts("needs", read.Optional)
	if f := p.Get("foreign", read.Optional); f.Ok() && r.Is(f, doc.Bool) {
		out.Recipe.Foreign = f.Text() == "true"
	}
	p.Done()
	o.Done()
	return &out
}

func (r *Resolved) Equal(other *Resolved) bool {
	if r == nil || other == nil {
		return r == other
	}
	a, b := r.Recipe, other.Recipe
	return r.Version == other.Version && a.Kind == b.Kind && a.Name == b.Name && a.Version == b.Version && a.Digest == b.Digest &&
		slices.Equal(a.Args, b.Args) && maps.Equal(a.Env, b.Env) && slices.Equal(a.Needs, b.Needs) && a.Foreign == b.Foreign
}
