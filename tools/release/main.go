// Command release builds a release: the binary for every platform, digests, a bill of materials, and the licences of all
// third-party code.
//
//	bin/tools/release -version v1.2.3 -o dist linux/amd64 darwin/arm64 …
//
// The same sources with the same version of Go give the same bytes on any machine and in any folder: the binaries contain
// no path, time, user or machine, cgo is off, and the only time, in the bill of materials, is SOURCE_DATE_EPOCH.
//
// The bill is in CycloneDX. It lists the modules that the linker put into the binaries, with their platforms, and embedded
// third-party tables. It does not list modules that are only in go.mod.
//
// Nothing is fetched: modules come from Go's cache and are hashed again first, because Go does not check them again by
// itself. A part without a licence, an unlisted table or an uncommitted file fails the release. The previous release stays
// until the new one is complete.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	version := flag.String("version", "", "the `version` to stamp")
	out := flag.String("o", "dist", "the `folder` to write to; an earlier release in it is replaced")
	flag.Parse()
	if err := run(*version, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// The version becomes part of file names and linker flags.
var versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]*$`)

func run(version, out string, platforms []string) error {
	made, err := epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if !versionForm.MatchString(version) {
		err = errors.Join(err, fmt.Errorf("%q is not a version: set -version to letters, digits and . + _ -", version))
	}
	for i, p := range platforms {
		if system, arch, ok := strings.Cut(p, "/"); !ok || system == "" || arch == "" {
			err = errors.Join(err, fmt.Errorf("%q is not a platform: use the form linux/amd64", p))
		}
		if slices.Contains(platforms[:i], p) {
			err = errors.Join(err, fmt.Errorf("%q appears twice", p))
		}
	}
	if len(platforms) == 0 {
		err = errors.Join(err, errors.New("no platforms: add some as arguments, such as linux/amd64"))
	}
	if err = errors.Join(err, committed(version), replaceable(out)); err != nil {
		return err
	}
	out = filepath.Clean(out) // Dir("dist/") is "dist"
	env, err := settings()
	if err != nil {
		return err
	}
	for _, folder := range []string{".", gitleaks} {
		if _, err := env.run("-C", folder, "mod", "verify"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	stage, err := os.MkdirTemp(filepath.Dir(out), ".release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	if err := publish(env, version, stage, platforms, made); err != nil {
		return err
	}
	if err := os.Chmod(stage, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	return os.Rename(stage, out)
}

// publish writes the files of a release into a folder.
func publish(env environment, version, out string, platforms []string, made time.Time) error {
	var files []string
	in := map[string]*linked{}
	var goVersion string
	for _, p := range platforms {
		name, err := build(env, version, out, p)
		if err != nil {
			return err
		}
		files = append(files, name)
		info, err := buildinfo.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		goVersion = info.GoVersion
		std := &debug.Module{Path: "std", Version: strings.TrimPrefix(goVersion, "go")}
		for _, m := range append(info.Deps, std) {
			if m.Replace != nil {
				m = m.Replace
			}
			if in[m.Path] == nil {
				in[m.Path] = &linked{Module: m}
			}
			in[m.Path].platforms = append(in[m.Path].platforms, p)
		}
		fmt.Println(name)
	}
	own, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	where, err := sources(env, platforms)
	if err != nil {
		return err
	}
	parts, err := modules(in, where, len(platforms))
	if err != nil {
		return err
	}
	embedded, err := tablesIn(env, where, string(own))
	if err != nil {
		return err
	}
	parts = append(parts, embedded...)
	bill, err := billOf(version, goVersion, made, parts)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"sbom.cdx.json": bill, "LICENSES.txt": licences(version, string(own), parts)} {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
		files = append(files, name)
	}
	return sums(out, files)
}

// committed returns an error if files are not committed, unless the version ends in -dirty or there is no repository.
func committed(version string) error {
	if _, err := os.Lstat(".git"); err != nil || strings.HasSuffix(version, "-dirty") {
		return nil
	}
	changes, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return fmt.Errorf("git status: %w", err)
	}
	if len(changes) > 0 {
		return fmt.Errorf("some files are not committed; commit or remove them, or end the version in -dirty:\n%s", changes)
	}
	return nil
}

// replaceable returns an error unless the folder is missing, empty, or an earlier release.
func replaceable(out string) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(out, fileSums)); err != nil {
		return fmt.Errorf("%s contains files and is not an earlier release: choose another folder with -o", out)
	}
	return nil
}

// epoch parses SOURCE_DATE_EPOCH.
func epoch(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, errors.New("set SOURCE_DATE_EPOCH to the commit's time in seconds: git log -1 --format=%ct")
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// environment is the environment of the go command.
type environment []string

// settings fixes the settings that would change the bytes or fetch something. Of the user's variables and go env -w
// settings, only the locations of the caches are kept.
func settings() (environment, error) {
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	caches := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(caches) != 2 {
		return nil, fmt.Errorf("go env GOCACHE GOMODCACHE printed %q: %v", out, err)
	}
	return append(os.Environ(), "GOENV=off", "GOCACHE="+caches[0], "GOMODCACHE="+caches[1],
		"GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local",
		"CGO_ENABLED=0", "GOEXPERIMENT=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0"), nil
}

// on returns the environment that builds for a platform.
func (e environment) on(platform string) environment {
	system, arch, _ := strings.Cut(platform, "/")
	return append(slices.Clone(e), "GOOS="+system, "GOARCH="+arch)
}

// run runs go and returns its output.
func (e environment) run(arguments ...string) ([]byte, error) {
	cmd := exec.Command("go", arguments...)
	cmd.Env = e
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w; if a module is missing, run make modules\n%s",
			strings.Join(arguments, " "), err, stderr.Bytes())
	}
	return out, nil
}

// build builds the binary for one platform and returns its name.
func build(env environment, version, out, platform string) (string, error) {
	system, arch, _ := strings.Cut(platform, "/")
	name := "ambit-" + version + "-" + system + "-" + arch
	if system == "windows" {
		name += ".exe"
	}
	ldflags := "-s -w -buildid= -X github.com/ambit-run/ambit/internal/cli.version=" + version
	if _, err := env.on(platform).run("build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags,
		"-o", filepath.Join(out, name), "./cmd/ambit"); err != nil {
		return "", fmt.Errorf("%s: %w", platform, err)
	}
	return name, nil
}

// fileSums is written last, so it marks a complete release.
const fileSums = "SHA256SUMS"

// sums writes the digests in the format of sha256sum --check.
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
	return os.WriteFile(filepath.Join(out, fileSums), []byte(b.String()), 0o644)
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
