package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// fake is a test registry that returns two versions on each page.
type fake struct {
	url   string
	asked atomic.Int64
	serve atomic.Pointer[http.HandlerFunc]
}

// versions lists the versions of com.example/tool with their status.
var versions = [][2]string{
	{"1.9.0", "active"},
	{"1.10.0", "active"},
	{"2.0.0", "deprecated"},
	{"1.11.0", "deleted"},
	{"nightly", "active"},
	{"1.12.0-beta.1", "active"},
	{"2024-11-05", "active"},
	{"0.9.0", "active"},
}

func listing(version, status string) map[string]any {
	return map[string]any{
		"server": map[string]any{
			"name": "com.example/tool", "description": "A tool.", "version": version,
			"packages": []any{map[string]any{"registryType": "npm", "identifier": "@example/tool", "version": "3.2.1", "transport": map[string]any{"type": "stdio"}}},
		},
		"_meta": map[string]any{"io.modelcontextprotocol.registry/official": map[string]any{"status": status, "isLatest": version == "2.0.0"}},
	}
}

func newFake(t *testing.T) *fake {
	f := &fake{}
	f.set(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v0.1/servers/com.example%2Ftool/versions" {
			http.NotFound(w, r)
			return
		}
		at := 0
		if c := r.URL.Query().Get("cursor"); c != "" {
			fmt.Sscanf(c, "after:%d", &at)
		}
		var page []any
		for _, v := range versions[at:min(at+2, len(versions))] {
			page = append(page, listing(v[0], v[1]))
		}
		meta := map[string]any{}
		if at+2 < len(versions) {
			meta["nextCursor"] = fmt.Sprintf("after:%d", at+2)
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"servers": page, "metadata": meta}); err != nil {
			t.Error(err)
		}
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		(*f.serve.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

func (f *fake) set(h http.HandlerFunc) { f.serve.Store(&h) }

// settled returns a home folder with a config.toml that configures the registry at url.
func settled(t *testing.T, url string) home.Home {
	t.Helper()
	h := home.At(t.TempDir())
	text := fmt.Sprintf("[registry.\"mcp.example.com\"]\nurl = %q\nnamespace = \"com.example\"\n", url)
	if err := os.WriteFile(filepath.Join(h.Dir(), "config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

func resolver(t *testing.T, h home.Home) *Resolver {
	t.Helper()
	r, err := NewResolver(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ask(r *Resolver, server, version string) Found {
	return r.One(context.Background(), &agent.Agent{ID: "x"}, "x", agent.Requirement{Server: server, Version: version})
}

func TestResolve(t *testing.T) {
	r := resolver(t, settled(t, newFake(t).url))
	for _, tt := range []struct{ name, constraint, want string }{
		{"the highest version on any page", "^1.0.0", "1.10.0"},
		{"the registry's latest mark is ignored", ">=1.0.0", "1.10.0"},
		{"a deleted version is ignored", "1.11.x", ""},
		{"a deprecated version is ignored", "2.0.0", ""},
		{"a prerelease that the constraint names", ">=1.12.0-alpha", "1.12.0-beta.1"},
		{"a date is not a version", ">=2024.0.0", ""},
		{"alternatives", "0.9.x || 5", "0.9.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := ask(r, "mcp.example.com/tool", tt.constraint)
			if f.Version != tt.want || (f.Problem == nil) != (tt.want != "") {
				t.Fatalf("%s resolves to %q, %v; want %q", tt.constraint, f.Version, f.Problem, tt.want)
			}
			if tt.want == "" {
				if !errors.Is(f.Problem, ErrUnsatisfied) {
					t.Errorf("the problem is %v, want %v", f.Problem, ErrUnsatisfied)
				}
				return
			}
			if f.From != FromRegistry || f.Server.Command != "npx" || strings.Join(f.Server.Args, " ") != "-y @example/tool@3.2.1" || f.Server.Alias != "mcp.example.com/tool" || !f.Server.Placeholder {
				t.Errorf("server %+v from %s", f.Server, f.From)
			}
		})
	}
}

func TestResolveNames(t *testing.T) {
	r := resolver(t, settled(t, newFake(t).url))
	if f := ask(r, "mcp.example.com/com.example/tool", "*"); f.Problem != nil {
		t.Errorf("resolving a name with its namespace failed: %v", f.Problem)
	}
	if f := ask(r, "mcp.example.com/other", "*"); !errors.Is(f.Problem, ErrNotFound) {
		t.Errorf("an unknown server: got %v, want %v", f.Problem, ErrNotFound)
	}
	if f := ask(r, "unknown.example.com/tool", "*"); f.Problem == nil || !strings.Contains(f.Problem.Error(), `[registry."unknown.example.com"]`) {
		t.Errorf("an unknown host: %v", f.Problem)
	}
	if f := ask(r, Official+"/tool", "*"); f.Problem == nil || !strings.Contains(f.Problem.Error(), "has no namespace") {
		t.Errorf("a name without a namespace: %v", f.Problem)
	}
}

// An id that is only a name in the official registry is resolved there. An id that could begin with a host is not
// resolved there.
func TestResolveOfficialNames(t *testing.T) {
	h := settled(t, newFake(t).url)
	text := fmt.Sprintf("[registry.%q]\nurl = %q\n", Official, newFake(t).url)
	if err := os.WriteFile(filepath.Join(h.Dir(), "config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := resolver(t, h)
	f := ask(r, "com.example/tool", "^1.0.0")
	if f.Problem != nil || f.Version != "1.10.0" || f.From != FromRegistry || f.Server.Alias != "com.example/tool" {
		t.Errorf("got version %q from %s for %s, and the problem %v; want version 1.10.0 from the registry",
			f.Version, f.From, f.Server.Alias, f.Problem)
	}
	if f := ask(r, "io.github.owner/name", "*"); !errors.Is(f.Problem, ErrNotFound) {
		t.Errorf("an unknown name: got %v, want %v", f.Problem, ErrNotFound)
	}
	for _, id := range []string{"ai.corp.com/tool", "registry.example/x", "localhost/x", "io.example/a/b"} {
		if f := ask(r, id, "*"); f.Problem == nil || !strings.Contains(f.Problem.Error(), "is not configured") {
			t.Errorf("%s: %v", id, f.Problem)
		}
	}
}

func TestCache(t *testing.T) {
	f := newFake(t)
	r := resolver(t, settled(t, f.url))
	now := time.Now()
	r.Client.cache.now = func() time.Time { return now }
	get := func(want string) Found {
		t.Helper()
		found := ask(r, "mcp.example.com/tool", "^1")
		if found.Version != want {
			t.Fatalf("got version %q and problem %v, want version %q", found.Version, found.Problem, want)
		}
		return found
	}
	get("1.10.0")
	asked := f.asked.Load()
	get("1.10.0")
	if f.asked.Load() != asked {
		t.Error("the registry got a request although the cached answer is fresh")
	}
	now = now.Add(freshFor + time.Second)
	get("1.10.0")
	if f.asked.Load() == asked {
		t.Error("the registry got no request although the cached answer is not fresh")
	}
	f.set(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	now = now.Add(freshFor + time.Second)
	if found := get("1.10.0"); len(found.Warnings) != 1 || !strings.Contains(found.Warnings[0], "unreachable") {
		t.Errorf("got the warnings %q, want one that says unreachable", found.Warnings)
	}
	now = now.Add(staleFor)
	if found := get(""); !errors.Is(found.Problem, ErrUnreachable) {
		t.Errorf("a cached answer that is too old: got %v, want %v", found.Problem, ErrUnreachable)
	}
	f.set(http.NotFound)
	now = now.Add(-staleFor)
	if found := get(""); !errors.Is(found.Problem, ErrNotFound) {
		t.Errorf("a server that the registry removed: got %v, want %v", found.Problem, ErrNotFound)
	}
	f.set(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if found := get(""); !errors.Is(found.Problem, ErrUnreachable) {
		t.Errorf("the answer for a removed server is still cached: %v", found.Problem)
	}
}

func TestRegistryIsBounded(t *testing.T) {
	other := newFake(t)
	wants := map[string]string{
		"a large answer is not read": "larger than", "pages in a loop": "nextCursor twice", "endless pages": "more than 100 pages",
		"many entries on a page": "more than 250000 JSON tokens", "many entries on many pages": "more than 10000 entries", "many empty packages": "more than 250000 JSON tokens",
	}
	next := func(w http.ResponseWriter, r *http.Request, page string) {
		fmt.Fprintf(w, `%s,"metadata":{"nextCursor":%q}}`, page, r.URL.Query().Get("cursor")+"x")
	}
	for name, h := range map[string]http.HandlerFunc{
		"a redirect is not followed": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.url+r.URL.EscapedPath(), http.StatusFound)
		},
		"a large answer is not read": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"servers":[],"x":"`)
			for range maxBody / 1000 {
				fmt.Fprint(w, strings.Repeat("x", 1024))
			}
			fmt.Fprint(w, `"}`)
		},
		"pages in a loop": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"servers":[],"metadata":{"nextCursor":"again"}}`)
		},
		"endless pages": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"servers":[],"metadata":{"nextCursor":%q}}`, r.URL.Query().Get("cursor")+"x")
		},
		"many entries on a page": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"servers":[{}`, strings.Repeat(",{}", maxTokens/2), `]}`)
		},
		"many empty packages": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"servers":[{"server":{"packages":[null`, strings.Repeat(",null", maxTokens), `]}}]}`)
		},
		"many entries on many pages": func(w http.ResponseWriter, r *http.Request) {
			next(w, r, `{"servers":[{}`+strings.Repeat(",{}", 2000)+`]`)
		},
		"not JSON":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"status 500":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"wrong types": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"servers":{}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.set(h)
			before := other.asked.Load()
			found := ask(resolver(t, settled(t, f.url)), "mcp.example.com/tool", "*")
			if !errors.Is(found.Problem, ErrUnreachable) || !strings.Contains(found.Problem.Error(), wants[name]) {
				t.Errorf("got version %q and problem %v, want the problem %q", found.Version, found.Problem, wants[name])
			}
			if other.asked.Load() != before {
				t.Error("a server outside the registry got a request")
			}
			if n := f.asked.Load(); n > maxPages {
				t.Errorf("the registry got %d requests, want at most %d", n, maxPages)
			}
		})
	}
}

