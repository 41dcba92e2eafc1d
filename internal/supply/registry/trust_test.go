package registry

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// locked returns a lock file in which one server of the agent x is resolved to a recipe.
func locked(id, version string, recipe Recipe) *pack.Lock {
	lock := pack.NewLock()
	lock.Agents["x"] = &pack.LockedAgent{Servers: map[string]*pack.LockedServer{id: {
		Resolved: &pack.Resolved{Version: version, Recipe: recipe}, Package: pack.LockedPackage{Kind: recipe.Kind, Name: recipe.Name},
	}}}
	return lock
}

// configure adds settings with a secret for a server to config.toml.
func configure(t *testing.T, h home.Home, id string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(h.Dir(), "config.toml"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := fmt.Fprintf(file, "[server.%q]\nenv = {TOKEN = \"$env:MINE\"}\n", id); err != nil {
		t.Fatal(err)
	}
}

// refs returns the names of this machine's secrets that a server gets.
func refs(f Found) string {
	var out []string
	for _, s := range append(f.Server.Env, f.Server.Headers...) {
		out = append(out, s.Refs...)
	}
	return fmt.Sprint(out)
}

// A server can be resolved by an untrusted lock file. Such a server gets secrets only if the
// catalogue or the registry gives the same recipe.
func TestStrangersLock(t *testing.T) {
	const search, tool = "registry.openmcp.org/search", "mcp.example.com/tool"
	fake := newFake(t)
	newHome := func(t *testing.T) home.Home {
		h := settled(t, fake.url)
		configure(t, h, search)
		configure(t, h, tool)
		return h
	}
	r := resolver(t, newHome(t))
	entry := r.Catalog.Entries[search]
	if entry == nil {
		t.Fatalf("the catalogue has no %s", search)
	}
	ours := RecipeOf(entry)
	theirs := ask(r, tool, "1.10.0").Recipe
	with := func(recipe Recipe, change func(*Recipe)) Recipe {
		if recipe.Env = maps.Clone(recipe.Env); recipe.Env == nil {
			recipe.Env = map[string]string{}
		}
		change(&recipe)
		return recipe
	}
	stolen := map[string]string{"X": "$env:AWS_SECRET_ACCESS_KEY"}
	for _, tt := range []struct {
		name, id, version string
		recipe            Recipe
		want, warning     string
	}{
		{"the recipe of the catalogue", search, entry.Version, ours, "[SEARXNG_URL MINE]", ""},
		{"another version of the catalogue's package", search, entry.Version, with(ours, func(r *Recipe) { r.Version, r.Digest = "0.0.1", "" }), "[SEARXNG_URL MINE]", ""},
		{"the recipe of the registry", tool, "1.10.0", theirs, "[MINE]", ""},
		{"another package", search, entry.Version, Recipe{Kind: pack.NPM, Name: "evil", Version: "1.0.0", Env: stolen}, "[]", `the package "evil"`},
		{"another package for an id of the registry", tool, "1.10.0", Recipe{Kind: pack.NPM, Name: "evil", Version: "1.0.0", Env: stolen, Foreign: true}, "[]", `the package "evil"`},
		{"the same package with another URL in a variable", search, entry.Version, with(ours, func(r *Recipe) { r.Env["API_URL"] = "https://evil.example.com" }), "[]", "no secrets of this machine"},
		{"the same package with other arguments", tool, "1.10.0", with(theirs, func(r *Recipe) { r.Args = []string{"--url=https://evil.example.com"} }), "[]", "no secrets of this machine"},
		{"the recipe of the registry, not marked as foreign", tool, "1.10.0", with(theirs, func(r *Recipe) { r.Foreign = false }), "[]", "no secrets of this machine"},
		{"an address", search, entry.Version, Recipe{Kind: pack.Remote, Name: "https://evil.example.com/mcp", Env: stolen}, "[]", `the package "https://evil.example.com/mcp"`},
		{"an unknown id", "mcp.example.com/none", "1.0.0", Recipe{Kind: pack.NPM, Name: "evil", Version: "1.0.0", Env: stolen}, "[]", `the package "evil"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := resolver(t, newHome(t))
			r.Lock = locked(tt.id, tt.version, tt.recipe)
			f := ask(r, tt.id, "*")
			if f.Problem != nil || f.From != FromLock || refs(f) != tt.want {
				t.Errorf("resolved from %q, problem %v: the server gets the secrets %s, want %s", f.From, f.Problem, refs(f), tt.want)
			}
			if got := strings.Join(f.Warnings, "\n"); (got != "") != (tt.warning != "") || !strings.Contains(got, tt.warning) {
				t.Errorf("got the warning %q, want %q", got, tt.warning)
			}
			if tt.want == "[]" && !f.Recipe.Foreign {
				t.Error("the untrusted recipe is not marked as foreign")
			}
		})
	}
	r.Lock = locked(search, entry.Version, with(ours, func(r *Recipe) { r.Env["NODE_OPTIONS"] = "--import=data:text/javascript,1" }))
	if f := ask(r, search, "*"); f.Problem == nil || !strings.Contains(f.Problem.Error(), "NODE_OPTIONS") || f.Server.Alias != "" {
		t.Errorf("a lock file that sets NODE_OPTIONS is not refused: %+v, %v", f.Server, f.Problem)
	}
}

// A server that was resolved and locked on this machine gets the user's settings. This also applies
// if the registry is unreachable and the catalogue has changed.
func TestLockedHere(t *testing.T) {
	for _, id := range []string{"registry.openmcp.org/search", "mcp.example.com/tool"} {
		t.Run(id, func(t *testing.T) {
			h := settled(t, newFake(t).url)
			configure(t, h, id)
			first := ask(resolver(t, h), id, "*")
			if first.Problem != nil || !strings.Contains(refs(first), "MINE") {
				t.Fatalf("the server gets the secrets %s, want MINE; problem %v", refs(first), first.Problem)
			}
			r := resolver(t, h)
			r.Client = nil
			delete(r.Catalog.Entries, id)
			first.Recipe.Digest = "sha256:" + strings.Repeat("0", 64) // locking the server adds the digest
			r.Lock = locked(id, first.Version, first.Recipe)
			f := ask(r, id, "*")
			if f.Problem != nil || f.From != FromLock || refs(f) != refs(first) || len(f.Warnings) > 0 {
				t.Errorf("resolved from %q, problem %v, warnings %q: the server gets the secrets %s, want %s", f.From, f.Problem, f.Warnings, refs(f), refs(first))
			}
		})
	}
}

// A lock file also lists a package's dependencies and allowed install scripts. They run together with
// the server. A server with such lists gets secrets only if the lists were locked on this machine.
func TestStrangersLists(t *testing.T) {
	const search = "registry.openmcp.org/search"
	here := runtime.GOOS + "/" + runtime.GOARCH
	list := func(of string) pack.Build { return pack.Build{Tree: "sha256:" + of, Lockfile: "sha256:" + of} }
	h := settled(t, newFake(t).url)
	configure(t, h, search)
	kind := pack.NPM
	// The function found resolves the server with a lock file. The lock file contains the catalogue's recipe
	// and the locked package p.
	found := func(p pack.LockedPackage, change func(*Resolver)) Found {
		t.Helper()
		r := resolver(t, h)
		entry := *r.Catalog.Entries[search]
		entry.Package.Kind = string(kind)
		r.Catalog.Entries[search] = &entry
		r.Lock = locked(search, entry.Version, RecipeOf(&entry))
		r.Lock.Server("x", search).Package = p
		if change != nil {
			change(r)
		}
		f := ask(r, search, "*")
		if f.Problem != nil || f.From != FromLock {
			t.Fatalf("resolved from %q, problem %v; want the lock file and no problem", f.From, f.Problem)
		}
		return f
	}
	gets := func(name string, f Found, want bool) {
		t.Helper()
		warned := strings.Contains(strings.Join(f.Warnings, ""), "the dependencies of the package")
		if got := strings.Contains(refs(f), "MINE"); got != want || warned == want || f.Recipe.Foreign == want {
			t.Errorf("%s: the server gets the secrets %s, with the warnings %q; want MINE among them: %v", name, refs(f), f.Warnings, want)
		}
	}
	ours := pack.LockedPackage{Kind: kind, Builds: map[string]pack.Build{here: list("ours")}}
	stranger := found(ours, nil)
	gets("dependencies for this platform", stranger, false)
	gets("dependencies for another platform", found(pack.LockedPackage{Kind: kind, Builds: map[string]pack.Build{"plan9/mips": list("x")}}, nil), false)
	gets("install scripts", found(pack.LockedPackage{Kind: kind, Scripts: []string{"evil"}}, nil), false)
	gets("a package of another kind", found(pack.LockedPackage{Kind: pack.Remote, Builds: map[string]pack.Build{here: list("x")}}, nil), false)

	// Trust ignores an untrusted server. Locking with Anew ignores the lists in the lock file, and
	// ambit then trusts the new lists.
	if err := resolver(t, h).Trust(&stranger, ours); err != nil {
		t.Fatal(err)
	}
	asItIs := func(r *Resolver) { r.Lock.Server("x", search).Resolved.Recipe = stranger.Recipe }
	gets("an untrusted server that was locked unchanged", found(ours, asItIs), false)
	anew := found(ours, func(r *Resolver) { r.Anew = true })
	gets("resolved with Anew", anew, true)
	if err := resolver(t, h).Trust(&anew, ours); err != nil {
		t.Fatal(err)
	}
	alone := func(r *Resolver) { r.Client = nil; delete(r.Catalog.Entries, search) }
	gets("dependencies locked on this machine", found(ours, alone), true)
	ours.Builds["plan9/mips"] = list("x")
	gets("dependencies locked on this machine and on another one", found(ours, alone), true)
	ours.Builds[here] = list("x")
	gets("a recipe that was changed after it was locked", found(ours, nil), false)

	// A lock file with dependencies but without a recipe is refused. Otherwise the dependencies would be
	// added to any package that the server is resolved to.
	r := resolver(t, h)
	r.Lock = locked(search, "1", Recipe{})
	r.Lock.Server("x", search).Resolved, r.Lock.Server("x", search).Package = nil, ours
	if f := ask(r, search, "*"); f.Problem == nil || !strings.Contains(f.Problem.Error(), "the lock file has no package for the server") || f.Server.Alias != "" {
		t.Errorf("the lock file has no recipe, but the server gets the secrets %s: %v", refs(f), f.Problem)
	}

	// Python wheels for another platform are not installed on this machine.
	kind = pack.PyPI
	gets("wheels for another platform", found(pack.LockedPackage{Kind: kind, Builds: map[string]pack.Build{"plan9/mips": list("x")}}, nil), true)
	gets("wheels for this platform", found(pack.LockedPackage{Kind: kind, Builds: map[string]pack.Build{here: list("x")}}, nil), false)
}
