//go:build prove && linux

package main

import (
	"archive/tar"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// TestInstalled installs every package of a release, and runs ambit from it.
func TestInstalled(t *testing.T) {
	sources, dist := filepath.Join(t.TempDir(), "sources"), filepath.Join(t.TempDir(), "dist")
	copySources(t, filepath.Join("..", ".."), sources)
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	t.Chdir(sources)
	if err := run("v0.1.0-test", dist, []string{"linux/" + runtime.GOARCH, "windows/arm64"}); err != nil {
		t.Fatal(err)
	}
	t.Run("npm", func(t *testing.T) { testNpm(t, dist) })
	t.Run("deb", func(t *testing.T) { testDeb(t, dist) })
	t.Run("image", func(t *testing.T) { testImage(t, dist) })
	t.Run("completions", func(t *testing.T) { testCompletions(t, dist) })
}

// only returns the one file of a release that matches a pattern.
func only(t *testing.T, dist, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s matches %q, %v; want one file", pattern, found, err)
	}
	return found[0]
}

// npmRegistry serves the npm packages of a release in the way that npm expects: a document for each package, which
// contains the address and the digest of the archive.
func npmRegistry(t *testing.T, dist string) *httptest.Server {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join(dist, "*.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]string{}
	for _, archive := range archives {
		var p npmPackage
		if err := json.Unmarshal(npmFiles(t, archive)["package/package.json"], &p); err != nil {
			t.Fatal(err)
		}
		packages[p.Name] = archive
	}
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("/archives/", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(dist, filepath.Base(r.URL.Path)))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		archive := packages[strings.TrimPrefix(r.URL.Path, "/")] // npm escapes the slash in the name; Path is unescaped
		if archive == "" {
			http.NotFound(w, r)
			return
		}
		var version map[string]any
		text, err := os.ReadFile(archive)
		if err == nil {
			err = json.Unmarshal(npmFiles(t, archive)["package/package.json"], &version)
		}
		if err != nil {
			t.Error(err)
			return
		}
		sum := sha512.Sum512(text)
		version["dist"] = map[string]string{
			"tarball":   server.URL + "/archives/" + filepath.Base(archive),
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}
		number := version["version"].(string)
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(map[string]any{
			"name": version["name"], "dist-tags": map[string]string{"latest": number},
			"versions": map[string]any{number: version},
		}); err != nil {
			t.Error(err)
		}
	})
	return server
}

