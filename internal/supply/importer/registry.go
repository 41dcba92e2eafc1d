package importer

import (
	"cmp"
	"path"
	"strings"
)

// registry converts a server.json of the MCP registry: the first usable package, else
// the first address.
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
		b.note(Dropped, "package "+text(p["identifier"]), "another way to run the same server")
	}
	for _, item := range list(root["remotes"]) {
		r := object(item)
		if s != nil {
			b.note(Dropped, "remote", "another way to reach the same server")
			continue
		}
		s = &server{name: name, url: text(r["url"]), sse: text(r["type"]) == "sse", headers: b.inputs(r["headers"])}
	}
	if s == nil {
		return nil, fail("", "the server has no package or address that can be used")
	}
	if s.version == "" {
		s.version = text(root["version"])
	}
	return b.matrixOf("a registry's server.json", name, cmp.Or(text(root["description"]), "Imported from the MCP registry."), []server{*s})
}

func (b *builder) registryPackage(name string, p map[string]any) *server {
	id, version := text(p["identifier"]), text(p["version"])
	if id == "" {
		id = text(p["name"]) // the form of 2025
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
		s.args = append(append([]string{"-y"}, without(run, "-y")...), append([]string{at(id, "@", version)}, own...)...)
	case "pypi":
		s.command = "uvx"
		s.args = append(run, append([]string{at(id, "==", version)}, own...)...)
	case "oci":
		s.command = "docker"
		s.args = append([]string{"run", "-i", "--rm"}, without(without(without(run, "run"), "-i"), "--rm")...)
		for _, e := range s.env {
			s.args = append(s.args, "-e", e.name)
		}
		s.args = append(s.args, append([]string{at(id, ":", version)}, own...)...)
	default:
		return nil
	}
	return s
}

// at returns a package with its version, which its name may already contain.
func at(id, separator, version string) string {
	if version == "" || strings.Contains(strings.TrimPrefix(id, "@"), separator) {
		return id
	}
	return id + separator + version
}

func without(list []string, word string) []string {
	var out []string
	for _, s := range list {
		if s != word {
			out = append(out, s)
		}
	}
	return out
}

// inputs returns variables or headers.
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
			b.note(Secret, s.name, "its default is not copied")
		}
		out = append(out, s)
	}
	return out
}

// positional returns the arguments that have a value; people add the others.
func (b *builder) positional(v any) []string {
	var out []string
	for _, item := range list(v) {
		o := object(item)
		value := cmp.Or(text(o["value"]), text(o["default"]))
		name := text(o["name"])
		switch {
		case truth(o["isSecret"]):
			b.withhold(value)
			b.note(Secret, cmp.Or(name, text(o["valueHint"]), "argument"), "a secret on the command line is not copied: pass it through the environment")
		case text(o["type"]) == "named" && value != "":
			out = append(out, name, value)
		case text(o["type"]) == "named" && !truth(o["isRequired"]) && value == "":
			b.note(Dropped, name, "an argument that has no value yet")
		case value != "":
			out = append(out, value)
		default:
			b.note(Dropped, cmp.Or(name, text(o["valueHint"]), "argument"), "an argument that has no value yet: add it to args")
		}
	}
	return out
}
