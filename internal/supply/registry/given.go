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

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// What the server of an id is, only the catalogue and the registries of this machine
// say: whoever is taken at their word gets the user's secrets for that id. A lock
// lies beside the manifest and may be anybody's. It fixes versions and hashes; a
// recipe in it that nobody here has given is a stranger's, and so is what it would
// install with a package, which runs in the same process.

// lists is what a lock has installed with a package, on this machine.
type lists struct {
	Build   *pack.Build `json:",omitempty"`
	Scripts []string    `json:",omitempty"`
}

func (l lists) any() bool { return l.Build != nil || len(l.Scripts) > 0 }

// listsOf are those that count for the server of a recipe, whatever else a lock calls
// its package. All of a bundle is in its hash, and others are not installed.
func listsOf(recipe Recipe, p pack.LockedPackage) lists {
	if recipe.Kind != pack.NPM && recipe.Kind != pack.PyPI {
		return lists{}
	}
	l := lists{Scripts: p.Scripts}
	if here := p.Here(); here != (pack.Build{}) {
		l.Build = &here
	}
	return l
}

// given is the file that is there once a recipe was given for an id, or was locked
// with such lists. Versions of a package are the lock's to choose; a bundle is known
// by nothing but its hash.
func (r *Resolver) given(id string, recipe Recipe, with lists) string {
	if recipe.Kind != pack.MCPB {
		recipe.Version, recipe.Digest = "", ""
	}
	key, err := json.Marshal(struct {
		ID     string
		Recipe Recipe
		lists
	}{id, recipe, with})
	if err != nil {
		return "" // texts always have a form in JSON
	}
	sum := sha256.Sum256(key)
	return filepath.Join(r.Home.Dir(), "registry", "given", hex.EncodeToString(sum[:]))
}

// Trust remembers that what was found was locked as such a package, here: its lists
// are nobody else's. What only a lock says is no more trusted than before.
func (r *Resolver) Trust(f *Found, p pack.LockedPackage) error {
	if f.strange {
		return nil
	}
	return r.note(f, listsOf(f.Recipe, p))
}

func (r *Resolver) note(f *Found, with lists) error {
	file := r.given(f.Requirement.Server, f.Recipe, with)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	return write(file, nil)
}

// noteGiven remembers a recipe for when a lock repeats it and nobody can be asked.
func (r *Resolver) noteGiven(f *Found) {
	if err := r.note(f, lists{}); err != nil {
		f.Warnings = append(f.Warnings, fmt.Sprintf("that it was found cannot be remembered: %v", err))
	}
}

// wasGiven reports whether a locked recipe is what was given here for its id, by now
// or before, and its lists, if it has any, were locked here with it. A registry is
// asked only if the user has said anything about the server.
func (r *Resolver) wasGiven(ctx context.Context, f *Found, with lists) bool {
	id := f.Requirement.Server
	file := r.given(id, f.Recipe, with)
	if _, err := os.Stat(file); err == nil {
		return true
	}
	if with.any() {
		return false
	}
	if e := r.Catalog.Entries[id]; e != nil && r.given(id, RecipeOf(e), with) == file {
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
		if err == nil && list[i].Version == f.Version && r.given(id, recipe, with) == file {
			r.noteGiven(f)
			return true
		}
	}
	return false
}

// distrust takes a locked recipe, or what it is installed with, for a stranger's.
func (r *Resolver) distrust(f *Found, with lists) {
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
	if !matters {
		return
	}
	only, mend := "that this server is ", "find it anew with ambit lock --update"
	if with.any() {
		only, mend = "which dependencies are installed for this server, ", "lock it on this machine with ambit lock"
	}
	f.Warnings = append(f.Warnings, "only ambit.lock says "+only+diag.Quote(f.Recipe.Name)+
		": it gets no secrets of this machine and none of its settings in config.toml; "+mend)
}
