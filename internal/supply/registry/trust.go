package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// A server gets the secrets that the user set for the server's id. Therefore only the catalogue and the registries of
// this machine are trusted to resolve an id to a server. A lock file comes with the manifest, so anyone could have
// written it. It is trusted to choose versions and hashes, but a recipe that appears only in a lock file is not
// trusted. Dependencies that a lock file adds to a package are not trusted either, because they run in the same
// process as the package.

// lockedExtras contains the dependencies and install scripts that a lock file adds to a package on this platform.
type lockedExtras struct {
	Build   *pack.Build `json:",omitempty"`
	Scripts []string    `json:",omitempty"`
}

func (l lockedExtras) any() bool { return l.Build != nil || len(l.Scripts) > 0 }

// extrasOf returns the dependencies and install scripts that the locked package p adds to a recipe. It uses the kind in
// the recipe, because p is untrusted. Only npm and Python packages have extras. For other kinds, the result is empty:
// the hash of a bundle covers its dependencies, and ambit installs no packages of the remaining kinds.
func extrasOf(recipe Recipe, p pack.LockedPackage) lockedExtras {
	if recipe.Kind != pack.NPM && recipe.Kind != pack.PyPI {
		return lockedExtras{}
	}
	l := lockedExtras{Scripts: p.Scripts}
	if here := p.Here(); here != (pack.Build{}) {
		l.Build = &here
	}
	return l
}

// trustFile returns the path of a marker file. If there are no extras, the file records that id was resolved to the
// recipe on this machine. If there are extras, the file records that the recipe was locked with these extras on this
// machine. For a bundle, the path depends on the version and the digest, because only the digest identifies a bundle.
// For other kinds, a lock file is allowed to choose the version and the digest, so the path does not depend on them.
func (r *Resolver) trustFile(id string, recipe Recipe, with lockedExtras) string {
	if recipe.Kind != pack.MCPB {
		recipe.Version, recipe.Digest = "", ""
	}
	key, err := json.Marshal(struct {
		ID     string
		Recipe Recipe
		lockedExtras
	}{id, recipe, with})
	if err != nil {
		return "" // encoding these types never fails
	}
	sum := sha256.Sum256(key)
	return filepath.Join(r.Home.Dir(), "registry", "given", hex.EncodeToString(sum[:]))
}

// Trust records that a server was locked with the package p on this machine. From then on, the dependencies and
// install scripts of p are trusted. If f is untrusted, Trust does nothing.
func (r *Resolver) Trust(f *Found, p pack.LockedPackage) error {
	if f.untrusted {
		return nil
	}
	return r.note(f, extrasOf(f.Recipe, p))
}

func (r *Resolver) note(f *Found, with lockedExtras) error {
	file := r.trustFile(f.Requirement.Server, f.Recipe, with)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	return write(file, nil)
}

// noteResolved records that a recipe was resolved on this machine. A lock file with the same recipe is then trusted
// even if the registry is unreachable.
func (r *Resolver) noteResolved(f *Found) {
	if err := r.note(f, lockedExtras{}); err != nil {
		f.Warnings = append(f.Warnings, fmt.Sprintf("ambit could not record the resolved server: %v", err))
	}
}

// trusted reports whether a locked recipe is trusted. This machine must have resolved the server's id to this recipe,
// now or earlier. If the lock file adds dependencies or install scripts, they must have been locked on this machine.
// trusted asks a registry only if the user has settings for the tool server.
func (r *Resolver) trusted(ctx context.Context, f *Found, with lockedExtras) bool {
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
	host := r.Config.hostOf(id)
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

// distrust marks a locked recipe or its dependencies as untrusted.
func (r *Resolver) distrust(f *Found, with lockedExtras) {
	if f.Recipe.Kind != pack.Remote { // for a remote server, Env contains headers
		if err := checkVariables(f.Recipe.Env); err != nil {
			f.Recipe = Recipe{}
			f.Problem = fmt.Errorf("the entry in the lock file is rejected: %w; to update it, run: ambit lock --update", err)
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
	claim, fix := "the package %s of this server comes", "to resolve the server again, run: ambit lock --update"
	if with.any() {
		claim, fix = "the dependencies of the package %s come", "to lock the package on this machine, run: ambit lock"
	}
	f.Warnings = append(f.Warnings, fmt.Sprintf(claim, diag.Quote(f.Recipe.Name))+
		" only from ambit.lock, which is not trusted, so the server gets no secrets of this machine and no settings from "+
		"config.toml; "+fix)
}
