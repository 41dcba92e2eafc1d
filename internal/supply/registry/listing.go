package registry

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/tooluri"
)

// Listing is one version of a server in a registry: the part of its server.json that
// ambit uses.
type Listing struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	Version     string    `json:"version"`
	Packages    []Package `json:"packages,omitempty"`
	Remotes     []Remote  `json:"remotes,omitempty"`
	// Status is active, deprecated or deleted.
	Status string `json:"status,omitempty"`
}

// Package is one way to run a server.
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

// Remote is one endpoint of a server.
type Remote struct {
	Type    string  `json:"type"`
	URL     string  `json:"url"`
	Headers []Input `json:"headers,omitempty"`
}

// Input is an argument, a variable or a header.
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

// Newest returns the newest usable version in a range.
func Newest(list []Listing, versions Range) (*Listing, error) {
	var best *Listing
	var at Version
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
		return nil, fmt.Errorf("%w: %d of %d versions can be used, and none is in the range", ErrUnsatisfied, active, len(list))
	}
	return best, nil
}

var (
	npmName  = regexp.MustCompile(`^(?:@[A-Za-z0-9~][A-Za-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*$`)
	pypiName = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$`)
)

// Recipe returns the first usable way to run a version. If there is none, the error
// gives the reason for each. bases are the additional package indexes of this machine.
func (l *Listing) Recipe(bases ...string) (Recipe, error) {
	var why unusable
	for i := range l.Packages {
		recipe, err := l.Packages[i].recipe()
		if err == nil {
			err = l.Packages[i].checkBase(recipe.Kind, bases)
		}
		if err == nil {
			return recipe, nil
		}
		why = append(why, fmt.Errorf("%s package %s: %w", diag.Quote(l.Packages[i].RegistryType), diag.Quote(l.Packages[i].Identifier), err))
	}
	for i := range l.Remotes {
		recipe, err := l.Remotes[i].recipe()
		if err == nil {
			return recipe, nil
		}
		why = append(why, fmt.Errorf("%s: %w", diag.Quote(l.Remotes[i].URL), err))
	}
	if len(why) == 0 {
		return Recipe{}, fmt.Errorf("the registry lists no package and no address")
	}
	return Recipe{}, why
}

// unusable lists why no package and no address of a version can be used.
type unusable []error

func (u unusable) Error() string {
	words := make([]string, len(u))
	for i, err := range u {
		words[i] = err.Error()
	}
	return "none of its packages and addresses can be used here: " + strings.Join(words, "; ")
}

func (u unusable) Unwrap() []error { return u }

func (p *Package) recipe() (Recipe, error) {
	out := Recipe{Name: p.Identifier, Version: p.Version, Foreign: true}
	if t := p.Transport.Type; t != "" && t != "stdio" {
		return out, fmt.Errorf("its transport is %s, but packages must use stdio", diag.Quote(t))
	}
	name := npmName
	switch strings.ToLower(p.RegistryType) {
	case "npm":
		out.Kind = pack.NPM
	case "pypi":
		out.Kind, name = pack.PyPI, pypiName
	case "oci":
		return out, errContainer
	case "mcpb":
		out.Kind = pack.MCPB
	default:
		return out, fmt.Errorf("packages of this kind are not supported")
	}
	switch {
	case out.Kind == pack.MCPB:
		if err := p.bundle(); err != nil {
			return out, err
		}
	case !name.MatchString(p.Identifier) || !pack.IsExact(out.Kind, p.Version):
		return out, fmt.Errorf("it does not name a package with an exact version")
	}
	if p.FileSHA256 != "" {
		if out.Digest = "sha256:" + strings.ToLower(p.FileSHA256); !tooluri.IsDigest(out.Digest) {
			return out, fmt.Errorf("its fileSha256 is not a sha256")
		}
	}
	for _, in := range p.Runtime {
		if word := in.words(); len(word) != 1 || word[0] != "-y" && word[0] != "--yes" {
			return out, fmt.Errorf("it sets options of the runtime, which could run other code")
		}
	}
	for _, in := range p.Arguments {
		words := in.words()
		if words == nil && in.IsRequired {
			return out, fmt.Errorf("the argument %s is required, but the registry gives no value", diag.Quote(in.label()))
		}
		out.Args = append(out.Args, words...)
	}
	out.Env, out.Needs = settings(p.Environment)
	return out, checkVariables(out.Env)
}

// publicIndex is the domain of each kind's public index.
var publicIndex = map[pack.Kind]string{pack.NPM: "npmjs", pack.PyPI: "pypi"}

// checkBase refuses a package without a hash from an index that this machine does not
// use: another index may have a different package of that name.
func (p *Package) checkBase(kind pack.Kind, bases []string) error {
	who := publicIndex[kind]
	if p.BaseURL == "" || p.FileSHA256 != "" || who == "" {
		return nil
	}
	at, err := url.Parse(p.BaseURL)
	if err != nil {
		return fmt.Errorf("its registryBaseUrl is not a URL")
	}
	host := strings.ToLower(at.Hostname())
	if at.Scheme == "https" && (host == who+".org" || strings.HasSuffix(host, "."+who+".org")) {
		return nil
	}
	for _, base := range bases {
		if strings.TrimRight(base, "/") == strings.TrimRight(p.BaseURL, "/") {
			return nil
		}
	}
	return fmt.Errorf("it is published at %s, and a package of its name elsewhere may differ; if this machine installs packages from there, add packages = [%q] to config.toml, beside the registry's url", diag.Quote(p.BaseURL), p.BaseURL)
}

func (r *Remote) recipe() (Recipe, error) {
	u, err := url.Parse(r.URL)
	switch {
	case r.Type != "" && r.Type != "streamable-http":
		return Recipe{}, fmt.Errorf("its transport is %s, but only streamable-http is supported", diag.Quote(r.Type))
	case err != nil || u.Scheme != "https" || u.User != nil || strings.ContainsAny(r.URL, "{}"):
		return Recipe{}, fmt.Errorf("its address is not https")
	}
	if _, err := egress.Host(u.Hostname()); err != nil {
		return Recipe{}, fmt.Errorf("its host is not a public name")
	}
	out := Recipe{Kind: pack.Remote, Name: r.URL, Foreign: true}
	out.Env, out.Needs = settings(r.Headers)
	return out, nil
}

// checkVariables refuses variables that only the machine's owner may set.
func checkVariables(env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if pack.MachineVariable(name) {
			return fmt.Errorf("it sets the variable %s, which only you may set", diag.Quote(name))
		}
	}
	return nil
}

// settings returns the values that a registry may set, and the names of those that it
// may not.
func settings(list []Input) (values map[string]string, needs []string) {
	for _, in := range list {
		value := in.Value
		if value == "" {
			value = in.Default
		}
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

func (in Input) label() string {
	if in.Name != "" {
		return in.Name
	}
	return in.ValueHint
}

// words returns an argument's part of the command line, nil if it has no value.
func (in Input) words() []string {
	value := in.Value
	if value == "" {
		value = in.Default
	}
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
