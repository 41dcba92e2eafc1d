package pack

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// needPip skips the test if there is no Python with pip. In CI, the test fails instead.
func needPip(t *testing.T) {
	t.Helper()
	out, err := exec.Command("python3", "-m", "pip", "--version").CombinedOutput()
	if err == nil {
		return
	}
	message := fmt.Sprintf("this test needs python3 with pip (on Debian: apt-get install python3 python3-pip): %v %s", err, out)
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	t.Skip(message)
}

// wheel returns a wheel with the given files.
func wheel(t *testing.T, name, version, metadata string, files map[string]string) []byte {
	t.Helper()
	info := name + "-" + version + ".dist-info/"
	all := maps.Clone(files)
	all[info+"METADATA"] = "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n" + metadata
	all[info+"WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
	var record strings.Builder
	for _, n := range slices.Sorted(maps.Keys(all)) {
		record.WriteString(n + ",,\n")
	}
	all[info+"RECORD"] = record.String() + info + "RECORD,,\n"
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, n := range slices.Sorted(maps.Keys(all)) {
		w, err := z.Create(n)
		check(t, err)
		_, err = w.Write([]byte(all[n]))
		check(t, err)
	}
	check(t, z.Close())
	return b.Bytes()
}

// pythonIndex starts a Python index and makes pip use it. The returned function adds a wheel to the
// index.
func pythonIndex(t *testing.T) (add func(file string, content []byte)) {
	t.Helper()
	var mu sync.Mutex
	wheels := map[string][]byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if file, ok := strings.CutPrefix(req.URL.Path, "/files/"); ok {
			_, _ = w.Write(wheels[file])
			return
		}
		name := strings.Trim(strings.TrimPrefix(req.URL.Path, "/simple/"), "/")
		w.Header().Set("Content-Type", "text/html")
		found := false
		for file := range wheels {
			if own, _, err := wheelName(file); err == nil && samePython(own, name) {
				found = true
				fmt.Fprintf(w, "<a href=\"/files/%s\">%s</a>\n", file, file)
			}
		}
		if !found {
			http.NotFound(w, req)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("PIP_INDEX_URL", "")
	t.Setenv("UV_DEFAULT_INDEX", server.URL+"/simple/")
	t.Setenv("PIP_EXTRA_INDEX_URL", "")
	t.Setenv("PIP_FIND_LINKS", "")
	t.Setenv("PIP_NO_INDEX", "")
	t.Setenv("NO_PROXY", "127.0.0.1")
	return func(file string, content []byte) {
		mu.Lock()
		defer mu.Unlock()
		wheels[file] = content
	}
}

func TestFetchPython(t *testing.T) {
	needPip(t)
	ctx, s := context.Background(), newStore(t)
	add := pythonIndex(t)
	dep := func(version, says string) {
		add("ambit_dep-"+version+"-py3-none-any.whl", wheel(t, "ambit_dep", version, "", map[string]string{"ambit_dep.py": "version = '" + says + "'\n"}))
	}
	dep("1.0.0", "1.0.0")
	dep("1.1.0", "1.1.0")
	own := wheel(t, "ambit_echo", "1.2.3", "Requires-Dist: ambit-dep>=1.0\n", map[string]string{
		"ambit_echo/__init__.py":                        "",
		"ambit_echo/cli.py":                             "import sys, ambit_dep\nclass App:\n    @staticmethod\n    def main():\n        print(ambit_dep.version, sys.argv)\n        exit(3)\n",
		"ambit_echo-1.2.3.dist-info/entry_points.txt":   "[console_scripts]\nambit-echo = ambit_echo.cli:App.main\nother = ambit_echo.cli:App.main\n[gui_scripts]\nwindow = x:y\n",
		"ambit_echo-1.2.3.data/data/share/x.txt":        "x",
		"ambit_echo-1.2.3.data/purelib/ambit_echo/p.py": "",
	})
	add("ambit_echo-1.2.3-py3-none-any.whl", own)
	ref := Ref{Kind: PyPI, Name: "ambit-echo", Version: "1.2.3"}
	p, err := s.Fetch(ctx, ref, Want{}, nil)
	check(t, err)
	if p.Digest != digestOf(own) {
		t.Errorf("got the digest %s, want %s", p.Digest, digestOf(own))
	}
	for _, file := range []string{"share/x.txt", "ambit_echo/p.py"} {
		if !exists(filepath.Join(p.Dir, dirTree, file)) {
			t.Errorf("the tree does not contain %s", file)
		}
	}
	// The program runs isolated: it does not import a module of the same name from another folder.
	evil := t.TempDir()
	check(t, os.WriteFile(filepath.Join(evil, "ambit_dep.py"), []byte("version = 'evil'\n"), 0o600))
	argv := p.Argv([]string{"a"})
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = evil, append(os.Environ(), "PYTHONPATH="+evil)
	out, err := cmd.Output()
	if got := strings.TrimSpace(string(out)); got != "1.1.0 ['ambit-echo', 'a']" || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("the program printed %q (error %v), want the dependency's version and the arguments", got, err)
	}
	if _, err := s.Open(Ref{Kind: PyPI, Name: "Ambit.Echo", Bin: "other"}, Want{Digest: p.Digest}); err != nil {
		t.Errorf("opening another program of the package failed: %v", err)
	}
	if l := leftovers(t, s); len(l) > 0 {
		t.Errorf("Fetch left work folders behind: %q", l)
	}

	// A newer version of the dependency was published. Fetching with the list of dependencies still
	// results in the same tree in an empty store.
	dep("1.9.0", "evil")
	want := Want{Digest: p.Digest, Tree: p.Tree, Dependencies: p.Dependencies}
	q, err := newStore(t).Fetch(ctx, ref, want, nil)
	check(t, err)
	if q.Tree != p.Tree {
		t.Errorf("got the tree %s, want %s", q.Tree, p.Tree)
	}
	// Fetch refuses the package if the index serves other content under the same version.
	dep("1.1.0", "evil")
	if _, err := newStore(t).Fetch(ctx, ref, want, nil); !errors.Is(err, DigestMismatch) {
		t.Errorf("a changed dependency: got %v, want %s", err, DigestMismatch)
	}
	if _, err := newStore(t).Fetch(ctx, ref, Want{Digest: digestOf(nil)}, nil); !errors.Is(err, DigestMismatch) {
		t.Errorf("another digest: got %v, want %s", err, DigestMismatch)
	}
	if _, err := newStore(t).Fetch(ctx, Ref{Kind: PyPI, Name: "ambit-echo", Version: "9.9"}, Want{}, nil); !errors.Is(err, NotFound) {
		t.Errorf("an unknown version: got %v, want %s", err, NotFound)
	}
	if _, err := newStore(t).Fetch(ctx, Ref{Kind: PyPI, Name: "ambit-echo", Version: "1.2.3", Runtime: "python9.9"}, Want{}, nil); !errors.Is(err, RuntimeMissing) {
		t.Errorf("an unknown Python: got %v, want %s", err, RuntimeMissing)
	}
}

func TestUnpackRefuses(t *testing.T) {
	for name, entry := range map[string]string{
		"a parent folder": "../evil.py", "an absolute path": "/evil.py", "a parent folder through data": "x-1.data/data/../../../evil.py",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "x-1.0-py3-none-any.whl")
			check(t, os.WriteFile(file, wheel(t, "x", "1.0", "", map[string]string{entry: "evil"}), 0o600))
			check(t, os.Mkdir(filepath.Join(dir, "tree"), 0o700))
			root, err := os.OpenRoot(filepath.Join(dir, "tree"))
			check(t, err)
			defer root.Close()
			left := int64(maxUnpacked)
			if err := unpack(root, file, &left); !errors.Is(err, Unsafe) {
				t.Errorf("got the error %v, want %s", err, Unsafe)
			}
			left = 3
			if err := unpack(root, file, &left); !errors.Is(err, Unsafe) {
				t.Errorf("a wheel that is too large: got %v, want %s", err, Unsafe)
			}
		})
	}
}

func TestWheelName(t *testing.T) {
	for file, want := range map[string]string{
		"a_b-1.0-py3-none-any.whl":                              "a_b 1.0",
		"a.b-1!2.0rc1+x.1-1-cp311-cp311-manylinux_2_17_x86.whl": "a.b 1!2.0rc1+x.1",
		"a-1.0.tar.gz":                 "",
		"-r-1.0-py3-none-any.whl":      "",
		"a b-1.0-py3-none-any.whl":     "",
		"a-1.0 -r x-py3-none-any.whl":  "",
		"../a-1.0-py3-none-any.whl":    "",
		"a-1.0\n-r-py3-none-any-x.whl": "",
	} {
		name, version, err := wheelName(file)
		if got := strings.TrimSpace(name + " " + version); got != want || (err == nil) != (want != "") {
			t.Errorf("wheelName(%q): got %q, %v; want %q", file, got, err, want)
		}
	}
}
