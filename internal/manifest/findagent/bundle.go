package findagent

import (
	"regexp"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

func (p *parser) bundle(o *read.Object, m *Manifest) {
	m.Entrypoint = p.entrypoint(o.Get("entrypoint", read.Optional))
	m.Runtime = p.runtime(o.Get("runtime", read.Optional))
	m.AllowedHosts = p.parseHosts(o.Get("allowed_hosts", read.Optional))
	m.MCP = p.mcp(o.Get("mcp", read.Optional))
	m.UI = p.ui(o.Get("ui", read.Optional))
	m.Env = p.env(o.Get("env", read.Optional))
}

func (p *parser) entrypoint(v doc.Value) *Entrypoint {
	if v.Is(doc.String) {
		p.Report(diag.WrongType, v.Place(), `write {"path": `+diag.Quote(v.Text())+`}`,
			`"entrypoint" must be an object, not a string`)
		return nil
	}
	if !p.Is(v, doc.Object) {
		return nil
	}
	o := p.Object(v)
	e := &Entrypoint{Path: p.relativePath(o.Get("path", read.Required), rulePath)}
	if name, ok := o.String("export", read.Optional); ok {
		first := func(c byte) bool { return isLetter(c) || c == '_' || c == '$' }
		if e.Export = name; !isWord(name, first, func(c byte) bool { return first(c) || isDigit(c) }) {
			p.Report(ruleExport, v.Get("export").Place(), "", "%s is not a valid function name", diag.Quote(name))
		}
	}
	o.Done()
	return e
}

// runtimeVersion matches versions and ranges such as 20, 3.12, 18.x and >=18 <21.
var runtimeVersion = sync.OnceValue(func() *regexp.Regexp {
	const one = `(?:[<>]=?|[=^~])?[0-9]+(?:\.(?:[0-9]+|x|\*)){0,2}`
	return regexp.MustCompile(`^` + one + `(?: ` + one + `){0,3}$`)
})

func (p *parser) runtime(v doc.Value) *Runtime {
	if !p.Is(v, doc.Object) {
		return nil
	}
	o := p.Object(v)
	r := &Runtime{}
	r.Kind, _ = o.Enum("kind", read.Required, []string{"node", "python"})
	if version, ok := o.String("version", read.Optional); ok {
		if r.Version = version; !runtimeVersion().MatchString(version) {
			p.Report(ruleRuntimeVersion, v.Get("version").Place(), "", "%s is not a version", diag.Quote(version))
		}
	}
	o.Done()
	return r
}

func (p *parser) mcp(v doc.Value) *MCP {
	if !p.Is(v, doc.Object) {
		return nil
	}
	o := p.Object(v)
	m := &MCP{}
	m.Mode, _ = o.Enum("mode", read.Required, []string{"wrap", "native"})
	if m.Mode == "native" && !v.Get("command").Ok() {
		p.Report(ruleNativeCommand, p.missingAt(v, "command"), "", `"mcp" with the mode "native" needs "command"`)
	}
	m.Command, _ = o.Text("command", read.Optional)
	m.Args = o.AnyTexts("args", read.Optional)
	o.Done()
	if m.Mode == "wrap" {
		for _, key := range []string{"command", "args"} {
			if c := v.Get(key); c.Ok() {
				p.Report(ruleWrapCommand, c.KeyPlace(), "", "%s has no effect on a wrapped bundle", diag.Quote(key))
			}
		}
	}
	return m
}

func (p *parser) ui(v doc.Value) string {
	if !v.Is(doc.Object) {
		return p.relativePath(v, rulePath)
	}
	o := p.Object(v)
	path := p.relativePath(o.Get("path", read.Required), rulePath)
	o.Done()
	return path
}

// env parses the settings of a bundle. The settings can be a list of objects with a name and a description. They can
// also be an object that maps names to descriptions.
func (p *parser) env(v doc.Value) []agent.EnvVar {
	var env []agent.EnvVar
	var seen read.Seen
	switch v.Kind() {
	case doc.Absent:
	case doc.Object:
		for m := range v.Each() {
			p.envName(m.Key(), m.KeyPlace, &seen)
			p.Is(m, doc.String)
			env = append(env, agent.EnvVar{Name: m.Key(), Description: m.Text()})
		}
	case doc.Array:
		for m := range v.Each() {
			var e agent.EnvVar
			o := p.Object(m)
			if name, ok := o.String("name", read.Required); ok {
				e.Name = name
				p.envName(name, m.Get("name").Place, &seen)
			}
			e.Description, _ = o.String("description", read.Optional)
			p.envValues(m)
			o.Done()
			env = append(env, e)
		}
	default:
		p.Report(diag.WrongType, v.Place(), "", `"env" must be a list or an object, not %s`, v.Kind())
	}
	return env
}

func (p *parser) envName(name string, at func() diag.Place, seen *read.Seen) {
	switch {
	case !isUpperSnake(name):
		hint := ""
		if upper := upperSnake(name); isUpperSnake(upper) {
			hint = "write " + diag.Quote(upper)
		}
		p.Report(ruleEnvName, at(), hint, "%s is not a valid name for a setting", diag.Quote(name))
	case secretlike.Name(name):
		p.Report(ruleEnvSecret, at(), "", "%s looks like the name of a secret, but \"env\" must not contain secrets",
			diag.Quote(name))
	case !seen.Add(name):
		p.Report(ruleDuplicateSetting, at(), "", "the setting %s is listed twice", diag.Quote(name))
	}
}

// envValues reports a secret in "value" or "default". A setting has neither field, but people add them by mistake.
func (p *parser) envValues(setting doc.Value) {
	for _, key := range []string{"value", "default"} {
		v := setting.Get(key)
		if f := secretlike.Find(v.Text()); f.Found() {
			at := v.Place()
			p.Source.Mask(at.Start, at.End)
			p.Report(ruleEnvSecret, at, "", "this value looks like a secret: %s", f.Kind)
		}
	}
}