// All pages of an answer share one budget.
func TestBudget(t *testing.T) {
	for _, tt := range []struct {
		left budget
		want string
	}{{budget{bytes: 14, tokens: 8}, ""}, {budget{bytes: 13, tokens: 8}, "bytes in total"}, {budget{bytes: 14, tokens: 7}, "JSON tokens"}} {
		page := []byte(`{"a":1}`)
		if err := tt.left.take(page); err != nil {
			t.Errorf("%+v, the first page: %v", tt.left, err)
		}
		err := tt.left.take(page)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v, the second page: got %v, want %q", tt.left, err, tt.want)
		}
	}
}

// A registry on this machine gets requests only if it is configured in config.toml.
func TestRegistryOnThisMachine(t *testing.T) {
	f := newFake(t)
	r := resolver(t, home.At(t.TempDir()))
	r.Client.config.Hosts["mcp.example.com"] = Host{URL: f.url, Namespace: "com.example"}
	if found := ask(r, "mcp.example.com/tool", "*"); !errors.Is(found.Problem, ErrUnreachable) || f.asked.Load() != 0 {
		t.Errorf("got %v after %d requests, want %v without a request", found.Problem, f.asked.Load(), ErrUnreachable)
	}
}

func TestConfig(t *testing.T) {
	for name, text := range map[string]string{
		"http to a remote host": "[registry.\"a.example.com\"]\nurl = \"http://registry.example.com\"\n",
		"no URL":                "[registry.\"a.example.com\"]\nnamespace = \"x\"\n",
		"a password":            "[registry.\"a.example.com\"]\nurl = \"https://me:pass@registry.example.com\"\n",
		"an unknown setting":    "[registry.\"a.example.com\"]\nurl = \"https://registry.example.com\"\nurrl = 1\n",
		"a relative folder":     "[server.\"a.example.com/x\"]\nwork = \"here\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := home.At(t.TempDir())
			if err := os.WriteFile(filepath.Join(h.Dir(), "config.toml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadConfig(h); err == nil || strings.Contains(err.Error(), "pass@") {
				t.Errorf("ReadConfig returned %v, want an error that does not contain the password", err)
			}
		})
	}
}

