package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// stored puts an npm package with the given files into a store. The names of the files are relative to
// the package's own folder. A file is executable if its name ends in +, which is removed.
func stored(t testing.TB, s *Store, files map[string]string) *Package {
	t.Helper()
	f := &fetch{store: s, ref: Ref{Kind: NPM, Name: "@x/server", Version: "1.0.0"}, progress: func(string) {}}
	check(t, f.begin())
	t.Cleanup(func() { removeAll(s.Dir) })
	dir := f.path(dirTree, "node_modules", "@x", "server")
	all := map[string]string{
		"package.json": `{"name":"@x/server","version":"1.0.0","bin":{"server":"cli.js"}}`,
		"cli.js+":      "#!/usr/bin/env node\nconsole.log(process.argv.slice(2).join(' '))\n",
		"lib/a.js":     "exports.a = 1\n",
		"lib/b.js":     "exports.b = 2\n",
	}
	for name, content := range files {
		all[name] = content
	}
	for name, content := range all {
		mode := fs.FileMode(0o644)
		if n, ok := strings.CutSuffix(name, "+"); ok {
			name, mode = n, 0o755
		}
		file := filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check(t, os.WriteFile(file, []byte(content), mode))
	}
	if runtime.GOOS != "windows" {
		check(t, os.MkdirAll(f.path(dirTree, "node_modules", ".bin"), 0o755))
		check(t, os.Symlink("../@x/server/cli.js", f.path(dirTree, "node_modules", ".bin", "server")))
	}
	check(t, os.WriteFile(f.path(fileArchive), []byte("the archive"), 0o644))
	f.record = record{Kind: NPM, Name: "@x/server", Version: "1.0.0", Digest: digestOf([]byte("the archive"))}
	f.deps = []byte(`{}`)
	tree, err := f.finish()
	check(t, err)
	check(t, s.markResolved(folderName(f.record.Digest, tree)))
	p, err := s.Open(f.ref, Want{Digest: f.record.Digest, Tree: tree})
	check(t, err)
	return p
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// unsealed makes a read-only folder writable while it calls the function change.
func unsealed(t *testing.T, dir string, change func() error) {
	t.Helper()
	info, err := os.Stat(dir)
	check(t, err)
	check(t, os.Chmod(dir, 0o755))
	check(t, change())
	check(t, os.Chmod(dir, info.Mode().Perm()))
}

func TestOpenRefusesWhatChanged(t *testing.T) {
	flip := func(name string) error {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		b[len(b)/2] ^= 1
		return errors.Join(os.Chmod(name, 0o644), os.WriteFile(name, b, 0), os.Chmod(name, sealedFile))
	}
	const self = "tree/node_modules/@x/server/"
	for _, c := range []struct {
		name, file string
		change     func(name string) error
		want       string
	}{
		{"one byte of the archive", "package", flip, "different content"},
		{"one byte of a file", self + "lib/a.js", flip, "different content"},
		{"one byte of the dependencies", "dependencies.json", flip, "different content"},
		{"one byte of the listing", "listing", flip, "different content"},
		{"an added file", self + "lib/aa.js", func(n string) error { return os.WriteFile(n, nil, 0o444) }, "was added"},
		{"an added file at the end", "tree/zzz", func(n string) error { return os.WriteFile(n, nil, 0o444) }, "was added"},
		{"an added folder", self + "node_modules", func(n string) error { return os.Mkdir(n, 0o555) }, "was added"},
		{"modules next to the tree", "node_modules", func(n string) error { return os.Mkdir(n, 0o755) }, "was added"},
		{"modules next to the package", "../node_modules", func(n string) error { return os.Mkdir(n, 0o755) }, "was added"},
		{"modules at the top of the store", "../../node_modules", func(n string) error { return os.Symlink("/", n) }, "was added"},
		{"a removed file", self + "lib/b.js", os.Remove, "is missing"},
		{"a removed archive", "package", os.Remove, "different content"},
		{"a removed tree", "tree", func(n string) error { removeAll(n); return nil }, "cannot be read"},
		{"an executable mode", self + "lib/a.js", func(n string) error { return os.Chmod(n, 0o555) }, "is now an executable file"},
		{"a writable mode", self + "cli.js", func(n string) error { return os.Chmod(n, 0o755) }, "has the mode -rwxr-xr-x"},
		{"a setuid mode", self + "cli.js", func(n string) error { return os.Chmod(n, 0o555|fs.ModeSetuid) }, "has the mode u"},
		{"a setgid mode", self + "cli.js", func(n string) error { return os.Chmod(n, 0o555|fs.ModeSetgid) }, "has the mode g"},
		{"a sticky mode", self + "cli.js", func(n string) error { return os.Chmod(n, 0o555|fs.ModeSticky) }, "has the mode t"},
		{"a folder's mode", self + "lib", func(n string) error { return os.Chmod(n, 0o777) }, "has the mode drwxrwxrwx"},
		{"a file that became a link to the same content", self + "lib/b.js", func(n string) error {
			elsewhere := filepath.Join(t.TempDir(), "b.js")
			return errors.Join(os.WriteFile(elsewhere, []byte("exports.b = 2\n"), 0o444), os.Remove(n), os.Symlink(elsewhere, n))
		}, "is now a symbolic link"},
		{"a link with another target", "tree/node_modules/.bin/server", func(n string) error {
			return errors.Join(os.Remove(n), os.Symlink("../@x/server/lib/a.js", n))
		}, "is a link with a different target"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && (strings.Contains(c.name, "mode") || strings.Contains(c.name, "link")) {
				t.Skip("Windows has no modes, and links need a privilege")
			}
			s := &Store{Dir: t.TempDir()}
			p := stored(t, s, nil)
			name := filepath.Join(p.Dir, filepath.FromSlash(c.file))
			unsealed(t, filepath.Dir(name), func() error { return c.change(name) })
			for _, want := range []Want{{Digest: p.Digest, Tree: p.Tree}, {Digest: p.Digest}} {
				_, err := s.Open(Ref{Kind: NPM, Name: "@x/server"}, want)
				var e *Error
				if !errors.As(err, &e) || e.Code != Tampered || e.File != c.file || !strings.Contains(e.Detail, c.want) || e.Hint == "" {
					t.Errorf("got the error %v, want one about the file %s with the reason %q", err, c.file, c.want)
				}
			}
		})
	}
}

