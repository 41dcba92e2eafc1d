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

// Only this machine's catalogue and registries are trusted to map an id to a server:
// that server gets the user's secrets for the id. A lock is beside the manifest, so
// anyone may have written it. It fixes versions and hashes. A recipe that appears only
// in a lock is untrusted, and so are the dependencies that a lock adds to a package:
// they run in the same process.

// lists are the dependencies and install scripts that a lock adds to a package on this
// machine.
type lists struct {
	Build   *pack.Build `json:",omitempty"`
	Scripts []string    `json:",omitempty"`
}

func (l lists) any() bool { return l.Build != nil || len(l.Scripts) > 0 }

// listsOf returns the lists for the server of a recipe, whatever kind the lock gives
// the package. Only npm and Python packages have them: a bundle's hash covers all of
// it, and other kinds are not installed.
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

// trustFile is the path of a marker file. It exists once a recipe was resolved for an id
// on this machine, or was locked with these lists. The lock may choose the version of a
// package; a bundle is identified by its hash alone.
func (r *Resolver) trustFile(id string, recipe Recipe, with lists) string {
	if recipe.Kind != pack.MCPB {
		recipe.Version, recipe.Digest = "", ""
	}
	key, err := json.Marshal(struct {
		ID     string
		Recipe Recipe
		lists
	}{id, recipe, with})
	if err != nil {
		return "" // cannot happen: strings always encode
	}
	sum := sha256.Sum256(key)
	return filepath.Join(r.Home.Dir(), "registry", "given", hex.EncodeToString(sum[:]))
}

// Trust remembers that a server was locked as this package on this machine, so that its
// lists are trusted. It does nothing for a recipe that appears only in a lock.
func (r *Resolver) Trust(f *Found, p pack.LockedPackage) error {
	if f.untrusted {
		return nil
	}
	return r.note(f, listsOf(f.Recipe, p))
}

func (r *Resolver) note(f *Found, with lists) error {
	file := r.trustFile(f.Requirement.Server, f.Recipe, with)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	return write(file, nil)
}

// noteResolved remembers a recipe for a later lock, when the registry may be unreachable.
func (r *Resolver) noteResolved(f *Found) {
	if err := r.note(f, lists{}); err != nil {
		f.Warnings = append(f.Warnings, fmt.Sprintf("the resolved server cannot be remembered: %v", err))
	}
}

// trusted reports whether a locked recipe was resolved for its id on this machine, now
// or earlier, and its lists, if any, were locked here. It queries a registry only if the
// user has settings for the server.
func (r *Resolver) trusted(ctx context.Context, f *Found, with lists) bool {
	id := f.Requirement.Server
	file := r.trustFile(id, f.Recipe, with)
	if _, err := os.Stat(file); err == nil {
		return true
	}
	if with.any() {
		return false
	}
	if e := r.Catalog.Entries[id]; e != nil && r.trustFile(id, RecipeOf(e), with) == file {
		return true
	}
	if _, configured := r.Config.Servers[id]; !configured || r.Client == nil {
		return false
	}
	host, _, _ := strings.Cut(id, "/")
	list, _, err := r.Client.Versions(ctx, host, id)
	if err != nil {
		return false
	}
	for i := range list {
		recipe, err := list[i].Recipe(r.Config.Hosts[host].Packages...)
		if err == nil && list[i].Version == f.Version && r.trustFile(id, recipe, with) == file {
			r.noteResolved(f)
			return true
		}
	}
	return false
}

// distrust marks a locked recipe, or its dependencies, as untrusted.
func (r *Resolver) distrust(f *Found, with lists) {
	if f.Recipe.Kind != pack.Remote { // a remote server has headers instead of variables
		if err := checkVariables(f.Recipe.Env); err != nil {
			f.Recipe, f.Problem = Recipe{}, fmt.Errorf("as locked, %w; resolve it again with ambit lock --update", err)
			return
		}
	}
	f.untrusted, f.Recipe.Foreign = true, true
	_, matters := r.Config.Servers[f.Requirement.Server]
	for _, value := range f.Recipe.Env {
		matters = matters || envRef.MatchString(value)
	}
	if !matters {
		return
	}
	claim, fix := "the package %s of this server", "resolve it again with ambit lock --update"
	if with.any() {
		claim, fix = "the dependencies that are installed with %s", "lock it on this machine with ambit lock"
	}
	f.Warnings = append(f.Warnings, "only ambit.lock gives "+fmt.Sprintf(claim, diag.Quote(f.Recipe.Name))+
		": the server gets no secrets of this machine and no settings from config.toml; "+fix)
}
