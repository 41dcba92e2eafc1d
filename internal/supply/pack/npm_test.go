package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// newStore returns an empty store that is removed after the test.
func newStore(t *testing.T) *Store {
	s := &Store{Dir: t.TempDir()}
	t.Cleanup(func() { removeAll(s.Dir) })
	return s
}

// leftovers returns the work folders in a store.
func leftovers(t *testing.T, s *Store) []string {
	found, err := filepath.Glob(filepath.Join(s.platformDir(), workPrefix+"*"))
	check(t, err)
	return found
}

// publishEcho publishes a server that depends on a range of versions of another package. It returns the
// server's name and digest.
func publishEcho(t *testing.T) (name, digest string) {
	base := scope + "/" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	dep := base + "-dep"
	for _, v := range []string{"1.0.0", "1.1.0"} {
		registry.publish(map[string]any{"name": dep, "version": v}, map[string]string{"index.js": "module.exports = 'dep " + v + "'"})
	}
	digest = registry.publish(
		map[string]any{"name": base, "version": "1.2.3", "bin": map[string]string{"echo": "bin.js"}, "dependencies": map[string]string{dep: "^1.0.0"}},
		map[string]string{"bin.js": "#!/usr/bin/env node\nconsole.log(require('" + dep + "'), ...process.argv.slice(2))\n"},
	)
	return base, digest
}

// A package can be installed with the dependencies of a lock file. Such a package is opened only for
// callers with the same list of dependencies. A caller with only the digest gets the dependencies that
// were resolved on this machine.
func TestDependenciesOfALock(t *testing.T) {
	t.Parallel()
	s, ctx := newStore(t), context.Background()
	name, digest := publishEcho(t)
	ref := Ref{Kind: NPM, Name: name, Version: "1.2.3"}
	theirs, err := newStore(t).Fetch(ctx, ref, Want{}, nil)
	check(t, err)
	want := Want{Digest: digest, Dependencies: theirs.Dependencies}
	_, err = s.Fetch(ctx, ref, want, nil)
	check(t, err)
	if _, err := s.Open(ref, Want{Digest: digest}); !errors.Is(err, NotStored) {
		t.Errorf("opening with only the digest: got %v, want %s", err, NotStored)
	}
	registry.publish(map[string]any{"name": name + "-dep", "version": "1.9.0"}, map[string]string{"index.js": "module.exports = 'newer'"})
	ours, err := s.Fetch(ctx, ref, Want{Digest: digest}, nil)
	check(t, err)
	if ours.Lockfile == theirs.Lockfile {
		t.Error("the package has the dependencies of the lock file")
	}
	for name, want := range map[string]struct {
		of   Want
		tree string
	}{"only the digest": {Want{Digest: digest}, ours.Tree}, "the lock file": {want, theirs.Tree}} {
		if p, err := s.Open(ref, want.of); err != nil || p.Tree != want.tree {
			t.Errorf("opening with %s: got %v, %v; want the tree %s", name, p, err, want.tree)
		}
	}
}