func TestOpen(t *testing.T) {
	home := t.TempDir()
	s := &Store{Dir: filepath.Join(home, "packages")}
	p := stored(t, s, nil)
	ref := Ref{Kind: NPM, Name: "@x/server", Version: "1.0.0"}
	for _, c := range []struct {
		name string
		ref  Ref
		want Want
		code Code
	}{
		{"by digest", ref, Want{Digest: p.Digest}, ""},
		{"by digest and tree", ref, Want{Digest: p.Digest, Tree: p.Tree}, ""},
		{"by digest and dependencies", ref, Want{Digest: p.Digest, Dependencies: []byte(`{}`)}, ""},
		{"without a digest", ref, Want{}, NotStored},
		{"another digest", ref, Want{Digest: digestOf(nil)}, NotStored},
		{"another tree", ref, Want{Digest: p.Digest, Tree: digestOf(nil)}, NotStored},
		{"other dependencies", ref, Want{Digest: p.Digest, Dependencies: []byte(`{"a":1}`)}, NotStored},
		{"with scripts", ref, Want{Digest: p.Digest, Scripts: []string{"x"}}, NotStored},
		{"another version", Ref{Kind: NPM, Name: "@x/server", Version: "1.0.1"}, Want{Digest: p.Digest}, VersionConflict},
		{"another name", Ref{Kind: NPM, Name: "server"}, Want{Digest: p.Digest}, DigestMismatch},
		{"another program", Ref{Kind: NPM, Name: "@x/server", Bin: "servre"}, Want{Digest: p.Digest}, NoProgram},
		{"not a package", Ref{Kind: Program, Name: "ls"}, Want{Digest: p.Digest}, Unpinnable},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := s.Open(c.ref, c.want); CodeOf(err) != c.code || (err == nil) != (c.code == "") {
				t.Errorf("got %v, want %q", err, c.code)
			}
		})
	}
	if _, err := (&Store{Dir: filepath.Join(t.TempDir(), "none")}).Open(ref, Want{Digest: p.Digest}); !errors.Is(err, NotStored) {
		t.Errorf("a missing store: got %v, want %s", err, NotStored)
	}
	argv := p.Argv([]string{"a", "b"})
	if len(argv) != 4 || !filepath.IsAbs(argv[0]) || argv[1] != filepath.Join(p.Dir, "tree/node_modules/@x/server/cli.js") || argv[3] != "b" {
		t.Errorf("got the command %q, want an absolute path, the program, a and b", argv)
	}
	// Strays lists the node_modules folders above the store.
	above := filepath.Join(home, "node_modules")
	check(t, os.Mkdir(above, 0o700))
	p, err := s.Open(ref, Want{Digest: p.Digest})
	check(t, err)
	if len(p.Strays) == 0 || p.Strays[0] != above {
		t.Errorf("got the strays %q, want %q", p.Strays, above)
	}
}

