package findagent

import (
	"strconv"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// foreign maps other formats' names to this dialect's.
var foreign = map[string]string{
	"instructions": "system_prompt", "prompt": "system_prompt", "system": "system_prompt",
	"examples": "example_prompts", "prompts": "example_prompts", "conversation_starters": "example_prompts",
	"credentials": "credential_slots", "secrets": "credential_slots", "title": "name", "display_name": "name",
	"parameters": "input_schema", "args_schema": "input_schema", "hosts": "allowed_hosts", "domains": "allowed_hosts",
	"endpoint": "url", "uri": "url", "verb": "method", "body": "body_template", "auth": "auth_ref",
	"credential": "auth_ref", "id": "ref", "handler": "export", "clients": "targets", "permissions": "guardrails",
	"file": "path", "function": "export", "rails": "guardrails", "limits": "guardrails",
}

type parser struct {
	read.Reader
	// kind is the agent's kind, empty if it is unknown.
	kind  string
	slots index[slot]
	tools index[inputs]
	// dangling is true once an auth_ref has named no slot.
	dangling bool
	// loopback allows hosts on this machine.
	loopback bool
}

// index finds values by name. A short list is searched linearly; a map keeps a long
// one fast.
type index[T any] struct {
	names  []string
	values []*T
	many   map[string]*T
}

func (x *index[T]) get(name string) *T {
	if x.many != nil {
		return x.many[name]
	}
	for i, n := range x.names {
		if n == name {
			return x.values[i]
		}
	}
	return nil
}

func (x *index[T]) grow(n int) {
	x.names, x.values = make([]string, 0, n), make([]*T, 0, n)
}

func (x *index[T]) add(name string, value *T) {
	x.names, x.values = append(x.names, name), append(x.values, value)
	if x.many != nil {
		x.many[name] = value
	} else if len(x.names) > 32 {
		x.many = make(map[string]*T, 64)
		for i, n := range x.names {
			x.many[n] = x.values[i]
		}
	}
}

// Parse parses a manifest and reports every broken rule.
func Parse(root doc.Value, rep *diag.Reporter) *Manifest { return parse(root, rep, false) }

// ParseLoopback is Parse for development: actions and slots may name this machine,
// also over plain http.
func ParseLoopback(root doc.Value, rep *diag.Reporter) *Manifest { return parse(root, rep, true) }

func parse(root doc.Value, rep *diag.Reporter, loopback bool) *Manifest {
	p := &parser{Reader: read.Reader{Reporter: rep, Foreign: foreign, Unknown: diag.UnknownField}, loopback: loopback}
	m := &Manifest{}
	o := p.Object(root)
	m.Schema, _ = o.String("$schema", read.Optional)
	m.Name = p.limited(o.Get("name", read.Required), ruleName, nameLeast, nameMost)
	m.Description = p.limited(o.Get("description", read.Optional), ruleDescription, 0, descriptionMost)
	m.SystemPrompt = p.limited(o.Get("system_prompt", read.Required), ruleSystemPrompt, promptLeast, promptMost)
	m.Version, _ = o.String("version", read.Optional)
	m.Category, _ = o.String("category", read.Optional)
	m.ExamplePrompts = p.examples(o)
	m.Compatibility = p.compatibility(o)

	p.kind = kinds[0]
	if v := o.Get("kind", read.Optional); v.Ok() {
		p.kind = ""
		if p.Is(v, doc.String) && p.OneOf(v, kinds) {
			p.kind = v.Text()
		}
		m.Kind = p.kind
	}
	m.CredentialSlots = p.readSlots(o)
	m.Tools = p.readTools(o)
	m.Guardrails = p.guardrails(o)
	p.delivery(o, m)
	p.skills(o, m)
	p.bundle(o, m)
	if o.Ok() {
		p.perKind(o, m)
		p.unusedSlots()
	}
	o.Done()
	return m
}

// limited reads a text of least to most characters.
func (p *parser) limited(v doc.Value, rule *diag.Rule, least, most int) string {
	if !p.Is(v, doc.String) {
		return ""
	}
	n := utf8.RuneCountInString(v.Text())
	switch {
	case n < least:
		p.Report(rule, v.Place(), "", "%s has %s; it needs at least %d", diag.Quote(v.Key()), count(n, "character"), least)
	case n > most:
		p.Report(rule, v.Place(), "", "%s has %d characters; it can have at most %d", diag.Quote(v.Key()), n, most)
	}
	return v.Text()
}

func (p *parser) examples(o *read.Object) []string {
	list := o.Get("example_prompts", read.Required)
	if list.Is(doc.Array) && (list.Len() == 0 || list.Len() > examplesMost) {
		p.Report(ruleExamples, list.Place(), "", "example_prompts lists %s; it can have 1 to %d", count(list.Len(), "prompt"), examplesMost)
	}
	if !p.Is(list, doc.Array) {
		return nil
	}
	prompts := p.Room(list.Len())
	for v := range list.Each() {
		switch {
		case !p.Is(v, doc.String):
		case v.Text() == "":
			p.Report(diag.EmptyText, v.Place(), "", "an example prompt is empty")
		default:
			prompts = append(prompts, v.Text())
		}
	}
	return prompts
}

func (p *parser) compatibility(o *read.Object) map[string]string {
	v := o.Get("compatibility", read.Optional)
	if !v.Ok() {
		return nil
	}
	c := p.Object(v)
	hints := map[string]string{}
	for _, client := range []string{"claude", "chatgpt", "gemini"} {
		if hint, ok := c.Text(client, read.Optional); ok {
			hints[client] = hint
		}
	}
	c.Done()
	return hints
}

// kindFields are the fields that apply to some kinds only.
var kindFields = []struct {
	key   string
	kinds [2]string
}{
	{"skills_source", [2]string{"skills-bundle"}},
	{"router_skill_id", [2]string{"skills-bundle"}},
	{"skills", [2]string{"skills-bundle", "code-bundle"}},
	{"entrypoint", [2]string{"code-bundle"}},
	{"runtime", [2]string{"code-bundle"}},
	{"allowed_hosts", [2]string{"code-bundle"}},
	{"mcp", [2]string{"code-bundle"}},
	{"ui", [2]string{"code-bundle"}},
	{"env", [2]string{"code-bundle"}},
}

// perKind checks the fields that the agent's kind requires and allows.
func (p *parser) perKind(o *read.Object, m *Manifest) {
	if p.kind == "" {
		return
	}
	root := o.Value()
	for _, f := range kindFields {
		if v := root.Get(f.key); v.Ok() && p.kind != f.kinds[0] && p.kind != f.kinds[1] {
			hint := `set "kind": ` + diag.Quote(f.kinds[0]) + ", or remove it"
			p.Report(ruleOtherKind, v.KeyPlace(), hint, "%s has no effect on an agent of kind %s", diag.Quote(f.key), diag.Quote(p.kind))
		}
	}
	action := firstAction(root.Get("tools"))
	switch p.kind {
	case "static-recipe":
		if action.Ok() {
			p.Report(ruleRecipeActions, action.KeyPlace(), "", "the tool has an action, but the agent is a static recipe")
		}
	case "mcp-tool":
		if !action.Ok() {
			p.Report(ruleNeedsAction, p.missing(root, "tools"), "", "an mcp-tool agent needs at least one tool with an action")
		}
	case "skills-bundle":
		if !root.Get("skills_source").Ok() {
			p.Report(ruleNeedsSkills, p.missing(root, "skills_source"), "", `a skills-bundle needs "skills_source"`)
		}
		if list := root.Get("skills"); !list.Ok() || list.Is(doc.Array) && list.Len() == 0 {
			p.Report(ruleNeedsSkills, p.missing(root, "skills"), "", `a skills-bundle needs at least one skill in "skills"`)
		}
	case "code-bundle":
		for _, key := range []string{"entrypoint", "runtime", "mcp"} {
			if !root.Get(key).Ok() {
				p.Report(ruleNeedsCode, p.missing(root, key), "", "a code-bundle needs %s", diag.Quote(key))
			}
		}
		if action.Ok() {
			p.Report(ruleBundleActions, action.KeyPlace(), "", "the tool has an action, but the bundle's code does its work")
		}
	}
}

// firstAction finds the first tool with an action.
func firstAction(tools doc.Value) doc.Value {
	for t := range tools.Each() {
		if a := t.Get("action"); a.Ok() {
			return a
		}
	}
	return doc.Value{}
}

// missing is the location for reporting a missing or empty member.
func (p *parser) missing(in doc.Value, key string) diag.Place {
	if v := in.Get(key); v.Ok() {
		return v.Place()
	}
	at := in.Head()
	at.Pointer += "/" + key
	return at
}

// meant returns a hint with the candidate that s was meant to be. It returns "" if there
// are very many candidates or problems.
func (p *parser) meant(s string, candidates []string) string {
	if len(candidates) > 200 || p.Errors() > 200 {
		return ""
	}
	return diag.DidYouMean(s, candidates)
}

// isWord reports whether the first byte of s satisfies first and the others satisfy
// rest.
func isWord(s string, first, rest func(byte) bool) bool {
	for i := range len(s) {
		if i == 0 && !first(s[i]) || i > 0 && !rest(s[i]) {
			return false
		}
	}
	return s != ""
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isName(c byte) bool   { return isLetter(c) || isDigit(c) || c == '_' || c == '-' || c == '.' }
func isUpper(c byte) bool  { return 'A' <= c && c <= 'Z' }

// isUpperSnake reports whether s is an environment variable in UPPER_SNAKE.
func isUpperSnake(s string) bool {
	return isWord(s, isUpper, func(c byte) bool { return isUpper(c) || isDigit(c) || c == '_' })
}

// count formats a number and a noun.
func count(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return strconv.Itoa(n) + " " + word
}