func TestFetchNPM(t *testing.T) {
	t.Parallel()
	s, ctx := newStore(t), context.Background()
	name, digest := publishEcho(t)
	var steps []string
	p, err := s.Fetch(ctx, Ref{Kind: NPM, Name: name}, Want{}, func(step string) { steps = append(steps, step) })
	check(t, err)
	if p.Digest != digest || p.Version != "1.2.3" || p.Platform != platform() || len(p.Scripts) != 0 {
		t.Errorf("got %+v, want version 1.2.3 with the digest %s", p, digest)
	}
	if len(steps) != 3 {
		t.Errorf("got the progress messages %q, want 3", steps)
	}
	argv := p.Argv([]string{"a", "b"})
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if string(out) != "dep 1.1.0 a b\n" {
		t.Errorf("the server printed %q (error %v), want the dependency's version and the arguments", out, err)
	}
	if bytes.Contains(p.Dependencies, []byte("127.0.0.1")) || bytes.Contains(p.Dependencies, []byte("resolved")) {
		t.Errorf("the list of dependencies contains the address of the registry: %s", p.Dependencies)
	}

	// A newer version of the dependency was published. Fetching with the list of dependencies still
	// installs the old version. In an empty store, the result is the same tree.
	registry.publish(map[string]any{"name": name + "-dep", "version": "1.9.0"}, map[string]string{"index.js": "module.exports = 'evil'"})
	other := newStore(t)
	want := Want{Digest: p.Digest, Tree: p.Tree, Dependencies: p.Dependencies}
	ref := Ref{Kind: NPM, Name: name, Version: "1.2.3"}
	q, err := other.Fetch(ctx, ref, want, nil)
	check(t, err)
	if q.Tree != p.Tree || q.Lockfile != p.Lockfile {
		t.Errorf("got the tree %s, want %s", q.Tree, p.Tree)
	}

	// Fetch refuses the package if the registry serves other content under the same version.
	registry.publish(map[string]any{"name": name, "version": "1.2.3", "bin": "x.js"}, map[string]string{"x.js": "evil"})
	if _, err := newStore(t).Fetch(ctx, ref, want, nil); !errors.Is(err, DigestMismatch) || !strings.Contains(err.Error(), digest) {
		t.Errorf("other content under the same version: got %v, want %s with the old digest", err, DigestMismatch)
	}
	// A stored package needs no registry.
	if _, err := other.Fetch(ctx, ref, want, nil); err != nil {
		t.Error(err)
	}
	for _, s := range []*Store{s, other} {
		if l := leftovers(t, s); len(l) > 0 {
			t.Errorf("Fetch left work folders behind: %q", l)
		}
	}
}

// Without a version, the newest version that runs with the installed Node.js is fetched.
func TestVersionForTheEngine(t *testing.T) {
	t.Parallel()
	name := scope + "/engines"
	for version, node := range map[string]string{"1.0.0": ">=12", "1.1.0": ">=12", "2.0.0": ">=999"} {
		registry.publish(map[string]any{"name": name, "version": version, "engines": map[string]string{"node": node}, "bin": "bin.js"},
			map[string]string{"bin.js": "#!/usr/bin/env node\n"})
	}
	p, err := newStore(t).Fetch(context.Background(), Ref{Kind: NPM, Name: name}, Want{}, nil)
	check(t, err)
	if p.Version != "1.1.0" {
		t.Errorf("got version %s, want 1.1.0", p.Version)
	}
}

// FetchOnce fetches a package without a digest only once. Later it returns the same package, whatever the registry
// offers, and refuses one that was changed on the disk.
func TestFetchOnce(t *testing.T) {
	t.Parallel()
	s, ctx := newStore(t), context.Background()
	name, digest := publishEcho(t)
	ref := Ref{Kind: NPM, Name: name, Version: "1.2.3"}
	first, err := s.FetchOnce(ctx, ref, nil)
	check(t, err)
	if first.Digest != digest {
		t.Fatalf("got the digest %s, want %s", first.Digest, digest)
	}
	registry.publish(map[string]any{"name": name, "version": "1.2.3", "bin": "x.js"}, map[string]string{"x.js": "evil"})
	again, err := s.FetchOnce(ctx, ref, nil)
	check(t, err)
	if again.Digest != digest || again.Tree != first.Tree {
		t.Errorf("the second time: got the digest %s, want %s", again.Digest, digest)
	}
	file := filepath.Join(first.Dir, dirTree, "node_modules", name, "bin.js")
	unsealed(t, filepath.Dir(file), func() error {
		check(t, os.Remove(file))
		return os.WriteFile(file, []byte("evil"), 0o755)
	})
	if _, err := s.FetchOnce(ctx, ref, nil); !errors.Is(err, Tampered) {
		t.Errorf("a changed package: got %v, want %s", err, Tampered)
	}
}

