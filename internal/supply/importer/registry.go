package importer

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// registry converts a server.json from the MCP registry. It uses the first package that ambit can use. If there is no
// such package, it uses the first remote address.
func (b *builder) registry(root map[string]any) (*Result, error) {
	full := text(root["name"])
	name := cmp.Or(path.Base(full), "server")
	var s *server
	for _, item := range list(root["packages"]) {
		p := object(item)
		if s == nil {
			if s = b.registryPackage(name, p); s != nil {
				continue
			}
		}
		b.note(Dropped, "package "+text(p["identifier"]),
			"the package is not used, because the manifest uses a different package or address")
	}
	for _, item := range list(root["remotes"]) {
		r := object(item)
		if s != nil {
			b.note(Dropped, "remote", "the address is not used, because the manifest uses a different package or address")
			continue
		}
		s = &server{name: name, url: text(r["url"]), sse: text(r["type"]) == "sse", headers: b.inputs(r["headers"])}
	}
	if s == nil {
		return nil, fail("", "the server has neither a usable package nor an address")
	}
	if s.version == "" {
		s.version = text(root["version"])
	}
	return b.matrixOf("a registry's server.json", name,
		cmp.Or(text(root["description"]), "Imported from the MCP registry."), []server{*s})
}

func (b *builder) registryPackage(name string, p map[string]any) *server {
	id, version := text(p["identifier"]), text(p["version"])
	if id == "" {
		id = text(p["name"]) // the name of this key in the 2025 format
	}
	if t := text(object(p["transport"])["type"]); t != "" && t != "stdio" {
		return nil
	}
	s := &server{name: name, version: version, env: b.inputs(p["environmentVariables"])}
	run := b.positional(p["runtimeArguments"])
	own := b.positional(p["packageArguments"])
	switch strings.ToLower(cmp.Or(text(p["registryType"]), text(p["registry_type"]), text(p["registry_name"]))) {
	case "npm":
		s.command = "npx"
		s.args = append(append([]string{"-y"}, without(run, "-y")...), append([]string{join(id, "@", version)}, own...)...)
	case "pypi":
		s.command = "uvx"
		s.args = append(run, append([]string{join(id, "==", version)}, own...)...)
	case "oci":
		s.command = "docker"
		s.args = append([]string{"run", "-i", "--rm"}, without(run, "run", "-i", "--rm")...)
		for _, e := range s.env {
			s.args = append(s.args, "-e", e.name)
		}
		s.args = append(s.args, append([]string{join(id, ":", version)}, own...)...)
	default:
		return nil
	}
	return s
}

// join joins a package id and a version with the separator. It returns id unchanged if version is empty or if id
// already contains a version.
func join(id, separator, version string) string {
	if version == "" || strings.Contains(strings.TrimPrefix(id, "@"), separator) {
		return id
	}
	return id + separator + version
}

func without(list []string, words ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(words, s) })
}

func (b *builder) inputs(v any) []setting {
	var out []setting
	for _, item := range list(v) {
		o := object(item)
		s := setting{name: text(o["name"]), value: text(o["value"]), secret: truth(o["isSecret"]) || truth(o["is_secret"])}
		if s.value == "" && !s.secret {
			s.value = text(o["default"])
		}
		if d := text(o["default"]); s.secret && d != "" {
			b.withhold(d)
			b.note(Secret, s.name, "the default is not copied, because the value is a secret")
		}
		out = append(out, s)
	}
	return out
}

// positional returns the arguments that have a value. It skips secret arguments and arguments without a value, and
// adds a note for each of them.
func (b *builder) positional(v any) []string {
	var out []string
	for _, item := range list(v) {
		o := object(item)
		value := cmp.Or(text(o["value"]), text(o["default"]))
		name := text(o["name"])
		switch {
		case truth(o["isSecret"]) || truth(o["is_secret"]):
			b.withhold(value)
			b.note(Secret, cmp.Or(name, text(o["valueHint"]), "argument"),
				"the argument is a secret and is not copied: pass the value in an environment variable")
		case text(o["type"]) == "named" && value != "":
			out = append(out, name, value)
		case text(o["type"]) == "named" && !truth(o["isRequired"]) && value == "":
			b.note(Dropped, name, "the optional argument has no value")
		case value != "":
			out = append(out, value)
		default:
			b.note(Dropped, cmp.Or(name, text(o["valueHint"]), "argument"),
				"the argument has no value: choose a value and add the argument to \"args\"")
		}
	}
	return out
}
