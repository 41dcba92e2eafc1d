// Command release builds what is published: the binary for every platform, their
// digests, a bill of materials, and the licences of everything inside.
//
//	bin/tools/release -version v1.2.3 -o dist linux/amd64 darwin/arm64 …
//
// The same sources with the same version of Go give the same bytes, on any
// machine and in any folder: no path, time, user or machine gets in, C is off, and
// the one time that is written down, in the bill of materials, is SOURCE_DATE_EPOCH.
// The bill is in CycloneDX and tells of the modules that the linker says are in
// the binaries, not of all that go.mod names, of those that are in some only, and
// of the tables by others that are embedded. Nothing is fetched: modules come from Go's own cache, and are hashed
// again first, since Go believes what it has unpacked once. A part without a
// licence, a table that is not accounted for, or a file that the commit does not
// hold stops the release, and what was released before stays until all is done.
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
	out := flag.String("o", "dist", "the `folder` to write to, which may hold a former release")
	flag.Parse()
	if err := run(*version, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// A version is a part of file names and of the linker's flags.
var versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]*$`)

func run(version, out string, platforms []string) error {
	made, err := epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if !versionForm.MatchString(version) {
		err = errors.Join(err, fmt.Errorf("%q cannot be a version: give -version with letters, digits and . + _ -", version))
	}
	for i, p := range platforms {
		if system, arch, ok := strings.Cut(p, "/"); !ok || system == "" || arch == "" {
			err = errors.Join(err, fmt.Errorf("%q is no platform: write linux/amd64", p))
		}
		if slices.Contains(platforms[:i], p) {
			err = errors.Join(err, fmt.Errorf("%q is named twice", p))
		}
	}
	if len(platforms) == 0 {
		err = errors.Join(err, errors.New("name platforms, such as linux/amd64"))
	}
	if err = errors.Join(err, committed(version), replaceable(out)); err != nil {
		return err
	}
	out = filepath.Clean(out) // dist/ lies beside dist, not in it
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

// publish writes all that a release holds into a folder.
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

// committed refuses files that a version does not tell of. One that ends in
// -dirty says itself that nobody can build it again.
func committed(version string) error {
	if _, err := os.Lstat(".git"); err != nil || strings.HasSuffix(version, "-dirty") {
		return nil // sources without a history are what they are
	}
	said, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return fmt.Errorf("git status: %w", err)
	}
	if len(said) > 0 {
		return fmt.Errorf("the commit does not hold what would be built; commit or remove these, or let the version end in -dirty:\n%s", said)
	}
	return nil
}

// replaceable tells whether a folder may be emptied: it is empty, not there, or a
// former release.
func replaceable(out string) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(out, fileSums)); err != nil {
		return fmt.Errorf("%s holds files and is no former release: name another folder with -o", out)
	}
	return nil
}

// epoch is the time of the sources.
func epoch(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, errors.New("SOURCE_DATE_EPOCH must hold the time of the sources, in seconds: git log -1 --format=%ct")
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// environment is what go gets to see.
type environment []string

// settings fixes what would change the bytes, or fetch something. Neither the
// variables of whoever builds count nor what go env -w has kept for them; only
// where the caches are is theirs.
func settings() (environment, error) {
	said, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	caches := strings.Split(strings.TrimSpace(string(said)), "\n")
	if err != nil {
		return nil, fmt.Errorf("go env does not tell where the caches are: %w", err)
	}
	if len(caches) != 2 {
		return nil, fmt.Errorf("go env tells of %d caches, not of two", len(caches))
	}
	return append(os.Environ(), "GOENV=off", "GOCACHE="+caches[0], "GOMODCACHE="+caches[1],
		"GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local",
		"CGO_ENABLED=0", "GOEXPERIMENT=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0"), nil
}

// on is the environment to build for a platform.
func (e environment) on(platform string) environment {
	system, arch, _ := strings.Cut(platform, "/")
	return append(slices.Clone(e), "GOOS="+system, "GOARCH="+arch)
}

// run calls go, and tells what it answers.
func (e environment) run(arguments ...string) ([]byte, error) {
	cmd := exec.Command("go", arguments...)
	cmd.Env = e
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w; what is missing is fetched by make modules\n%s", strings.Join(arguments, " "), err, said.Bytes())
	}
	return out, nil
}

// build makes the binary of one platform, and tells its name.
func build(env environment, version, out, platform string) (string, error) {
	system, arch, _ := strings.Cut(platform, "/")
	name := "ambit-" + version + "-" + system + "-" + arch
	if system == "windows" {
		name += ".exe"
	}
	ldflags := "-s -w -buildid= -X github.com/ambit-run/ambit/internal/cli.version=" + version
	if _, err := env.on(platform).run("build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", filepath.Join(out, name), "./cmd/ambit"); err != nil {
		return "", fmt.Errorf("%s: %w", platform, err)
	}
	return name, nil
}

// fileSums is there when all else is.
const fileSums = "SHA256SUMS"

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
