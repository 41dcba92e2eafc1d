package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/internal/pack"
	"github.com/ambit-run/ambit/manifest/diag"
)

// What the server of an id is, only the catalogue and the registries of this machine
// say: whoever is taken at their word gets the user's secrets for that id. A lock
// lies beside the manifest and may be anybody's. It fixes versions and hashes; a
// recipe in it that nobody here has given is a stranger's.

// given is the file that is there once a recipe was given for an id. Versions of a
// package are the lock's to choose; a bundle is known by nothing but its hash.
func (r *Resolver) given(id string, recipe Recipe) string {
	if recipe.Kind != pack.MCPB {
		recipe.Version, recipe.Digest = "", ""
	}
	key, err := json.Marshal(struct {
		ID     string
		Recipe Recipe
	}{id, recipe})
	if err != nil {
		return "" // texts always have a form in JSON
	}
	sum := sha256.Sum256(key)
	return filepath.Join(r.Home.Dir(), "registry", "given", hex.EncodeToString(sum[:]))
}

// Trust remembers that a recipe was given for an id, for when a lock repeats it and
// nobody can be asked.
func (r *Resolver) Trust(id string, recipe Recipe) error {
	file := r.given(id, recipe)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	return write(file, nil)
}

func (r *Resolver) noteGiven(f *Found) {
	if err := r.Trust(f.Requirement.Server, f.Recipe); err != nil {
		f.Warnings = append(f.Warnings, fmt.Sprintf("that it was found cannot be remembered: %v", err))
	}
}

// wasGiven reports whether a locked recipe is what was given here for its id, by now
// or before. A registry is asked only if the user has said anything about the server.
func (r *Resolver) wasGiven(ctx context.Context, f *Found) bool {
	id := f.Requirement.Server
	file := r.given(id, f.Recipe)
	if _, err := os.Stat(file); err == nil {
		return true
	}
	if e := r.Catalog.Entries[id]; e != nil && r.given(id, RecipeOf(e)) == file {
		return true
	}
	if _, said := r.Config.Servers[id]; !said || r.Client == nil {
		return false
	}
	host, _, _ := strings.Cut(id, "/")
	list, _, err := r.Client.Versions(ctx, host, id)
	if err != nil {
		return false
	}
	for i := range list {
		recipe, err := list[i].Recipe(r.Config.Hosts[host].Packages...)
		if err == nil && list[i].Version == f.Version && r.given(id, recipe) == file {
			r.noteGiven(f)
			return true
		}
	}
	return false
}

// distrust takes a locked recipe for a stranger's.
func (r *Resolver) distrust(f *Found) {
	if f.Recipe.Kind != pack.Remote { // whose variables are headers
		if err := checkVariables(f.Recipe.Env); err != nil {
			f.Recipe, f.Problem = Recipe{}, fmt.Errorf("as it is locked, %w; find it anew with ambit lock --update", err)
			return
		}
	}
	f.strange, f.Recipe.Foreign = true, true
	_, matters := r.Config.Servers[f.Requirement.Server]
	for _, value := range f.Recipe.Env {
		matters = matters || envRef.MatchString(value)
	}
	if matters {
		f.Warnings = append(f.Warnings, "only ambit.lock says that this server is "+diag.Quote(f.Recipe.Name)+
			": it gets no secrets of this machine and none of its settings in config.toml; find it anew with ambit lock --update")
	}
}
