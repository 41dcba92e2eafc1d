package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// newStore is an empty store that leaves nothing behind.
func newStore(t *testing.T) *Store {
	s := &Store{Dir: t.TempDir()}
	t.Cleanup(func() { removeAll(s.Dir) })
	return s
}

// leftovers are work folders in a store.
func leftovers(t *testing.T, s *Store) []string {
	found, err := filepath.Glob(filepath.Join(s.platformDir(), workPrefix+"*"))
	check(t, err)
	return found
}

// publishEcho publishes a server with a dependency in a range, and returns its
// name and digest.
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

// Dependencies from a lock are only for callers with that lock: by the
// digest alone the package comes with what was chosen here.
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
		t.Errorf("by the digest alone: %v", err)
	}
	registry.publish(map[string]any{"name": name + "-dep", "version": "1.9.0"}, map[string]string{"index.js": "module.exports = 'newer'"})
	ours, err := s.Fetch(ctx, ref, Want{Digest: digest}, nil)
	check(t, err)
	if ours.Lockfile == theirs.Lockfile {
		t.Error("it came with the dependencies of a lock")
	}
	for name, want := range map[string]struct {
		of   Want
		tree string
	}{"by the digest": {Want{Digest: digest}, ours.Tree}, "by the lock": {want, theirs.Tree}} {
		if p, err := s.Open(ref, want.of); err != nil || p.Tree != want.tree {
			t.Errorf("%s: %v, %v", name, p, err)
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
		t.Errorf("got %+v, digest %s", p, digest)
	}
	if len(steps) != 3 {
		t.Errorf("steps: %q", steps)
	}
	argv := p.Argv([]string{"a", "b"})
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if string(out) != "dep 1.1.0 a b\n" {
		t.Errorf("it says %q, %v", out, err)
	}
	if bytes.Contains(p.Dependencies, []byte("127.0.0.1")) || bytes.Contains(p.Dependencies, []byte("resolved")) {
		t.Errorf("the dependencies say where they came from: %s", p.Dependencies)
	}

	// A newer dependency appears; who has the lock still gets the old one, and
	// the very same tree, from an empty store.
	registry.publish(map[string]any{"name": name + "-dep", "version": "1.9.0"}, map[string]string{"index.js": "module.exports = 'evil'"})
	other := newStore(t)
	want := Want{Digest: p.Digest, Tree: p.Tree, Dependencies: p.Dependencies}
	ref := Ref{Kind: NPM, Name: name, Version: "1.2.3"}
	q, err := other.Fetch(ctx, ref, want, nil)
	check(t, err)
	if q.Tree != p.Tree || q.Lockfile != p.Lockfile {
		t.Errorf("got the tree %s, want %s", q.Tree, p.Tree)
	}

	// The registry serves other bytes under the same version.
	registry.publish(map[string]any{"name": name, "version": "1.2.3", "bin": "x.js"}, map[string]string{"x.js": "evil"})
	if _, err := newStore(t).Fetch(ctx, ref, want, nil); !errors.Is(err, DigestMismatch) || !strings.Contains(err.Error(), digest) {
		t.Errorf("a rug pulled: %v", err)
	}
	// A stored package needs no registry.
	if _, err := other.Fetch(ctx, ref, want, nil); err != nil {
		t.Error(err)
	}
	for _, s := range []*Store{s, other} {
		if l := leftovers(t, s); len(l) > 0 {
			t.Errorf("left behind: %q", l)
		}
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
		{"a package that calls itself otherwise", Ref{Kind: NPM, Name: liar, Version: "1.0.0"}, Want{}, Unsafe},
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
		t.Errorf("left behind: %q", l)
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
		t.Error("a script ran")
	}
	p, err := s.Fetch(ctx, ref, Want{Digest: plain.Digest, Scripts: []string{dep}}, nil)
	check(t, err)
	if made(p, name) || !made(p, dep) || p.Tree == plain.Tree || len(p.Scripts) != 1 {
		t.Errorf("the scripts of the one that may did not run, or others did: %+v", p)
	}
	// Child processes of npm get options that override the .npmrc of their folder.
	if b, err := os.ReadFile(filepath.Join(p.Dir, dirTree, "node_modules", dep, "made.txt")); string(b) != "undefined,"+noGit+",--no-warnings" {
		t.Errorf("the script saw our environment, or not npm's: %q, %v", b, err)
	}
	// Both stay in the store; each is found by what it is.
	for want, tree := range map[string]string{"": plain.Tree, dep: p.Tree} {
		w := Want{Digest: p.Digest}
		if want != "" {
			w.Scripts = []string{want}
		}
		if q, err := s.Open(ref, w); err != nil || q.Tree != tree {
			t.Errorf("scripts %q: %+v, %v", want, q, err)
		}
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
			t.Errorf("two packages: %s and %s", p.Dir, got[0].Dir)
		}
	}
	list, err := os.ReadDir(s.platformDir())
	if err != nil || len(list) != 1 {
		t.Errorf("in the store: %v, %v", list, err)
	}

	// A damaged package makes way for a good one.
	file := filepath.Join(got[0].Dir, dirTree, "node_modules", filepath.FromSlash(name), "bin.js")
	unsealed(t, filepath.Dir(file), func() error { return os.Remove(file) })
	ref, want := Ref{Kind: NPM, Name: name, Version: "1.2.3"}, Want{Digest: got[0].Digest, Tree: got[0].Tree, Dependencies: got[0].Dependencies}
	if _, err := s.Open(ref, want); !errors.Is(err, Tampered) {
		t.Errorf("damaged: %v", err)
	}
	if _, err := s.Fetch(context.Background(), ref, want, nil); err != nil {
		t.Errorf("repaired: %v", err)
	}
	if l := leftovers(t, s); len(l) > 0 {
		t.Errorf("left behind: %q", l)
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
		t.Errorf("got %v", err)
	}
	if l := leftovers(t, s); len(l) > 0 {
		t.Errorf("left behind: %q", l)
	}
}