// The digest of a tree depends on the names and contents of its files. It does not depend on the time or
// the folder of the installation.
func TestTreeDigest(t *testing.T) {
	a := stored(t, &Store{Dir: t.TempDir()}, nil)
	b := stored(t, &Store{Dir: t.TempDir()}, nil)
	if a.Tree != b.Tree {
		t.Error("equal files result in different digests")
	}
	seen := map[string]string{a.Tree: "nothing"}
	for name, files := range map[string]map[string]string{
		"content": {"lib/a.js": "x"},
		"a name":  {"lib/c.js": "exports.b = 2\n"},
		"a line":  {"lib/a\nf 00 b": "x"},
		"a quote": {`lib/"`: "x"},
	} {
		if runtime.GOOS == "windows" && (name == "a line" || name == "a quote") {
			continue
		}
		p := stored(t, &Store{Dir: t.TempDir()}, files)
		if seen[p.Tree] != "" {
			t.Errorf("changing %s and changing %s result in the same digest", name, seen[p.Tree])
		}
		seen[p.Tree] = name
	}
}

// finish refuses a tree that differs from the lock file. npmScripts does not run the scripts of a package that is not a
// dependency.
func TestFinishRefuses(t *testing.T) {
	f := &fetch{store: newStore(t), ref: Ref{Kind: NPM, Name: "x"}, want: Want{Tree: digestOf(nil), Scripts: []string{"stranger"}}, progress: func(string) {}}
	check(t, f.begin())
	check(t, os.Mkdir(f.path(dirTree), 0o700))
	if _, err := f.finish(); !errors.Is(err, DigestMismatch) || HintOf(err) == "" {
		t.Errorf("another tree: got %v, want %s with a hint", err, DigestMismatch)
	}
	f.deps = []byte(`{"node_modules/not-a-stranger":{"version":"1.0.0"}}`)
	if err := f.npmScripts(f.work, nil); err != nil || len(f.want.Scripts) > 0 {
		t.Errorf("scripts of a package that is not a dependency: %v, and the scripts %q are kept", err, f.want.Scripts)
	}
}

func TestSealRefuses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("on Windows, creating links needs a privilege")
	}
	for name, target := range map[string]string{
		"a link out of the tree": "../../secret", "an absolute link": "/etc/passwd", "a broken link": "none",
		"a link out of the tree through another link": "out/../../secret",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root := filepath.Join(dir, "tree")
			check(t, os.MkdirAll(filepath.Join(root, "a"), 0o755))
			check(t, os.WriteFile(filepath.Join(dir, "secret"), nil, 0o600))
			check(t, os.Symlink("..", filepath.Join(root, "a", "out")))
			check(t, os.Symlink(target, filepath.Join(root, "a", "zlink")))
			var e *Error
			if err := seal(root); !errors.As(err, &e) || e.Code != Unsafe || e.File != "a/zlink" {
				t.Errorf("got the error %v, want %s for a/zlink", err, Unsafe)
			}
		})
	}
}

func TestOpenLocal(t *testing.T) {
	dir := t.TempDir()
	manifest := filepath.Join(dir, "agent.json")
	check(t, os.WriteFile(filepath.Join(dir, "server.mjs"), []byte("1"), 0o644))
	ref := Ref{Kind: File, Name: "server.mjs", Runtime: "node", Flags: []string{"--no-warnings"}}
	p, err := OpenLocal(ref, manifest)
	check(t, err)
	if p.Digest != digestOf([]byte("1")) {
		t.Errorf("got the digest %s, want %s", p.Digest, digestOf([]byte("1")))
	}
	if argv := p.Argv([]string{"x"}); !filepath.IsAbs(argv[0]) || argv[1] != "--no-warnings" || argv[2] != filepath.Join(dir, "server.mjs") || argv[3] != "x" {
		t.Errorf("got the command %q, want node, its option, the file and x", argv)
	}
	if err := p.Compare(Want{Digest: p.Digest}); err != nil {
		t.Error(err)
	}
	check(t, os.WriteFile(filepath.Join(dir, "server.mjs"), []byte("2"), 0o644))
	changed, err := OpenLocal(ref, manifest)
	check(t, err)
	if err := changed.Compare(p.Want()); !errors.Is(err, Tampered) || HintOf(err) == "" {
		t.Errorf("a changed file: got %v, want %s with a hint", err, Tampered)
	}
	for _, c := range []struct {
		name string
		ref  Ref
		code Code
	}{
		{"a missing file", Ref{Kind: File, Name: "none.mjs", Runtime: "node"}, RuntimeMissing},
		{"a folder", Ref{Kind: File, Name: "."}, NotFound},
		{"a missing interpreter", Ref{Kind: File, Name: "server.mjs", Runtime: "no-such-program"}, RuntimeMissing},
		{"a missing program", Ref{Kind: Program, Name: "no-such-program"}, RuntimeMissing},
		{"a package", Ref{Kind: NPM, Name: "x"}, Unpinnable},
	} {
		if _, err := OpenLocal(c.ref, manifest); !errors.Is(err, c.code) || HintOf(err) == "" {
			t.Errorf("%s: got %v, want %s with a hint", c.name, err, c.code)
		}
	}
	if p, err := OpenLocal(Ref{Kind: Program, Name: "node"}, manifest); err != nil || !filepath.IsAbs(p.Argv(nil)[0]) {
		t.Errorf("a program on PATH: %v", err)
	}
}

