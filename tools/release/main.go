// Command release builds a release. A release consists of a binary for every platform, the digests of the files, a
// bill of materials, and the licences of all third-party code. The same binaries are also packed for npm, as Debian
// packages, and as an OCI image layout. The manual and the shell completions come from the binary itself.
//
//	bin/tools/release -version v1.2.3 -o dist linux/amd64 darwin/arm64 …
//
// The same sources and the same version of Go result in the same bytes on any machine and in any folder. The binaries
// contain no paths, times, user names or machine names, and are built without cgo. The only time in the bill of
// materials is SOURCE_DATE_EPOCH.
//
// The bill of materials has the CycloneDX format. It lists the modules that the linker put into the binaries, with
// their platforms, and the embedded tables of third-party data. It does not list modules that are only in go.mod.
//
// The command downloads nothing. It takes modules from Go's module cache, and first verifies their hashes, because
// "go build" does not verify cached modules. The command fails if a part has no licence, if a table is not listed in
// tables.go, or if a file is not committed. It replaces the previous release only when the new release is complete.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
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
	version := flag.String("version", "", "the `version` of the release")
	out := flag.String("o", "dist", "the `folder` to write to; an earlier release in this folder is replaced")
	flag.Parse()
	if err := run(*version, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// versionForm matches valid versions. A version must be safe to use in file names and linker flags.
var versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]*$`)

func run(version, out string, platforms []string) error {
	made, err := epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if !versionForm.MatchString(version) {
		err = errors.Join(err, fmt.Errorf("%q is not a valid -version; use letters, digits and . + _ -", version))
	}
	for i, p := range platforms {
		if system, arch, ok := strings.Cut(p, "/"); !ok || system == "" || arch == "" {
			err = errors.Join(err, fmt.Errorf("%q is not a platform: write system/architecture, as in linux/amd64", p))
		}
		if slices.Contains(platforms[:i], p) {
			err = errors.Join(err, fmt.Errorf("the platform %q is given twice", p))
		}
	}
	if len(platforms) == 0 {
		err = errors.Join(err, errors.New("no platforms are given: add arguments such as linux/amd64"))
	}
	if err = errors.Join(err, checkCommitted(version), checkReplaceable(out)); err != nil {
		return err
	}
	out = filepath.Clean(out) // without Clean, the parent folder of "dist/" would be "dist"
	env, err := goEnvironment()
	if err != nil {
		return err
	}
	if _, err := env.run("mod", "verify"); err != nil {
		return err
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
	in := map[string]*linkedModule{}
	built := map[string]string{}
	var binaries []binary
	var goVersion string
	for _, p := range platforms {
		name, err := build(env, version, out, p)
		if err != nil {
			return err
		}
		files, built[p] = append(files, name), name
		body, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		system, arch, _ := strings.Cut(p, "/")
		binaries = append(binaries, binary{system: system, arch: arch, body: body})
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
				in[m.Path] = &linkedModule{Module: m}
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
	terms := licences(version, string(own), parts)
	texts := map[string][]byte{"sbom.cdx.json": bill, "LICENSES.txt": terms}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
		files = append(files, name)
	}
	temp, err := os.MkdirTemp("", "ambit-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	run, err := forThisMachine(env, version, out, built, temp)
	if err != nil {
		return err
	}
	c, err := contentsOf(run, version, terms, made)
	if err != nil {
		return err
	}
	packages, err := c.write(out, binaries)
	if err != nil {
		return err
	}
	return writeSums(out, append(files, packages...))
}

// checkCommitted returns an error if the working tree has uncommitted files. It accepts any version that ends in
// -dirty, and any folder that is not a Git repository.
func checkCommitted(version string) error {
	if _, err := os.Lstat(".git"); err != nil || strings.HasSuffix(version, "-dirty") {
		return nil
	}
	changes, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return fmt.Errorf("git status: %w", err)
	}
	if len(changes) > 0 {
		return fmt.Errorf("some files are not committed; commit or remove them, or use a version that ends in -dirty:\n%s",
			changes)
	}
	return nil
}

// checkReplaceable returns an error if the folder contains files that do not belong to an earlier release, because
// publish would delete them.
func checkReplaceable(out string) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(out, fileSums)); err != nil {
		return fmt.Errorf("%s contains files that are not from a release; choose another folder with -o", out)
	}
	return nil
}

// epoch parses SOURCE_DATE_EPOCH.
func epoch(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, errors.New("SOURCE_DATE_EPOCH is not a time in seconds: " +
			"set it to the time of the commit; to print that time, run: git log -1 --format=%ct")
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// environment contains the environment variables for the go command.
type environment []string

// goEnvironment returns an environment with fixed values for all Go settings that could change the binaries or cause
// downloads. It ignores the user's settings, except the locations of the caches.
func goEnvironment() (environment, error) {
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	caches := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(caches) != 2 {
		return nil, fmt.Errorf("go env GOCACHE GOMODCACHE printed %q: %v", out, err)
	}
	return append(os.Environ(), "GOENV=off", "GOCACHE="+caches[0], "GOMODCACHE="+caches[1],
		"GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local",
		"CGO_ENABLED=0", "GOEXPERIMENT=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0"), nil
}

// forPlatform returns the environment for building binaries for a platform.
func (e environment) forPlatform(platform string) environment {
	system, arch, _ := strings.Cut(platform, "/")
	return append(slices.Clone(e), "GOOS="+system, "GOARCH="+arch)
}

// run runs the go command and returns its output.
func (e environment) run(arguments ...string) ([]byte, error) {
	cmd := exec.Command("go", arguments...)
	cmd.Env = e
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w; if a module is missing, run: make modules\n%s",
			strings.Join(arguments, " "), err, stderr.Bytes())
	}
	return out, nil
}

// build builds the binary for one platform and returns the name of the file.
func build(env environment, version, out, platform string) (string, error) {
	system, arch, _ := strings.Cut(platform, "/")
	name := "ambit-" + version + "-" + system + "-" + arch
	if system == "windows" {
		name += ".exe"
	}
	ldflags := "-s -w -buildid= -X github.com/ambit-run/ambit/internal/cli.version=" + version
	if _, err := env.forPlatform(platform).run("build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags,
		"-o", filepath.Join(out, name), "./cmd/ambit"); err != nil {
		return "", fmt.Errorf("%s: %w", platform, err)
	}
	return name, nil
}

// fileSums is the name of the file with the digests. This file is written last, so a folder that contains it is a
// complete release.
const fileSums = "SHA256SUMS"

// writeSums writes the digests of the files in the format that sha256sum --check reads.
func writeSums(out string, files []string) error {
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
	text, err := os.ReadFile(file)
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}
