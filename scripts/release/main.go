// Command release builds what is published: the binary for every platform, their
// digests, a bill of materials, and the licences of everything inside.
//
//	go run ./scripts/release -version v1.2.3 -o dist linux/amd64 darwin/arm64 …
//
// The same sources with the same version of Go give the same bytes, on any
// machine and in any folder: no path, time, user or machine gets in, C is off, and
// the one time that is written down, in the bill of materials, is SOURCE_DATE_EPOCH.
// The bill is in CycloneDX and tells of the modules that the linker says are in
// the binaries, not of all that go.mod names. Nothing is fetched: modules come from
// Go's own cache. A module without a licence stops the release.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	version := flag.String("version", "", "the `version` to stamp")
	out := flag.String("o", "dist", "the `folder` to write to, which is emptied first")
	flag.Parse()
	if err := run(*version, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version, out string, platforms []string) error {
	made, err := epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if err == nil && (version == "" || strings.ContainsAny(version, " '\"\t\n")) {
		err = fmt.Errorf("%q cannot be a version: give -version", version)
	}
	for _, p := range platforms {
		if system, arch, ok := strings.Cut(p, "/"); !ok || system == "" || arch == "" {
			err = errors.Join(err, fmt.Errorf("%q is no platform: write linux/amd64", p))
		}
	}
	if len(platforms) == 0 {
		err = errors.Join(err, errors.New("name platforms, such as linux/amd64"))
	}
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var files []string
	in := map[string]*debug.Module{}
	var goVersion string
	for _, p := range platforms {
		name, err := build(version, out, p)
		if err != nil {
			return err
		}
		files = append(files, name)
		info, err := buildinfo.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		goVersion = info.GoVersion
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			in[m.Path] = m
		}
		fmt.Println(filepath.Join(out, name))
	}
	parts, texts, err := licences(in, goVersion)
	if err != nil {
		return err
	}
	bill, err := billOf(version, goVersion, made, parts)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"sbom.cdx.json": bill, "LICENSES.txt": texts} {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
		files = append(files, name)
	}
	return sums(out, files)
}

// epoch is the time of the sources.
func epoch(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, errors.New("SOURCE_DATE_EPOCH must hold the time of the sources, in seconds: git log -1 --format=%ct")
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// build makes the binary of one platform, and tells its name.
func build(version, out, platform string) (string, error) {
	system, arch, _ := strings.Cut(platform, "/")
	name := "ambit-" + version + "-" + system + "-" + arch
	if system == "windows" {
		name += ".exe"
	}
	ldflags := "-s -w -buildid= -X github.com/ambit-run/ambit/internal/cli.version=" + version
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", filepath.Join(out, name), "./cmd/ambit")
	// What would change the bytes is fixed; GOFLAGS and GOEXPERIMENT of whoever builds
	// do not count.
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off", "GOTOOLCHAIN=local")
	said, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", platform, err, said)
	}
	return name, nil
}

// sums writes the digests, as sha256sum --check reads them.
func sums(out string, files []string) error {
	slices.Sort(files)
	var b strings.Builder
	for _, name := range files {
		sum, err := digest(filepath.Join(out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, name)
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(b.String()), 0o644)
}

func digest(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
