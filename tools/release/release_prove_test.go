//go:build prove

package main

import (
	"cmp"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestSameBytes builds the same sources twice and compares the bytes. The second build uses another folder, an
// empty cache and other settings.
func TestSameBytes(t *testing.T) {
	here, elsewhere := filepath.Join(t.TempDir(), "here"), filepath.Join(t.TempDir(), "else", "where")
	copySources(t, filepath.Join("..", ".."), here)
	copySources(t, here, elsewhere)
	platforms := []string{runtime.GOOS + "/" + runtime.GOARCH, "windows/arm64"}
	first, second := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "another")
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	t.Chdir(here)
	if err := run("v0.0.0-test", first, platforms); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-ldflags=-X=main.version=other")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("TZ", "Pacific/Kiritimati")
	t.Chdir(elsewhere)
	for range 2 { // the second run replaces the release of the first run
		if err := run("v0.0.0-test", second+string(filepath.Separator), platforms); err != nil {
			t.Fatal(err)
		}
	}
	a, b := read(t, first, fileSums), read(t, second, fileSums)
	if a != b || strings.Count(a, "\n") != 13 {
		t.Errorf("the digests of the two releases differ, or there are not 13:\n%s\n%s", a, b)
	}
	for line := range strings.Lines(b) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got, err := digest(filepath.Join(second, name)); err != nil || got != sum {
			t.Errorf("%s has the digest %s, %v; want %s", name, got, err, sum)
		}
	}
	binary := "ambit-v0.0.0-test-" + runtime.GOOS + "-" + runtime.GOARCH
	if out, err := exec.Command(filepath.Join(first, binary), "version").Output(); err != nil || !strings.Contains(string(out), "v0.0.0-test") {
		t.Errorf("\"ambit version\" printed %q, %v; want the version v0.0.0-test", out, err)
	}
	bill, licences := read(t, first, "sbom.cdx.json"), read(t, first, "LICENSES.txt")
	for name, text := range map[string]string{"binary": read(t, first, binary), "bill": bill, "list of licences": licences} {
		if strings.Contains(text, here) {
			t.Errorf("the %s contains the path of the build folder", name)
		}
	}
	doc := checkBill(t, []byte(bill))
	if doc.Metadata.Timestamp != "2026-01-01T00:00:00Z" {
		t.Errorf("the time in the bill is %s, want SOURCE_DATE_EPOCH", doc.Metadata.Timestamp)
	}
	for platform, file := range map[string]string{platforms[0]: binary, platforms[1]: "ambit-v0.0.0-test-windows-arm64.exe"} {
		inside := inBinary(t, filepath.Join(first, file))
		if listed := inBill(doc, platform); !slices.Equal(listed, inside) {
			t.Errorf("the binary for %s contains\n%q\nand the bill lists\n%q", platform, inside, listed)
		}
		for _, module := range inside {
			if !strings.Contains(licences, "\n"+module+"\n") {
				t.Errorf("the licence of %s is missing", module)
			}
		}
	}
}

// output runs a command and returns its standard output.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", cmd.Args, err, out, stderr.String())
	}
	return string(out)
}

// inBinary returns the modules that "go version -m" lists for a binary, and the standard library.
func inBinary(t *testing.T, file string) []string {
	t.Helper()
	out, err := exec.Command("go", "version", "-m", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); f[0] == "dep" {
			all = append(all, f[1]+" "+f[2])
		} else if f[0] == file+":" {
			all = append(all, "std "+strings.TrimPrefix(f[1], "go"))
		}
	}
	slices.Sort(all)
	return all
}

// inBill returns the modules that a bill lists for a platform.
func inBill(doc cdx.BOM, platform string) []string {
	var all []string
	for _, c := range *doc.Components {
		var properties []cdx.Property
		if c.Properties != nil {
			properties = *c.Properties
		}
		only := slices.ContainsFunc(properties, func(p cdx.Property) bool { return p.Name == "ambit:only" })
		if c.Type == "library" && (!only || slices.Contains(properties, cdx.Property{Name: "ambit:only", Value: platform})) {
			all = append(all, c.Name+" "+c.Version)
		}
	}
	slices.Sort(all)
	return all
}

// copySources copies the files that a build reads.
func copySources(t *testing.T, from, to string) {
	t.Helper()
	skip := map[string]bool{".git": true, "bin": true, "dist": true, "node_modules": true, ".home": true}
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && skip[e.Name()] {
			return cmp.Or(err, fs.SkipDir)
		}
		rest, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return os.MkdirAll(filepath.Join(to, rest), 0o755)
		case !e.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rest), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
