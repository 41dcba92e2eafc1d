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

// locked is a lock that has one server of the agent x resolved.
func locked(id, version string, recipe Recipe) *pack.Lock {
	lock := pack.NewLock()
	lock.Agents["x"] = &pack.LockedAgent{Servers: map[string]*pack.LockedServer{id: {
		Resolved: &pack.Resolved{Version: version, Recipe: recipe}, Package: pack.LockedPackage{Kind: recipe.Kind, Name: recipe.Name},
	}}}
	return lock
}

// say adds the user's settings for a server to config.toml.
func say(t *testing.T, h home.Home, id string) {
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

// refs are the secrets of this machine that a server gets.
func refs(f Found) string {
	var out []string
	for _, s := range append(f.Server.Env, f.Server.Headers...) {
		out = append(out, s.Refs...)
	}
	return fmt.Sprint(out)
}

// A foreign lock does not decide what a server is: the user's secrets
// for it are for what the catalogue or the registry give.
func TestStrangersLock(t *testing.T) {
	const search, tool = "registry.openmcp.org/search", "mcp.example.com/tool"
	fake := newFake(t)
	newHome := func(t *testing.T) home.Home {
		h := settled(t, fake.url)
		say(t, h, search)
		say(t, h, tool)
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
		{"what the catalogue gives", search, entry.Version, ours, "[SEARXNG_URL MINE]", ""},
		{"another version of it", search, entry.Version, with(ours, func(r *Recipe) { r.Version, r.Digest = "0.0.1", "" }), "[SEARXNG_URL MINE]", ""},
		{"what the registry gives", tool, "1.10.0", theirs, "[MINE]", ""},
		{"another package", search, entry.Version, Recipe{Kind: pack.NPM, Name: "evil", Version: "1.0.0", Env: stolen}, "[]", `the package "evil"`},
		{"another package of the registry's id", tool, "1.10.0", Recipe{Kind: pack.NPM, Name: "evil", Version: "1.0.0", Env: stolen, Foreign: true}, "[]", `the package "evil"`},
		{"the same one with another destination", search, entry.Version, with(ours, func(r *Recipe) { r.Env["API_URL"] = "https://evil.example.com" }), "[]", "no secrets of this machine"},
		{"the same one with other arguments", tool, "1.10.0", with(theirs, func(r *Recipe) { r.Args = []string{"--url=https://evil.example.com"} }), "[]", "no secrets of this machine"},
		{"the registry's, as if it were our own", tool, "1.10.0", with(theirs, func(r *Recipe) { r.Foreign = false }), "[]", "no secrets of this machine"},
		{"an address", search, entry.Version, Recipe{Kind: pack.Remote, Name: "https://evil.example.com/mcp", Env: stolen}, "[]", `the package "https://evil.example.com/mcp"`},
		{"an unknown id", "mcp.example.com/none", "1.0.0", Recipe{Kind: pack.NPM, Name: "evil", Version: "1.0.0", Env: stolen}, "[]", `the package "evil"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := resolver(t, newHome(t))
			r.Lock = locked(tt.id, tt.version, tt.recipe)
			f := ask(r, tt.id, "*")
			if f.Problem != nil || f.From != FromLock || refs(f) != tt.want {
				t.Errorf("%s, %v: it gets %s, want %s", f.From, f.Problem, refs(f), tt.want)
			}
			if got := strings.Join(f.Warnings, "\n"); (got != "") != (tt.warning != "") || !strings.Contains(got, tt.warning) {
				t.Errorf("it warns %q, want %q", got, tt.warning)
			}
			if tt.want == "[]" && !f.Recipe.Foreign {
				t.Error("it is taken for our own")
			}
		})
	}
	r.Lock = locked(search, entry.Version, with(ours, func(r *Recipe) { r.Env["NODE_OPTIONS"] = "--import=data:text/javascript,1" }))
	if f := ask(r, search, "*"); f.Problem == nil || !strings.Contains(f.Problem.Error(), "NODE_OPTIONS") || f.Server.Alias != "" {
		t.Errorf("a lock sets NODE_OPTIONS: %+v, %v", f.Server, f.Problem)
	}
}

// A server that was resolved and locked here gets the user's settings also when
// the registry is unreachable and the catalogue has changed.
func TestLockedHere(t *testing.T) {
	for _, id := range []string{"registry.openmcp.org/search", "mcp.example.com/tool"} {
		t.Run(id, func(t *testing.T) {
			h := settled(t, newFake(t).url)
			say(t, h, id)
			first := ask(resolver(t, h), id, "*")
			if first.Problem != nil || !strings.Contains(refs(first), "MINE") {
				t.Fatalf("%s, %v", refs(first), first.Problem)
			}
			r := resolver(t, h)
			r.Client = nil
			delete(r.Catalog.Entries, id)
			first.Recipe.Digest = "sha256:" + strings.Repeat("0", 64) // as locking it adds
			r.Lock = locked(id, first.Version, first.Recipe)
			f := ask(r, id, "*")
			if f.Problem != nil || f.From != FromLock || refs(f) != refs(first) || len(f.Warnings) > 0 {
				t.Errorf("%s, %v, %q: it gets %s, want %s", f.From, f.Problem, f.Warnings, refs(f), refs(first))
			}
		})
	}
}

// A lock also lists a package's dependencies and allowed install scripts.
// That is code beside the server's own, and no less a stranger's.
func TestStrangersLists(t *testing.T) {
	const search = "registry.openmcp.org/search"
	here := runtime.GOOS + "/" + runtime.GOARCH
	list := func(of string) pack.Build { return pack.Build{Tree: "sha256:" + of, Lockfile: "sha256:" + of} }
	h := settled(t, newFake(t).url)
	say(t, h, search)
	kind := pack.NPM
	// found is what the catalogue's own recipe comes to in a lock with such a package.
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
			t.Fatalf("%s, %v", f.From, f.Problem)
		}
		return f
	}
	gets := func(name string, f Found, want bool) {
		t.Helper()
		warned := strings.Contains(strings.Join(f.Warnings, ""), "only ambit.lock gives the dependencies")
		if got := strings.Contains(refs(f), "MINE"); got != want || warned == want || f.Recipe.Foreign == want {
			t.Errorf("%s: it gets %s, and warns %q", name, refs(f), f.Warnings)
		}
	}
	ours := pack.LockedPackage{Kind: kind, Builds: map[string]pack.Build{here: list("ours")}}
	stranger := found(ours, nil)
	gets("dependencies", stranger, false)
	gets("those of another platform", found(pack.LockedPackage{Kind: kind, Builds: map[string]pack.Build{"plan9/mips": list("x")}}, nil), false)
	gets("scripts", found(pack.LockedPackage{Kind: kind, Scripts: []string{"evil"}}, nil), false)
	gets("a package of another kind", found(pack.LockedPackage{Kind: pack.Remote, Builds: map[string]pack.Build{here: list("x")}}, nil), false)

	// Locking it chooses them anew, and is remembered.
	if err := resolver(t, h).Trust(&stranger, ours); err != nil {
		t.Fatal(err)
	}
	asItIs := func(r *Resolver) { r.Lock.Server("x", search).Resolved.Recipe = stranger.Recipe }
	gets("a stranger's that was locked as it is", found(ours, asItIs), false)
	anew := found(ours, func(r *Resolver) { r.Anew = true })
	gets("anew", anew, true)
	if err := resolver(t, h).Trust(&anew, ours); err != nil {
		t.Fatal(err)
	}
	alone := func(r *Resolver) { r.Client = nil; delete(r.Catalog.Entries, search) }
	gets("locked here", found(ours, alone), true)
	ours.Builds["plan9/mips"] = list("x")
	gets("and elsewhere too", found(ours, alone), true)
	ours.Builds[here] = list("x")
	gets("and then changed", found(ours, nil), false)

	// Left unsaid what they are for, they would go with whatever is found.
	r := resolver(t, h)
	r.Lock = locked(search, "1", Recipe{})
	r.Lock.Server("x", search).Resolved, r.Lock.Server("x", search).Package = nil, ours
	if f := ask(r, search, "*"); f.Problem == nil || !strings.Contains(f.Problem.Error(), "the lock does not say which package it is") || f.Server.Alias != "" {
		t.Errorf("the lock has no recipe, and the server gets %s: %v", refs(f), f.Problem)
	}

	// Wheels of another platform are not installed on this one.
	kind = pack.PyPI
	gets("wheels for elsewhere", found(pack.LockedPackage{Kind: kind, Builds: map[string]pack.Build{"plan9/mips": list("x")}}, nil), true)
	gets("wheels", found(pack.LockedPackage{Kind: kind, Builds: map[string]pack.Build{here: list("x")}}, nil), false)
}
