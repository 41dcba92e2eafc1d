package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPackageVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3-4-g0a1b2c3": "1.2.3-4-g0a1b2c3",
		"v1.2.3+more": "1.2.3", "0a1b2c3": "0.0.0-dev.g0a1b2c3", "0123456-dirty": "0.0.0-dev.g0123456-dirty",
		"devel": "0.0.0-dev.gdevel", "a_b+c": "0.0.0-dev.ga-b-c",
	} {
		if got := packageVersion(version); got != want {
			t.Errorf("packageVersion(%q) = %q, want %q", version, got, want)
		}
	}
}

// sample returns contents and binaries that need no build.
func sample() (*contents, []binary) {
	c := &contents{
		version: "1.2.3-rc1", made: time.Unix(1767225600, 0).UTC(), licences: []byte("licences"), bash: []byte("bash"),
		zsh: []byte("zsh"), fish: []byte("fish"), man: []byte("man"),
		units: map[string][]byte{"ambit-serve.service": []byte("unit")},
	}
	return c, []binary{
		{"linux", "amd64", []byte("an")},
		{"linux", "arm64", []byte("odd")},
		{"darwin", "arm64", []byte("x")},
		{"windows", "amd64", []byte("y")},
	}
}

// TestPackages checks the files of every package, and that equal contents result in equal bytes.
func TestPackages(t *testing.T) {
	c, binaries := sample()
	first, second := t.TempDir(), t.TempDir()
	names, err := c.write(first, binaries)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.write(second, binaries); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	want := []string{
		"_ambit", "ambit-1.2.3-rc1-oci.tar", "ambit-run-ambit-1.2.3-rc1.tgz", "ambit-run-ambit-darwin-arm64-1.2.3-rc1.tgz",
		"ambit-run-ambit-linux-arm64-1.2.3-rc1.tgz", "ambit-run-ambit-linux-x64-1.2.3-rc1.tgz",
		"ambit-run-ambit-win32-x64-1.2.3-rc1.tgz", "ambit.1", "ambit.bash", "ambit.fish", "ambit_1.2.3~rc1_amd64.deb",
		"ambit_1.2.3~rc1_arm64.deb",
	}
	if !slices.Equal(names, want) {
		t.Errorf("the packages are\n%q, want\n%q", names, want)
	}
	for _, name := range names {
		a, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second, name))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs between two releases, or cannot be read: %v", name, err)
		}
	}
	main, windows := npmFiles(t, filepath.Join(first, want[2])), npmFiles(t, filepath.Join(first, want[6]))
	var p npmPackage
	if err := json.Unmarshal(main["package/package.json"], &p); err != nil {
		t.Fatal(err)
	}
	if len(p.OptionalDependencies) != 4 || p.OptionalDependencies["@ambit-run/ambit-win32-x64"] != "1.2.3-rc1" {
		t.Errorf("the optional dependencies are %v, want one package for each of 4 platforms", p.OptionalDependencies)
	}
	if text := string(main["package/package.json"]); strings.Contains(text, "scripts") {
		t.Errorf("the npm package must have no scripts, but its package.json is %s", text)
	}
	if err := json.Unmarshal(windows["package/package.json"], &p); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.OS, []string{"win32"}) || !slices.Equal(p.CPU, []string{"x64"}) || windows["package/bin/ambit.exe"] == nil {
		t.Errorf("the package for Windows is %+v, want os win32, cpu x64 and ambit.exe", p)
	}
}

// npmFiles returns the files of an npm package.
func npmFiles(t *testing.T, name string) map[string][]byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	eachFile(t, z, func(h *tar.Header, r io.Reader) {
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = text
	})
	return files
}

// eachFile calls a function for each entry of a tar archive.
func eachFile(t *testing.T, from io.Reader, visit func(*tar.Header, io.Reader)) {
	t.Helper()
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		visit(h, r)
	}
}
