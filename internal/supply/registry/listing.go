package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/tooluri"
)

// Listing describes one version of a server in a registry. It is the part of server.json that ambit uses.
type Listing struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	Version     string    `json:"version"`
	Packages    []Package `json:"packages,omitempty"`
	Remotes     []Remote  `json:"remotes,omitempty"`
	// Status is active, deprecated or deleted.
	Status string `json:"status,omitempty"`
}

// Package is one of the packages that contain a server.
type Package struct {
	RegistryType string  `json:"registryType"`
	Identifier   string  `json:"identifier"`
	Version      string  `json:"version,omitempty"`
	BaseURL      string  `json:"registryBaseUrl,omitempty"`
	FileSHA256   string  `json:"fileSha256,omitempty"`
	Runtime      []Input `json:"runtimeArguments,omitempty"`
	Arguments    []Input `json:"packageArguments,omitempty"`
	Environment  []Input `json:"environmentVariables,omitempty"`
	Transport    struct {
		Type string `json:"type"`
	} `json:"transport"`
}

// Remote is one of the endpoints of a server.
type Remote struct {
	Type    string  `json:"type"`
	URL     string  `json:"url"`
	Headers []Input `json:"headers,omitempty"`
}

// Input is an argument, an environment variable or a header.
type Input struct {
	Type       string `json:"type,omitempty"`
	Name       string `json:"name,omitempty"`
	ValueHint  string `json:"valueHint,omitempty"`
	Value      string `json:"value,omitempty"`
	Default    string `json:"default,omitempty"`
	IsRequired bool   `json:"isRequired,omitempty"`
	IsSecret   bool   `json:"isSecret,omitempty"`
}

func (r *Resolver) fromRegistry(ctx context.Context, f *Found, host string, versions Range) error {
	if r.Client == nil {
		return fmt.Errorf("%w: network requests are disabled", ErrUnreachable)
	}
	list, warning, err := r.Client.Versions(ctx, host, f.Requirement.Server)
	if warning != "" {
		f.Warnings = append(f.Warnings, warning)
	}
	if err != nil {
		return err
	}
	chosen, err := Newest(list, versions)
	if err != nil {
		return err
	}
	recipe, err := chosen.Recipe(r.Config.Hosts[host].Packages...)
	if err != nil {
		return fmt.Errorf("version %s: %w", chosen.Version, err)
	}
	f.Version, f.From, f.Recipe = chosen.Version, FromRegistry, recipe
	return nil
}

// Newest returns the active listing with the highest version in the given range.
func Newest(list []Listing, versions Range) (*Listing, error) {
	var best *Listing
	var at *semver.Version
	active := 0
	for i := range list {
		l := &list[i]
		if l.Status != "active" && l.Status != "" {
			continue
		}
		v, ok := ParseVersion(l.Version)
		if !ok {
			continue
		}
		active++
		if versions.Contains(v) && (best == nil || v.Compare(at) > 0) {
			best, at = l, v
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: %d of %d listed versions are active and valid, but none of them is in the range",
			ErrUnsatisfied, active, len(list))
	}
	return best, nil
}

