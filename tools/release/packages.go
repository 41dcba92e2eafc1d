package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// binary is a binary of ambit for one platform.
type binary struct {
	system, arch string // the system and architecture in Go's spelling, such as linux and amd64
	body         []byte
}

// contents contains everything in the packages except the binaries.
type contents struct {
	version  string // the release as a semantic version without v
	made     time.Time
	licences []byte // ambit's own licence and those of third-party code
	// The files that "ambit completion" and "ambit man" print.
	bash, zsh, fish, man []byte
	// Units are the files in deploy/systemd.
	units map[string][]byte
}

const (
	scope   = "@ambit-run/"
	summary = "Run AI agents that can do only what their manifest allows"
	home    = "https://github.com/ambit-run/ambit"
)

// packageVersion converts a version to the form that packages need: a semantic version without v. A version in
// another form, such as a commit, becomes a pre-release of 0.0.0.
func packageVersion(version string) string {
	if v := "v" + strings.TrimPrefix(version, "v"); semver.IsValid(v) {
		return strings.TrimPrefix(semver.Canonical(v), "v")
	}
	return "0.0.0-dev." + strings.Map(func(r rune) rune {
		if r == '_' || r == '+' {
			return '-'
		}
		return r
	}, "g"+version)
}

// manDate matches the date in a manual page. The date is the time of generation, so it differs between builds.
var manDate = regexp.MustCompile(`^(\.TH AMBIT 1 )"[^"]*"`)

// contentsOf returns the files of the packages other than the binaries. It runs a binary for this machine, because
// ambit generates its manual and shell completions from its commands.
func contentsOf(run, version string, licences []byte, made time.Time) (*contents, error) {
	c := &contents{version: packageVersion(version), made: made, licences: licences, units: map[string][]byte{}}
	for _, g := range []struct {
		into      *[]byte
		arguments []string
	}{
		{&c.bash, []string{"completion", "bash"}},
		{&c.zsh, []string{"completion", "zsh"}},
		{&c.fish, []string{"completion", "fish"}},
		{&c.man, []string{"man"}},
	} {
		out, err := exec.Command(run, g.arguments...).Output()
		if err != nil {
			return nil, fmt.Errorf("ambit %s: %w", strings.Join(g.arguments, " "), err)
		}
		*g.into = out
	}
	if !manDate.Match(c.man) {
		return nil, errors.New("cannot find the date in the .TH line of the manual page")
	}
	c.man = manDate.ReplaceAll(c.man, []byte(`${1}"`+made.Format(time.DateOnly)+`"`))
	for _, name := range []string{"ambit-serve.service", "ambit-worker.service", "ambit.sysusers"} {
		text, err := os.ReadFile(filepath.Join("deploy", "systemd", name))
		if err != nil {
			return nil, err
		}
		c.units[name] = text
	}
	return c, nil
}

// write writes the packages, the completions and the manual into a folder, and returns the names of the files.
func (c *contents) write(out string, binaries []binary) ([]string, error) {
	files := map[string][]byte{
		"ambit.bash": c.bash, "_ambit": c.zsh, "ambit.fish": c.fish, "ambit.1": c.man,
	}
	add := func(name string, text []byte, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files[name] = text
		return nil
	}
	var images []binary
	text, err := c.npm(binaries)
	errs := add(c.npmFile(""), text, err)
	for _, b := range binaries {
		text, err := c.npmPlatform(b)
		errs = errors.Join(errs, add(c.npmFile(platformSuffix(b)), text, err))
		if b.system != "linux" {
			continue
		}
		images = append(images, b)
		text, err = c.deb(b)
		errs = errors.Join(errs, add(fmt.Sprintf("ambit_%s_%s.deb", c.debVersion(), b.arch), text, err))
	}
	if len(images) > 0 {
		text, err := c.image(images)
		errs = errors.Join(errs, add("ambit-"+c.version+"-oci.tar", text, err))
	}
	if errs != nil {
		return nil, errs
	}
	var names []string
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// nodeNames maps Go's names of systems and architectures to those of Node.js.
var nodeNames = map[string]string{"windows": "win32", "amd64": "x64"}

func nodeName(name string) string {
	if other := nodeNames[name]; other != "" {
		return other
	}
	return name
}

func platformSuffix(b binary) string { return "-" + nodeName(b.system) + "-" + nodeName(b.arch) }

// npmFile returns the name that "npm pack" gives to a package.
func (c *contents) npmFile(suffix string) string {
	return "ambit-run-ambit" + suffix + "-" + c.version + ".tgz"
}

// npmPackage is the package.json of a package.
type npmPackage struct {
	Name                 string            `json:"name"`
	Version              string            `json:"version"`
	Description          string            `json:"description"`
	License              string            `json:"license"`
	Repository           string            `json:"repository"`
	OS                   []string          `json:"os,omitempty"`
	CPU                  []string          `json:"cpu,omitempty"`
	PreferUnplugged      bool              `json:"preferUnplugged,omitempty"`
	Bin                  map[string]string `json:"bin,omitempty"`
	Engines              map[string]string `json:"engines,omitempty"`
	OptionalDependencies map[string]string `json:"optionalDependencies,omitempty"`
}

func (c *contents) npmPackage(suffix, description string) npmPackage {
	return npmPackage{
		Name: scope + "ambit" + suffix, Version: c.version, Description: description, License: "Apache-2.0",
		Repository: "git+" + home + ".git",
	}
}

//go:embed npm/ambit.js
var launcher []byte

// npm returns the npm package that people install. The package contains only a launcher. The binaries are in optional
// dependencies: npm installs only the binary for its platform, and runs no install script.
func (c *contents) npm(binaries []binary) ([]byte, error) {
	p := c.npmPackage("", summary)
	p.Bin, p.Engines = map[string]string{"ambit": "bin/ambit.js"}, map[string]string{"node": ">=18"}
	p.OptionalDependencies = map[string]string{}
	for _, b := range binaries {
		p.OptionalDependencies[scope+"ambit"+platformSuffix(b)] = c.version
	}
	readme := "# ambit\n\n" + summary + ".\n\n```sh\nnpx " + scope + "ambit doctor\n```\n\nSee " + home + ".\n"
	return c.npmArchive(p, program("package/bin/ambit.js", launcher), file("package/README.md", []byte(readme)))
}

// npmPlatform returns the package with the binary for one platform.
func (c *contents) npmPlatform(b binary) ([]byte, error) {
	p := c.npmPackage(platformSuffix(b), "The ambit binary for "+b.system+"/"+b.arch)
	p.OS, p.CPU, p.PreferUnplugged = []string{nodeName(b.system)}, []string{nodeName(b.arch)}, true
	name := "package/bin/ambit"
	if b.system == "windows" {
		name += ".exe"
	}
	return c.npmArchive(p, program(name, b.body), file("package/LICENSES.txt", c.licences))
}

func (c *contents) npmArchive(p npmPackage, entries ...entry) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(p); err != nil {
		return nil, err
	}
	return tarGz(append(entries, file("package/package.json", text.Bytes())), c.made)
}

