package lock

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

// TestRelocked checks that every difference between a lock and the lock of the installed
// agent is returned.
func TestRelocked(t *testing.T) {
	tool := func(description string) map[string]pack.LockedTool {
		locked, err := pack.LockTool([]byte(`{"name": "read", "description": "` + description + `", "inputSchema": {"type": "object"}}`))
		if err != nil {
			t.Fatal(err)
		}
		return map[string]pack.LockedTool{"read": locked}
	}
	server := func(change func(*pack.LockedServer)) *pack.LockedServer {
		s := &pack.LockedServer{
			Package:  pack.LockedPackage{Kind: pack.Remote, Name: "https://example.com/mcp", Version: "1"},
			Resolved: &pack.Resolved{Version: "1", Recipe: pack.Recipe{Kind: pack.Remote, Name: "https://example.com/mcp", Args: []string{"--read-only"}}},
			Protocol: "2025-11-25", Tools: tool("Reads."),
		}
		if change != nil {
			change(s)
		}
		return s
	}
	one := func(change func(*pack.LockedServer)) map[string]*pack.LockedServer {
		return map[string]*pack.LockedServer{"fs": server(change)}
	}
	const evil = `{"evil":{}}`
	digest := func(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }
	// at returns the agent in a new folder. Unless servers is nil, the folder contains a lock with these servers.
	at := func(servers map[string]*pack.LockedServer) *manifest.Manifest {
		folder := t.TempDir()
		m, err := manifest.Load(filepath.Join("..", "..", "..", "agents", "default.json"), manifest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m.Path = filepath.Join(folder, "default.json")
		if servers != nil {
			_, err := pack.UpdateLock(filepath.Join(folder, pack.LockName), func(lock *pack.Lock) error {
				lock.Agents[m.Agent().ID] = &pack.LockedAgent{Servers: servers}
				for _, list := range []string{"{}", evil} {
					lock.Dependencies[digest(list)] = []byte(list)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return m
	}
	here, there, far := runtime.GOOS+"/"+runtime.GOARCH, "plan9/mips", "aix/ppc64"
	locked := func(kind pack.Kind, lists map[string]string) *manifest.Manifest {
		return at(one(func(s *pack.LockedServer) {
			s.Package = pack.LockedPackage{Kind: kind, Name: "x", Version: "1", Digest: digest("{}"), Builds: map[string]pack.Build{}}
			for platform, list := range lists {
				s.Package.Builds[platform] = pack.Build{Tree: digest("{}"), Lockfile: digest(list)}
			}
		}))
	}
	damaged := at(one(nil))
	if err := os.WriteFile(filepath.Join(filepath.Dir(damaged.Path), pack.LockName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		was, now *manifest.Manifest
		want     string
	}{
		"the same":           {at(one(nil)), at(one(nil)), ""},
		"first lock":         {at(nil), at(one(nil)), ""},
		"first dependencies": {at(nil), locked(pack.NPM, map[string]string{there: evil}), `the lock file determines the installed dependencies of server "fs"`},
		"the first dependencies for another platform": {at(nil), locked(pack.PyPI, map[string]string{there: evil}), ""},
		"first scripts":                  {at(nil), at(one(func(s *pack.LockedServer) { s.Package.Scripts = []string{"evil"} })), `of server "fs", and lets the install scripts of "evil" run`},
		"never locked":                   {at(nil), at(nil), ""},
		"the new version has no lock":    {at(one(nil)), at(nil), "the installed agent has a lock file, but the new version has none"},
		"was damaged":                    {damaged, at(one(nil)), "the lock file of the installed agent cannot be read"},
		"a removed tool":                 {at(one(nil)), at(one(func(s *pack.LockedServer) { s.Tools = map[string]pack.LockedTool{} })), `"read" was removed`},
		"another description":            {at(one(nil)), at(one(func(s *pack.LockedServer) { s.Tools = tool("Sends.") })), `description of "read" changed from "Reads." to "Sends."`},
		"another package":                {at(one(nil)), at(one(func(s *pack.LockedServer) { s.Package.Version = "2" })), `version of server "fs" changed from "1" to "2"`},
		"another server":                 {at(one(nil)), at(map[string]*pack.LockedServer{"fs": server(nil), "web": server(nil)}), `server "web" was added`},
		"other arguments":                {at(one(nil)), at(one(func(s *pack.LockedServer) { s.Resolved.Recipe.Args = []string{"--all"} })), `the recipe of server "fs" changed from {"version":"1"`},
		"other dependencies":             {locked(pack.NPM, map[string]string{far: "{}"}), locked(pack.NPM, map[string]string{far: "{}", there: evil}), `builds.` + here + `.lockfile of server "fs" changed`},
		"dependencies from the lock":     {locked(pack.PyPI, map[string]string{far: "{}"}), locked(pack.PyPI, map[string]string{far: "{}", here: evil}), `the new lock file determines the installed dependencies of server "fs"`},
		"locked on another platform too": {locked(pack.NPM, map[string]string{here: "{}"}), locked(pack.NPM, map[string]string{here: "{}", there: evil}), ""},
	} {
		got, err := Relocked(tt.was, tt.now, filepath.Dir(tt.now.Path))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0].Detail, tt.want)) {
			t.Errorf("%s: got %+v, want %q", name, got, tt.want)
		}
	}
	if _, err := Relocked(at(one(nil)), damaged, filepath.Dir(damaged.Path)); err == nil {
		t.Error("an unreadable lock was accepted")
	}
}