var (
	npmName  = regexp.MustCompile(`^(?:@[A-Za-z0-9~][A-Za-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*$`)
	pypiName = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$`)
)

// Recipe returns the recipe for the first package or endpoint that ambit can use. If there is none, the error gives the
// reason for each package and endpoint. The arguments are the URLs of the package indexes that this machine uses in
// addition to the public indexes.
func (l *Listing) Recipe(bases ...string) (Recipe, error) {
	var why []string
	for i := range l.Packages {
		recipe, err := l.Packages[i].recipe()
		if err == nil {
			err = l.Packages[i].checkBase(recipe.Kind, bases)
		}
		if err == nil {
			return recipe, nil
		}
		p := &l.Packages[i]
		why = append(why, fmt.Sprintf("%s package %s: %v", diag.Quote(p.RegistryType), diag.Quote(p.Identifier), err))
	}
	for i := range l.Remotes {
		recipe, err := l.Remotes[i].recipe()
		if err == nil {
			return recipe, nil
		}
		why = append(why, fmt.Sprintf("%s: %v", diag.Quote(l.Remotes[i].URL), err))
	}
	if len(why) == 0 {
		return Recipe{}, fmt.Errorf("the registry lists neither a package nor an address for the server")
	}
	return Recipe{}, fmt.Errorf("ambit cannot use any package or address of the server: %s", strings.Join(why, "; "))
}

func (p *Package) recipe() (Recipe, error) {
	out := Recipe{Name: p.Identifier, Version: p.Version, Foreign: true}
	if t := p.Transport.Type; t != "" && t != "stdio" {
		return out, fmt.Errorf("the transport of the package is %s, but must be stdio", diag.Quote(t))
	}
	name := npmName
	switch strings.ToLower(p.RegistryType) {
	case "npm":
		out.Kind = pack.NPM
	case "pypi":
		out.Kind, name = pack.PyPI, pypiName
	case "oci":
		return out, errors.New("ambit does not run container images; use another package of this server, " +
			"or, to create a manifest that uses your container runtime, run: ambit import server.json")
	case "mcpb":
		out.Kind = pack.MCPB
	default:
		return out, fmt.Errorf("ambit does not support packages of this type")
	}
	switch {
	case out.Kind == pack.MCPB:
		if err := p.checkBundle(); err != nil {
			return out, err
		}
	case !name.MatchString(p.Identifier) || !pack.IsExact(out.Kind, p.Version):
		return out, fmt.Errorf("the entry does not contain a package with an exact version")
	}
	if p.FileSHA256 != "" {
		if out.Digest = "sha256:" + strings.ToLower(p.FileSHA256); !tooluri.IsDigest(out.Digest) {
			return out, fmt.Errorf("the fileSha256 of the package is not a SHA-256 digest")
		}
	}
	for _, in := range p.Runtime {
		if word := in.words(); len(word) != 1 || word[0] != "-y" && word[0] != "--yes" {
			return out, fmt.Errorf("the entry has runtimeArguments, which could run different code")
		}
	}
	for _, in := range p.Arguments {
		words := in.words()
		if words == nil && in.IsRequired {
			return out, fmt.Errorf("the argument %s is required, but the registry contains no value for it",
				diag.Quote(cmp.Or(in.Name, in.ValueHint)))
		}
		out.Args = append(out.Args, words...)
	}
	out.Env, out.Needs = settings(p.Environment)
	return out, checkVariables(out.Env)
}

// publicIndex maps the kind of a package to the domain of the public index for that kind, without ".org".
var publicIndex = map[pack.Kind]string{pack.NPM: "npmjs", pack.PyPI: "pypi"}

// checkBase returns an error if a package without a hash is published in an index that this machine does not use. This
// machine would install the package from another index, which could contain a different package with the same name.
func (p *Package) checkBase(kind pack.Kind, bases []string) error {
	domain := publicIndex[kind]
	if p.BaseURL == "" || p.FileSHA256 != "" || domain == "" {
		return nil
	}
	at, err := url.Parse(p.BaseURL)
	if err != nil {
		return fmt.Errorf("the registryBaseUrl of the package is not a URL")
	}
	host := strings.ToLower(at.Hostname())
	if at.Scheme == "https" && (host == domain+".org" || strings.HasSuffix(host, "."+domain+".org")) {
		return nil
	}
	for _, base := range bases {
		if strings.TrimRight(base, "/") == strings.TrimRight(p.BaseURL, "/") {
			return nil
		}
	}
	return fmt.Errorf("the package is published at %s, and other indexes could have a different package with that name; "+
		"if this machine installs packages from %[1]s, add packages = [%q] to the registry's table in config.toml",
		diag.Quote(p.BaseURL), p.BaseURL)
}

func (r *Remote) recipe() (Recipe, error) {
	u, err := url.Parse(r.URL)
	switch {
	case r.Type != "" && r.Type != "streamable-http":
		return Recipe{}, fmt.Errorf("the transport is %s, but ambit supports only streamable-http", diag.Quote(r.Type))
	case err != nil || u.Scheme != "https" || u.User != nil || strings.ContainsAny(r.URL, "{}"):
		return Recipe{}, fmt.Errorf("the url of the server is not a plain https address")
	}
	if _, err := egress.Host(u.Hostname()); err != nil {
		return Recipe{}, fmt.Errorf("the host in the server's url is not a public host name")
	}
	out := Recipe{Kind: pack.Remote, Name: r.URL, Foreign: true}
	out.Env, out.Needs = settings(r.Headers)
	return out, nil
}

// checkVariables returns an error if env contains a variable that only the owner of the machine is allowed to set.
func checkVariables(env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if pack.MachineVariable(name) {
			return fmt.Errorf("the entry sets the variable %s, which only the owner of this machine is allowed to set",
				diag.Quote(name))
		}
	}
	return nil
}

// settings returns the values that the registry provides for the given inputs. It ignores values with placeholders and
// values for secrets. The second result lists the required inputs that the user must set.
func settings(list []Input) (values map[string]string, needs []string) {
	for _, in := range list {
		value := cmp.Or(in.Value, in.Default)
		switch {
		case in.Name == "":
		case in.IsSecret || strings.ContainsAny(value, "{}") || value == "" && in.IsRequired:
			if in.IsRequired {
				needs = append(needs, in.Name)
			}
		case value != "":
			if values == nil {
				values = map[string]string{}
			}
			values[in.Name] = value
		}
	}
	return values, needs
}

// words returns the words that an argument adds to the command line. It returns nil if the registry provides no usable
// value for the argument.
func (in Input) words() []string {
	value := cmp.Or(in.Value, in.Default)
	switch {
	case in.IsSecret || strings.ContainsAny(value, "{}"):
		return nil
	case in.Type == "named" && value != "":
		return []string{in.Name, value}
	case in.Type == "named" && in.IsRequired:
		return []string{in.Name}
	case value != "":
		return []string{value}
	}
	return nil
}