// A process that is killed in the middle leaves work behind. It is in nobody's
// way, and is gone once it is old.
func TestKilledFetch(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	name, digest := publishEcho(t)
	cmd := helperCommand("killed", s.Dir, name)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatalf("the helper lived: %s", out)
	}
	left := leftovers(t, s)
	if len(left) != 1 {
		t.Fatalf("left behind: %q", left)
	}
	ref := Ref{Kind: NPM, Name: name, Version: "1.2.3"}
	if _, err := s.Open(ref, Want{Digest: digest}); !errors.Is(err, NotStored) {
		t.Errorf("half a package: %v", err)
	}
	old := time.Now().Add(-2 * staleWork)
	check(t, os.Chtimes(left[0], old, old))
	_, err := s.Fetch(context.Background(), ref, Want{Digest: digest}, nil)
	check(t, err)
	if l := leftovers(t, s); len(l) > 0 {
		t.Errorf("left behind: %q", l)
	}
}

func helperCommand(what, dir, name string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "AMBIT_PACK_HELPER="+what, "AMBIT_PACK_DIR="+dir, "AMBIT_PACK_NAME="+name)
	return cmd
}

// helper is what this test binary does when it is started by a test.
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

// No file can be larger than a few kilobytes: to npm that is a full disk.
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
		t.Errorf("it says %s, %v", out, err)
	}
	list, err := os.ReadDir(s.platformDir())
	if err != nil || len(list) > 0 {
		t.Errorf("in the store: %v, %v", list, err)
	}
}

// noise does not compress.
func noise(n int) string {
	b := make([]byte, 0, n+32)
	for sum := digestOf(nil); len(b) < n; sum = digestOf([]byte(sum)) {
		b = append(b, sum...)
	}
	return string(b)
}
