package findagent

import (
	"regexp"
	"sync"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// bundle reads the fields of a code bundle.
func (p *parser) bundle(o *read.Object, m *Manifest) {
	m.Entrypoint = p.entrypoint(o.Get("entrypoint", read.Optional))
	m.Runtime = p.runtime(o.Get("runtime", read.Optional))
	m.AllowedHosts = p.hosts(o.Get("allowed_hosts", read.Optional))
	m.MCP = p.mcp(o.Get("mcp", read.Optional))
	m.UI = p.ui(o.Get("ui", read.Optional))
	m.Env = p.env(o.Get("env", read.Optional))
}

func (p *parser) entrypoint(v doc.Value) *Entrypoint {
	if v.Is(doc.String) {
		p.Report(diag.WrongType, v.Place(), `write {"path": `+diag.Quote(v.Text())+`}`, `"entrypoint" must be an object, not a string`)
		return nil
	}
	if !p.Is(v, doc.Object) {
		return nil
	}
	o := p.Object(v)
	e := &Entrypoint{Path: p.path(o.Get("path", read.Required), rulePath)}
	if name, ok := o.String("export", read.Optional); ok {
		first := func(c byte) bool { return isLetter(c) || c == '_' || c == '$' }
		if e.Export = name; !isWord(name, first, func(c byte) bool { return first(c) || isDigit(c) }) {
			p.Report(ruleExport, v.Get("export").Place(), "", "%s is not a name that a file can export", diag.Quote(name))
		}
	}
	o.Done()
	return e
}

// runtimeVersion matches 20, 3.12, 18.x and >=18 <21.
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
		p.Report(ruleNativeCommand, p.missing(v, "command"), "", `an mcp of mode "native" needs "command"`)
	}
	m.Command, _ = o.Text("command", read.Optional)
	m.Args = o.AnyTexts("args", read.Optional)
	o.Done()
	if m.Mode == "wrap" {
		for _, key := range []string{"command", "args"} {
			if c := v.Get(key); c.Ok() {
				p.Report(ruleWrapCommand, c.KeyPlace(), "", "%s has no effect on a bundle that is wrapped", diag.Quote(key))
			}
		}
	}
	return m
}

func (p *parser) ui(v doc.Value) string {
	if !v.Is(doc.Object) {
		return p.path(v, rulePath)
	}
	o := p.Object(v)
	path := p.path(o.Get("path", read.Required), rulePath)
	o.Done()
	return path
}

// env reads settings in either form: a list of names with descriptions, or an
// object of descriptions by name.
func (p *parser) env(v doc.Value) []EnvVar {
	var env []EnvVar
	var taken read.Seen
	switch v.Kind() {
	case doc.Absent:
	case doc.Object:
		for m := range v.Each() {
			p.envName(m.Key(), m.KeyPlace, &taken)
			p.Is(m, doc.String)
			env = append(env, EnvVar{m.Key(), m.Text()})
		}
	case doc.Array:
		for m := range v.Each() {
			var e EnvVar
			o := p.Object(m)
			if name, ok := o.String("name", read.Required); ok {
				e.Name = name
				p.envName(name, m.Get("name").Place, &taken)
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

func (p *parser) envName(name string, at func() diag.Place, taken *read.Seen) {
	switch {
	case !isUpperSnake(name):
		hint := ""
		if upper := upperSnake(name); isUpperSnake(upper) {
			hint = "write " + diag.Quote(upper)
		}
		p.Report(ruleEnvName, at(), hint, "%s is not the name of a setting", diag.Quote(name))
	case secretlike.Name(name):
		p.Report(ruleEnvSecret, at(), "", "%s is the name of a secret, and env is for settings that are none", diag.Quote(name))
	case !taken.Add(name):
		p.Report(ruleDuplicateSetting, at(), "", "the setting %s is listed twice", diag.Quote(name))
	}
}

// envValues looks for a secret in fields that a setting does not have.
func (p *parser) envValues(setting doc.Value) {
	for _, key := range []string{"value", "default"} {
		v := setting.Get(key)
		if f := secretlike.Find(v.Text()); f.Found() {
			at := v.Place()
			p.Source.Mask(at.Start, at.End)
			p.Report(ruleEnvSecret, at, "", "this looks like a secret: %s", f.Kind)
		}
	}
}