func TestFetchNPMFails(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	name, _ := publishEcho(t)
	liar := scope + "/liar"
	registry.publish(map[string]any{"name": liar, "version": "1.0.0"}, map[string]string{"package.json": `{"name":"honest","version":"1.0.0"}`})
	elsewhere := scope + "/elsewhere"
	registry.publish(map[string]any{"name": elsewhere, "version": "1.0.0", "dependencies": map[string]string{"x": registry.url + "/" + liar + "/-/1.0.0.tgz"}}, nil)
	for _, c := range []struct {
		name string
		ref  Ref
		want Want
		code Code
	}{
		{"no such package", Ref{Kind: NPM, Name: scope + "/none"}, Want{}, NotFound},
		{"no such version", Ref{Kind: NPM, Name: name, Version: "9.9.9"}, Want{}, NotFound},
		{"another digest", Ref{Kind: NPM, Name: name, Version: "1.2.3"}, Want{Digest: digestOf(nil)}, DigestMismatch},
		{"dependencies of another package", Ref{Kind: NPM, Name: name, Version: "1.2.3"}, Want{Dependencies: []byte(`{"node_modules/x":{"version":"1.0.0","integrity":"sha512-x"}}`)}, LockInvalid},
		{"dependencies with an address", Ref{Kind: NPM, Name: name, Version: "1.2.3"}, Want{Dependencies: []byte(`{"node_modules/` + name + `":{"version":"1.2.3","integrity":"sha512-x","resolved":"https://example.com/x.tgz"}}`)}, LockInvalid},
		{"a package with another name in its package.json", Ref{Kind: NPM, Name: liar, Version: "1.0.0"}, Want{}, Unsafe},
		{"a dependency from outside the registry", Ref{Kind: NPM, Name: elsewhere, Version: "1.0.0"}, Want{}, Unsafe},
		{"a name that is an option", Ref{Kind: NPM, Name: "--version"}, Want{}, NotFound},
		{"a version that is a range", Ref{Kind: NPM, Name: name, Version: "^1.0.0"}, Want{}, NotFound},
		{"a remote server", Ref{Kind: Remote, Name: "https://example.com"}, Want{}, Unpinnable},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.Fetch(context.Background(), c.ref, c.want, nil)
			if !errors.Is(err, c.code) || HintOf(err) == "" {
				t.Errorf("got %v (hint %q), want %s", err, HintOf(err), c.code)
			}
		})
	}
	if l := leftovers(t, s); len(l) > 0 {
		t.Errorf("Fetch left work folders behind: %q", l)
	}
}