func TestPrograms(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		bin   string
		want  string // the program's path below the package, or a part of the error
	}{
		{"one program", map[string]string{"package.json": `{"name":"@x/server","version":"1.0.0","bin":"./lib/a.js"}`}, "", "lib/a.js"},
		{"one program, requested by name", map[string]string{"package.json": `{"name":"@x/server","version":"1.0.0","bin":"lib/a.js"}`}, "server", "lib/a.js"},
		{"several, one with the package's name", map[string]string{"package.json": `{"name":"@x/server","bin":{"a":"lib/a.js","server":"cli.js"}}`}, "", "cli.js"},
		{"several names for one program", map[string]string{"package.json": `{"name":"@x/server","bin":{"a":"cli.js","b":"cli.js"}}`}, "", "cli.js"},
		{"several, one requested by name", map[string]string{"package.json": `{"name":"@x/server","bin":{"a":"lib/a.js","b":"cli.js"}}`}, "a", "lib/a.js"},
		{"several", map[string]string{"package.json": `{"name":"@x/server","bin":{"a":"lib/a.js","b":"cli.js"}}`}, "", `several programs: "a" and "b"`},
		{"none", map[string]string{"package.json": `{"name":"@x/server"}`}, "", "has no program"},
		{"a program outside the package", map[string]string{"package.json": `{"name":"@x/server","bin":"../../../x.js"}`}, "", "outside the package"},
		{"a missing program", map[string]string{"package.json": `{"name":"@x/server","bin":"gone.js"}`}, "", "cannot be read"},
		{"neither a script nor machine code", map[string]string{"package.json": `{"name":"@x/server","bin":"data"}`, "data": "x"}, "", "neither a script"},
		{"machine code", map[string]string{"package.json": `{"name":"@x/server","bin":"data"}`, "data+": "\x7fELF"}, "", "data"},
		{"a missing interpreter", map[string]string{"package.json": `{"name":"@x/server","bin":"data"}`, "data": "#!/usr/bin/env no-such-program\n"}, "", "is not installed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "node_modules/@x/server")
			c.files["cli.js"], c.files["lib/a.js"] = "#!/usr/bin/env -S node --no-warnings\n", "1"
			for name, content := range c.files {
				file := filepath.Join(dir, strings.TrimSuffix(name, "+"))
				check(t, os.MkdirAll(filepath.Dir(file), 0o755))
				check(t, os.WriteFile(file, []byte(content), 0o755))
			}
			argv, err := nodeProgram(filepath.Join(dir, "../../.."), Ref{Kind: NPM, Name: "@x/server", Bin: c.bin})
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			if file := argv[len(argv)-1]; file != filepath.Join(dir, c.want) {
				t.Errorf("got %q, want %q", argv, c.want)
			}
			if c.want == "cli.js" && argv[1] != "--no-warnings" {
				t.Errorf("the interpreter's option in the first line is missing: %q", argv)
			}
		})
	}
}

// BenchmarkOpen measures how long opening a package takes when a server starts. The package has 4,000
// files and 36 MiB.
func BenchmarkOpen(b *testing.B) {
	files := map[string]string{}
	r := rand.NewChaCha8([32]byte{})
	for i := range 4000 {
		content := make([]byte, 9<<10)
		r.Read(content)
		files[fmt.Sprintf("lib/%d/%d.js", i/50, i)] = string(content)
	}
	s := &Store{Dir: b.TempDir()}
	p := stored(b, s, files)
	for b.Loop() {
		if _, err := s.Open(Ref{Kind: NPM, Name: "@x/server"}, Want{Digest: p.Digest, Tree: p.Tree}); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(4000 * 9 << 10)
}

// A header is one line, so a line break in a name cannot forge a line of the listing.
func TestHeaderIsOneLine(t *testing.T) {
	h, err := json.Marshal(record{Name: "a\nf 00 \"x\""})
	if err != nil || bytes.ContainsRune(h, '\n') {
		t.Errorf("the header contains a line break: %q, %v", h, err)
	}
}