func testNpm(t *testing.T, dist string) {
	registry, prefix := npmRegistry(t, dist), t.TempDir()
	npm := exec.Command("npm", "install", "--global", "--prefix", prefix, "--registry", registry.URL,
		"--cache", t.TempDir(), "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "@ambit-run/ambit")
	npm.Dir = t.TempDir()
	output(t, npm)
	ambit := filepath.Join(prefix, "bin", "ambit")
	if out := output(t, exec.Command(ambit, "version")); !strings.Contains(out, "ambit v0.1.0") {
		t.Errorf("ambit version printed %q, want the released version", out)
	}
	err := exec.Command(ambit, "no-such-verb").Run()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 {
		t.Errorf("an unknown verb ended with %v, want exit code 2", err)
	}
	installed, err := filepath.Glob(filepath.Join(prefix, "lib", "node_modules", "@ambit-run", "ambit", "node_modules", "@ambit-run", "*"))
	if err != nil || len(installed) != 1 {
		t.Errorf("npm installed the binaries %q, %v; want only the one for this platform", installed, err)
	}
}

// testDeb installs the Debian package with dpkg into an empty root. If the test does not run as root, dpkg cannot set
// the owners of files, so the package is only unpacked.
func testDeb(t *testing.T, dist string) {
	deb, root := only(t, dist, "*.deb"), t.TempDir()
	if os.Getuid() != 0 {
		output(t, exec.Command("dpkg-deb", "--extract", deb, root))
	} else {
		for _, dir := range []string{"info", "updates", "triggers"} {
			if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{"status", "available"} {
			if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		output(t, exec.Command("dpkg", "--root="+root, "--install", deb))
		if out := output(t, exec.Command("dpkg", "--root="+root, "--status", "ambit")); !strings.Contains(out, "install ok installed") {
			t.Errorf("dpkg says: %s", out)
		}
	}
	if out := output(t, exec.Command(filepath.Join(root, "usr/bin/ambit"), "version")); !strings.Contains(out, "ambit v0.1.0") {
		t.Errorf("ambit version printed %q, want the released version", out)
	}
	if out := output(t, exec.Command("gzip", "-dc", filepath.Join(root, "usr/share/man/man1/ambit.1.gz"))); !strings.HasPrefix(out, ".TH AMBIT 1 \"2026-01-01\"") {
		t.Errorf("the manual begins with %.40q, want its title with the date of the release", out)
	}
	if os.Getuid() == 0 {
		output(t, exec.Command("dpkg", "--root="+root, "--purge", "ambit"))
		if _, err := os.Lstat(filepath.Join(root, "usr/bin/ambit")); err == nil {
			t.Error("ambit is still there after dpkg --purge")
		}
	}
}

// testImage unpacks the image and starts its command in a sandbox that contains nothing else.
func testImage(t *testing.T, dist string) {
	archive, err := os.Open(only(t, dist, "*-oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	dir, root := t.TempDir(), t.TempDir()
	unpack(t, archive, dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil || len(list.Manifests) != 1 {
		t.Fatalf("the layout has the manifests %+v, %v; want one index", list, err)
	}
	if index, err = index.ImageIndex(list.Manifests[0].Digest); err != nil {
		t.Fatal(err)
	}
	if list, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	if want := (v1.Platform{OS: "linux", Architecture: runtime.GOARCH}); len(list.Manifests) != 1 || !list.Manifests[0].Platform.Equals(want) {
		t.Fatalf("the image is for %+v, want %v", list.Manifests, want)
	}
	image, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(image)
	defer files.Close()
	unpack(t, files, root)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	start := func(arguments ...string) *exec.Cmd {
		args := []string{"--unshare-all", "--die-with-parent", "--clearenv", "--bind", root, "/", "--proc", "/proc", "--dev", "/dev", "--chdir", config.Config.WorkingDir}
		for _, pair := range config.Config.Env {
			name, value, _ := strings.Cut(pair, "=")
			args = append(args, "--setenv", name, value)
		}
		args = append(append(args, config.Config.Entrypoint...), arguments...)
		return exec.Command("bwrap", args...)
	}
	if out := output(t, start("version")); !strings.Contains(out, "ambit v0.1.0") {
		t.Errorf("ambit version printed %q, want the released version", out)
	}
	daemon := start(append(config.Config.Cmd, "--json")...)
	out, err := daemon.StdoutPipe()
	if err == nil {
		daemon.Stderr = os.Stderr
		err = daemon.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	}()
	var ready struct{ URL string }
	if err := json.NewDecoder(out).Decode(&ready); err != nil || !strings.Contains(ready.URL, ":7411") {
		t.Errorf("the daemon of the image printed %+v (error %v), want a URL with port 7411", ready, err)
	}
}

// unpack writes the files of a tar archive into a folder.
func unpack(t *testing.T, from io.Reader, to string) {
	t.Helper()
	eachFile(t, from, func(h *tar.Header, r io.Reader) {
		name := filepath.Join(to, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(name, 0o755); err != nil {
				t.Fatal(err)
			}
			return
		}
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(name), 0o755)
		}
		if err == nil {
			err = os.WriteFile(name, text, h.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// testCompletions lets bash complete a verb.
func testCompletions(t *testing.T, dist string) {
	bin := t.TempDir()
	if err := os.Symlink(only(t, dist, "ambit-v*-linux-*"), filepath.Join(bin, "ambit")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "--norc", "-c", `source "$1"
		_get_comp_words_by_ref() { :; }
		COMP_WORDS=(ambit vali) COMP_CWORD=1 COMP_LINE="ambit vali" COMP_POINT=10 cur=vali words=(ambit vali) cword=1
		__ambit_get_completion_results && echo "$out"`, "bash", filepath.Join(dist, "ambit.bash"))
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	if out := output(t, cmd); !strings.Contains(out, "validate") {
		t.Errorf("bash completes vali to %q, want validate", out)
	}
	for _, file := range []string{"_ambit", "ambit.fish"} {
		if !strings.Contains(read(t, dist, file), "__complete") {
			t.Errorf("%s does not ask ambit for completions", file)
		}
	}
}