func TestInstallScripts(t *testing.T) {
	t.Parallel()
	s, ctx := newStore(t), context.Background()
	name := scope + "/scripted"
	dep := scope + "/scripted-dep"
	write := `node -e "const e = process.env; require('fs').writeFileSync('made.txt', [String(e.AMBIT_TEST_SECRET), e.npm_config_git, e.npm_config_node_options].join())"`
	scripts := map[string]string{"postinstall": write}
	registry.publish(map[string]any{"name": dep, "version": "1.0.0", "scripts": scripts, "hasInstallScript": true}, nil)
	registry.publish(
		map[string]any{"name": name, "version": "1.0.0", "bin": "x.js", "scripts": scripts, "hasInstallScript": true, "dependencies": map[string]string{dep: "1.0.0"}},
		map[string]string{"x.js": "1"},
	)
	ref := Ref{Kind: NPM, Name: name, Version: "1.0.0"}
	made := func(p *Package, name string) bool {
		return exists(filepath.Join(p.Dir, dirTree, "node_modules", name, "made.txt"))
	}
	plain, err := s.Fetch(ctx, ref, Want{}, nil)
	check(t, err)
	if made(plain, name) || made(plain, dep) {
		t.Error("an install script ran although none was allowed")
	}
	if got, want := plain.ScriptsNotRun(), []string{name, dep}; !slices.Equal(got, want) {
		t.Errorf("scripts that did not run: got %q, want %q", got, want)
	}
	p, err := s.Fetch(ctx, ref, Want{Digest: plain.Digest, Scripts: []string{dep}}, nil)
	check(t, err)
	if made(p, name) || !made(p, dep) || p.Tree == plain.Tree || len(p.Scripts) != 1 {
		t.Errorf("the allowed install script did not run, or another script ran: %+v", p)
	}
	if got, want := p.ScriptsNotRun(), []string{name}; !slices.Equal(got, want) {
		t.Errorf("scripts that did not run: got %q, want %q", got, want)
	}
	// Child processes of npm get options that override the .npmrc of their folder.
	if b, err := os.ReadFile(filepath.Join(p.Dir, dirTree, "node_modules", dep, "made.txt")); string(b) != "undefined,"+noGit+",--no-warnings" {
		t.Errorf("the install script saw ambit's environment, or did not see npm's options: %q, %v", b, err)
	}
	// The store contains both packages. Open finds each of them by its scripts.
	for want, tree := range map[string]string{"": plain.Tree, dep: p.Tree} {
		w := Want{Digest: p.Digest}
		if want != "" {
			w.Scripts = []string{want}
		}
		if q, err := s.Open(ref, w); err != nil || q.Tree != tree {
			t.Errorf("opening with the scripts %q: got %+v, %v; want the tree %s", want, q, err, tree)
		}
	}
}

