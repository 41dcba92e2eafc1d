package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
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
	run := b.positional(name, p["runtimeArguments"])
	own := b.positional(name, p["packageArguments"])
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

// inputs converts environment variables or headers of a server.json. It leaves out optional inputs without a default.
func (b *builder) inputs(v any) []setting {
	var out []setting
	for _, item := range list(v) {
		o := object(item)
		s := setting{name: text(o["name"]), value: b.substitute(o), secret: isSecret(o), plain: true}
		if s.value == "" && !isRequired(o) {
			b.note(Dropped, s.name, "the variable is optional and is left out; to set it, add it to the manifest")
			continue
		}
		out = append(out, s)
	}
	return out
}

// substitute returns the value or the default of an input, with its variables in the form ${NAME}. It withholds the
// default of a secret.
func (b *builder) substitute(o map[string]any) string {
	fallback := oneText(o["default"])
	if isSecret(o) && fallback != "" {
		b.withhold(fallback)
		b.note(Secret, cmp.Or(text(o["name"]), text(o["valueHint"]), "argument"),
			"the default is not copied, because the value is a secret")
		fallback = ""
	}
	value := cmp.Or(oneText(o["value"]), fallback)
	variables := object(o["variables"])
	for _, name := range sorted(variables) {
		inner := b.substitute(object(variables[name]))
		value = strings.ReplaceAll(value, "{"+name+"}", cmp.Or(inner, "${"+name+"}"))
	}
	return value
}

func isSecret(o map[string]any) bool   { return truth(o["isSecret"]) || truth(o["is_secret"]) }
func isRequired(o map[string]any) bool { return truth(o["isRequired"]) || truth(o["is_required"]) }

// oneText returns a string, a number or a boolean as a string.
func oneText(v any) string {
	switch v := v.(type) {
	case string, json.Number, bool:
		return fmt.Sprint(v)
	}
	return ""
}

// positional returns the arguments of a server.json. A required argument without a value becomes a reference. An
// optional argument without a value is left out, together with its flag.
func (b *builder) positional(server string, v any) []string {
	var out []string
	for _, item := range list(v) {
		o := object(item)
		name, value := text(o["name"]), b.substitute(o)
		what := cmp.Or(name, text(o["valueHint"]), "argument")
		flag := text(o["type"]) == "named"
		switch {
		case flag && text(o["format"]) == "boolean":
			if value == "true" {
				out = append(out, name)
			}
			continue
		case value == "" && !isRequired(o):
			b.note(Dropped, what, "the argument is optional and is left out; to set it, add it to \"args\"")
			continue
		case value == "":
			ref := variable(server + "_" + strings.Trim(what, "-<>"))
			value = "${" + ref + "}"
			b.note(Secret, what, "the argument has no value: set the variable %s", ref)
		}
		if flag {
			out = append(out, name)
		}
		out = append(out, value)
	}
	return out
}