// debVersion returns the version of the Debian package. The tilde makes a pre-release older than its release.
func (c *contents) debVersion() string { return strings.ReplaceAll(c.version, "-", "~") }

// deb returns the Debian package for an architecture. Debian and Go use the same names for the supported architectures.
// The package has no maintainer scripts: the administrator starts the units.
func (c *contents) deb(b binary) ([]byte, error) {
	man, err := gz(c.man)
	if err != nil {
		return nil, err
	}
	data := []entry{
		program("usr/bin/ambit", b.body),
		{name: "usr/bin/mcl-tools", link: "ambit"},
		{name: "usr/bin/findagent-mcp", link: "ambit"},
		file("usr/share/bash-completion/completions/ambit", c.bash),
		file("usr/share/zsh/vendor-completions/_ambit", c.zsh),
		file("usr/share/fish/vendor_completions.d/ambit.fish", c.fish),
		file("usr/share/man/man1/ambit.1.gz", man),
		file("usr/share/doc/ambit/copyright", c.licences),
		file("usr/lib/systemd/system/ambit-serve.service", c.units["ambit-serve.service"]),
		file("usr/lib/systemd/system/ambit-worker.service", c.units["ambit-worker.service"]),
		file("usr/lib/sysusers.d/ambit.conf", c.units["ambit.sysusers"]),
	}
	size := 0
	for _, e := range data {
		size += len(e.body)
	}
	control := fmt.Sprintf("Package: ambit\nVersion: %s\nArchitecture: %s\nMaintainer: The ambit authors <authors@ambit.invalid>\n"+
		"Installed-Size: %d\nRecommends: bubblewrap, ca-certificates\nSuggests: nodejs, npm, python3\nSection: utils\n"+
		"Priority: optional\nHomepage: %s\nDescription: %s\n"+
		" ambit runs between an AI client and the tools it uses. It shows everything that an\n"+
		" agent may do, checks its tool servers, and decides every call.\n",
		c.debVersion(), b.arch, (size+1023)/1024, home, summary)
	controlTar, err := tarGz([]entry{file("control", []byte(control))}, c.made)
	if err != nil {
		return nil, err
	}
	dataTar, err := tarGz(data, c.made)
	if err != nil {
		return nil, err
	}
	return arOf([]entry{
		file("debian-binary", []byte("2.0\n")), file("control.tar.gz", controlTar), file("data.tar.gz", dataTar),
	}, c.made), nil
}

// forThisMachine returns the path of a binary that runs on this machine. If the release has no such binary, it builds
// one into the folder.
func forThisMachine(env environment, version, out string, built map[string]string, temp string) (string, error) {
	here := runtime.GOOS + "/" + runtime.GOARCH
	if name := built[here]; name != "" {
		return filepath.Abs(filepath.Join(out, name))
	}
	name, err := build(env, version, temp, here)
	return filepath.Join(temp, name), err
}