// Agents that start together download a package once.
func TestPackageIsDownloadedOnce(t *testing.T) {
	t.Parallel()
	name, digest := publishEcho(t)
	ref := Ref{Kind: NPM, Name: name, Version: "1.2.3"}
	for how, fetch := range map[string]func(*Store, Progress) (*Package, error){
		"pinned": func(s *Store, p Progress) (*Package, error) {
			return s.Fetch(t.Context(), ref, Want{Digest: digest}, p)
		},
		"unpinned": func(s *Store, p Progress) (*Package, error) { return s.FetchOnce(t.Context(), ref, p) },
	} {
		s := newStore(t)
		var downloads atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				_, err := fetch(s, func(step string) {
					if strings.HasPrefix(step, "downloading") {
						downloads.Add(1)
					}
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := downloads.Load(); got != 1 {
			t.Errorf("%s: %d downloads, want 1", how, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done, err := takeTurn(ctx, "x")
	check(t, err)
	cancel()
	if _, err := takeTurn(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left waits for its turn: %v", err)
	}
	done()
	turns.Lock()
	defer turns.Unlock()
	if turns.byKey["x"] != nil {
		t.Error("the turn is kept after its last user")
	}
}

func TestConcurrentFetches(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	name, _ := publishEcho(t)
	var wg sync.WaitGroup
	got := make([]*Package, 2)
	for i := range got {
		wg.Go(func() {
			p, err := s.Fetch(context.Background(), Ref{Kind: NPM, Name: name, Version: "1.2.3"}, Want{}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = p
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, p := range got[1:] {
		if p.Dir != got[0].Dir {
			t.Errorf("two fetches returned two folders: %s and %s", p.Dir, got[0].Dir)
		}
	}
	list, err := os.ReadDir(s.platformDir())
	if err != nil || len(list) != 1 {
		t.Errorf("the store contains %v, %v; want one package", list, err)
	}

	// Fetch replaces a damaged package.
	file := filepath.Join(got[0].Dir, dirTree, "node_modules", filepath.FromSlash(name), "bin.js")
	unsealed(t, filepath.Dir(file), func() error { return os.Remove(file) })
	ref, want := Ref{Kind: NPM, Name: name, Version: "1.2.3"}, Want{Digest: got[0].Digest, Tree: got[0].Tree, Dependencies: got[0].Dependencies}
	if _, err := s.Open(ref, want); !errors.Is(err, Tampered) {
		t.Errorf("opening a damaged package: got %v, want %s", err, Tampered)
	}
	if _, err := s.Fetch(context.Background(), ref, want, nil); err != nil {
		t.Errorf("fetching a damaged package again failed: %v", err)
	}
	if l := leftovers(t, s); len(l) > 0 {
		t.Errorf("Fetch left work folders behind: %q", l)
	}
}

func TestCancelledFetch(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	name, _ := publishEcho(t)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := s.Fetch(ctx, Ref{Kind: NPM, Name: name, Version: "1.2.3"}, Want{}, func(step string) {
		if strings.HasPrefix(step, "installing") {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, FetchFailed) {
		t.Errorf("got the error %v, want %s and %v", err, FetchFailed, context.Canceled)
	}
	if l := leftovers(t, s); len(l) > 0 {
		t.Errorf("Fetch left work folders behind: %q", l)
	}
}

// If a process is killed during a fetch, its work folder stays behind. Other fetches ignore the folder,
// and remove it when it is old.
func TestKilledFetch(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	name, digest := publishEcho(t)
	cmd := helperCommand("killed", s.Dir, name)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatalf("the helper process was not killed: %s", out)
	}
	left := leftovers(t, s)
	if len(left) != 1 {
		t.Fatalf("the killed process left the work folders %q, want one", left)
	}
	ref := Ref{Kind: NPM, Name: name, Version: "1.2.3"}
	if _, err := s.Open(ref, Want{Digest: digest}); !errors.Is(err, NotStored) {
		t.Errorf("opening an incomplete package: got %v, want %s", err, NotStored)
	}
	old := time.Now().Add(-2 * staleWork)
	check(t, os.Chtimes(left[0], old, old))
	_, err := s.Fetch(context.Background(), ref, Want{Digest: digest}, nil)
	check(t, err)
	if l := leftovers(t, s); len(l) > 0 {
		t.Errorf("Fetch did not remove the old work folders %q", l)
	}
}

// helperCommand returns a command that runs this test binary as a helper process.
func helperCommand(what, dir, name string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "AMBIT_PACK_HELPER="+what, "AMBIT_PACK_DIR="+dir, "AMBIT_PACK_NAME="+name)
	return cmd
}

// helper runs in the helper process that helperCommand starts. It fetches a package.
func helper() int {
	s := &Store{Dir: os.Getenv("AMBIT_PACK_DIR")}
	ref := Ref{Kind: NPM, Name: os.Getenv("AMBIT_PACK_NAME"), Version: "1.2.3"}
	var progress Progress
	switch os.Getenv("AMBIT_PACK_HELPER") {
	case "killed":
		progress = func(step string) {
			if strings.HasPrefix(step, "hashing") {
				p, _ := os.FindProcess(os.Getpid())
				_ = p.Kill()
				select {}
			}
		}
	case "full":
		if err := limitFiles(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	_, err := s.Fetch(context.Background(), ref, Want{}, progress)
	fmt.Println(CodeOf(err), err)
	return 0
}

// A full disk results in StoreFailed. The test simulates a full disk with a limit on the size of files.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if limitFiles == nil {
		t.Skip("this system has no limit on the size of files")
	}
	s := newStore(t)
	name := scope + "/large"
	registry.publish(map[string]any{"name": name, "version": "1.2.3", "bin": "x.js"}, map[string]string{"x.js": noise(256 << 10)})
	out, err := helperCommand("full", s.Dir, name).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), string(StoreFailed)) {
		t.Errorf("got the output %s, %v; want %s", out, err, StoreFailed)
	}
	list, err := os.ReadDir(s.platformDir())
	if err != nil || len(list) > 0 {
		t.Errorf("the store contains %v, %v; want nothing", list, err)
	}
}

// noise returns at least n bytes that cannot be compressed well.
func noise(n int) string {
	b := make([]byte, 0, n+32)
	for sum := digestOf(nil); len(b) < n; sum = digestOf([]byte(sum)) {
		b = append(b, sum...)
	}
	return string(b)
}