func TestRecipes(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	stdio := `"transport":{"type":"stdio"}`
	for _, tt := range []struct{ name, listing, want, problem string }{
		{"npm", `{"packages":[{"registryType":"npm","identifier":"@a/b","version":"1.2.3","fileSha256":"` + sum + `",` + stdio + `,"packageArguments":[{"type":"positional","value":"x"},{"type":"named","name":"--y","default":"z"}]}]}`, "npx -y @a/b@1.2.3 x --y z", ""},
		{"pypi", `{"packages":[{"registryType":"pypi","identifier":"a-b","version":"1.2.3",` + stdio + `}]}`, "uvx a-b==1.2.3", ""},
		{"the first package that ambit can run", `{"packages":[{"registryType":"oci","identifier":"ghcr.io/a/b:1"},{"registryType":"npm","identifier":"b","version":"1.0.0"}]}`, "npx -y b@1.0.0", ""},
		{"an address", `{"remotes":[{"type":"sse","url":"https://a.example.com/sse"},{"type":"streamable-http","url":"https://a.example.com/mcp"}]}`, "https://a.example.com/mcp", ""},
		{"a container", `{"packages":[{"registryType":"oci","identifier":"ghcr.io/a/b:1"}]}`, "", "ambit does not run container images"},
		{"a package of the public index", `{"packages":[{"registryType":"npm","registryBaseUrl":"https://packages.` + publicIndex[pack.NPM] + `.org/","identifier":"b","version":"1.0.0"}]}`, "npx -y b@1.0.0", ""},
		{"a package of the user's own index", `{"packages":[{"registryType":"npm","registryBaseUrl":"https://packages.example.com/npm/","identifier":"b","version":"1.0.0"}]}`, "npx -y b@1.0.0", ""},
		{"a package of an index that is not configured", `{"packages":[{"registryType":"npm","registryBaseUrl":"https://npm.example.com","identifier":"b","version":"1.0.0"}]}`, "", "the package is published at \"https://npm.example.com\""},
		{"an index with a similar name", `{"packages":[{"registryType":"pypi","registryBaseUrl":"https://notpypi.org","identifier":"b","version":"1.0.0"}]}`, "", "could have a different package"},
		{"another index, with a hash", `{"packages":[{"registryType":"npm","registryBaseUrl":"https://npm.example.com","identifier":"b","version":"1.0.0","fileSha256":"` + sum + `"}]}`, "npx -y b@1.0.0", ""},
		{"a bundle", `{"packages":[{"registryType":"mcpb","identifier":"https://example.com/x.mcpb","fileSha256":"` + sum + `"}]}`, "mcpb", ""},
		{"a bundle with options for its runtime", `{"packages":[{"registryType":"mcpb","identifier":"https://example.com/x.mcpb","fileSha256":"` + sum + `","runtimeArguments":[{"type":"positional","value":"-r"}]}]}`, "", "could run different code"},
		{"a bundle that is a file", `{"packages":[{"registryType":"mcpb","identifier":"file:///etc/passwd","fileSha256":"` + sum + `"}]}`, "", "not an http or https URL"},
		{"a variable for the dynamic loader", `{"packages":[{"registryType":"npm","identifier":"b","version":"1.0.0","environmentVariables":[{"name":"LD_PRELOAD","value":"/x.so"}]}]}`, "", "which only the owner"},
		{"a variable with code for Node.js", `{"packages":[{"registryType":"npm","identifier":"b","version":"1.0.0","environmentVariables":[{"name":"NODE_OPTIONS","default":"--import=data:text/javascript,1"}]}]}`, "", "which only the owner"},
		{"a bundle without a hash", `{"packages":[{"registryType":"mcpb","identifier":"https://example.com/x.mcpb"}]}`, "", "has no sha256"},
		{"a range", `{"packages":[{"registryType":"npm","identifier":"b","version":"^1.0.0"}]}`, "", "an exact version"},
		{"a range without operators", `{"packages":[{"registryType":"npm","identifier":"b","version":"1.x"}]}`, "", "an exact version"},
		{"only a major version", `{"packages":[{"registryType":"npm","identifier":"b","version":"1"}]}`, "", "an exact version"},
		{"an option as a name", `{"packages":[{"registryType":"npm","identifier":"--call=evil","version":"1.0.0"}]}`, "", "an exact version"},
		{"a folder as a name", `{"packages":[{"registryType":"npm","identifier":"../x","version":"1.0.0"}]}`, "", "an exact version"},
		{"an option for the runtime", `{"packages":[{"registryType":"npm","identifier":"b","version":"1.0.0","runtimeArguments":[{"type":"named","name":"--node-options","value":"--require=/tmp/x"}]}]}`, "", "could run different code"},
		{"a bad hash", `{"packages":[{"registryType":"npm","identifier":"b","version":"1.0.0","fileSha256":"zz"}]}`, "", "not a SHA-256 digest"},
		{"an argument without a value", `{"packages":[{"registryType":"npm","identifier":"b","version":"1.0.0","packageArguments":[{"type":"positional","valueHint":"folder","isRequired":true}]}]}`, "", `the argument "folder" is required`},
		{"a package with a network transport", `{"packages":[{"registryType":"npm","identifier":"b","version":"1.0.0","transport":{"type":"streamable-http"}}]}`, "", "must be stdio"},
		{"an http address", `{"remotes":[{"type":"streamable-http","url":"http://a.example.com/mcp"}]}`, "", "the url of the server is not a plain https address"},
		{"an address of this machine", `{"remotes":[{"type":"streamable-http","url":"https://127.0.0.1/mcp"}]}`, "", "not a public host name"},
		{"the cloud metadata address", `{"remotes":[{"type":"streamable-http","url":"https://169.254.169.254/mcp"}]}`, "", "not a public host name"},
		{"an address with a placeholder", `{"remotes":[{"type":"streamable-http","url":"https://{host}/mcp"}]}`, "", "the url of the server is not a plain https address"},
		{"an empty listing", `{}`, "", "neither a package nor an address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l Listing
			if err := json.Unmarshal([]byte(tt.listing), &l); err != nil {
				t.Fatal(err)
			}
			recipe, err := l.Recipe("https://packages.example.com/npm")
			if tt.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tt.problem) {
					t.Errorf("got the error %v, want %q", err, tt.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s, err := Server("a.example.com/x", recipe, Settings{}, "/work")
			if got := strings.TrimSpace(s.Endpoint + s.Command + " " + strings.Join(s.Args, " ")); err != nil || got != tt.want {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

// A registry cannot make ambit pass secrets from this machine to a server.
func TestRegistrySecrets(t *testing.T) {
	var l Listing
	text := `{"packages":[{"registryType":"npm","identifier":"b","version":"1.0.0","environmentVariables":[
		{"name":"AWS_SECRET_ACCESS_KEY","isSecret":true,"isRequired":true},{"name":"PLAIN","value":"$env:AWS_SECRET_ACCESS_KEY"},{"name":"MODE","default":"fast"},
		{"name":"MAYBE","isSecret":true,"default":"x"}]}]}`
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	recipe, err := l.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Server("a/x", recipe, Settings{}, "/work"); err == nil || !strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY") {
		t.Errorf("a required secret that the user did not set: got %v, want an error with its name", err)
	}
	s, err := Server("a/x", recipe, Settings{Env: map[string]string{"AWS_SECRET_ACCESS_KEY": "$env:MINE"}}, "/work")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, set := range s.Env {
		got[set.Name] = set.Refs
	}
	if len(got) != 3 || len(got["PLAIN"]) != 0 || fmt.Sprint(got["AWS_SECRET_ACCESS_KEY"]) != "[MINE]" {
		t.Errorf("the environment is %v, want 3 variables, of which only AWS_SECRET_ACCESS_KEY refers to a credential", s.Env)
	}
	// A recipe in a lock file is still marked as foreign after the file is written and read.
	lock := pack.NewLock()
	lock.Agents["x"] = &pack.LockedAgent{Servers: map[string]*pack.LockedServer{"a.example.com/x": {
		Resolved: &pack.Resolved{Version: "1.0.0", Recipe: recipe}, Package: pack.LockedPackage{Kind: pack.Remote, Name: "x"}, Tools: map[string]pack.LockedTool{},
	}}}
	written, err := lock.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := pack.ParseLock("ambit.lock", written)
	if err != nil {
		t.Fatal(err)
	}
	if kept := read.Server("x", "a.example.com/x").Resolved; !kept.Recipe.Foreign || !kept.Equal(lock.Server("x", "a.example.com/x").Resolved) {
		t.Errorf("the lock contains %+v, want the original recipe, marked as foreign", kept)
	}
}

func FuzzListing(f *testing.F) {
	f.Add([]byte(`{"servers":[{"server":{"name":"a/b","version":"1.0.0","packages":[{"registryType":"npm","identifier":"b","version":"1.0.0"}]}}]}`))
	f.Add([]byte(`{"servers":[{"server":{"name":"a/b","version":"1.0.0","remotes":[{"url":"https://x.example.com/mcp"}]}}]}`))
	f.Add([]byte(`{"servers":[{"server":{"name":"a/b","version":"1.0.0","packages":[{"registryType":"mcpb","identifier":"https://x.example.com/b.mcpb","fileSha256":"` + strings.Repeat("ab", 32) + `"}]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p page
		if json.Unmarshal(text, &p) != nil {
			return
		}
		for i := range p.Servers {
			recipe, err := p.Servers[i].Server.Recipe()
			if err != nil {
				continue
			}
			s, err := Server("a.example.com/x", recipe, Settings{}, "/work")
			if err != nil {
				continue
			}
			if s.Command != "npx" && s.Command != "uvx" && s.Endpoint == "" && (recipe.Kind != pack.MCPB || recipe.Digest == "") {
				t.Errorf("the registry made ambit start the command %q", s.Command)
			}
			for _, set := range append(s.Env, s.Headers...) {
				if len(set.Refs) > 0 {
					t.Errorf("a value from the registry refers to the credentials %q", set.Refs)
				}
			}
			if s.Endpoint == "" && recipe.Kind != pack.MCPB {
				if ref, err := pack.Identify(s); err == nil && (ref.Name != recipe.Name || ref.Version != recipe.Version) {
					t.Errorf("%q starts %s %s, want %s %s", s.Args, ref.Name, ref.Version, recipe.Name, recipe.Version)
				}
			}
		}
	})
}
