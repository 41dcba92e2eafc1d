package findagent

import (
	"strconv"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// foreignNames maps field names of other formats to field names of this dialect.
var foreignNames = map[string]string{
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
	// kind is the agent's kind, or empty for an unknown kind.
	kind  string
	slots map[string]*slot
	tools map[string]*inputs
	// dangling is set if an auth_ref names a credential slot that does not exist.
	dangling bool
	// If loopback is set, actions and credential slots can name hosts on this machine.
	loopback bool
}

// Parse parses a manifest and reports every broken rule.
func Parse(root doc.Value, rep *diag.Reporter) *Manifest { return parse(root, rep, false) }

// ParseLoopback is like [Parse], but for development. Actions and credential slots can name hosts on this machine.
// Actions can use plain http for these hosts.
func ParseLoopback(root doc.Value, rep *diag.Reporter) *Manifest { return parse(root, rep, true) }

func parse(root doc.Value, rep *diag.Reporter, loopback bool) *Manifest {
	p := &parser{Reader: read.Reader{Reporter: rep, Foreign: foreignNames, Unknown: diag.UnknownField}, loopback: loopback}
	m := &Manifest{}
	o := p.Object(root)
	m.Schema, _ = o.String("$schema", read.Optional)
	m.Name = p.limitedText(o.Get("name", read.Required), ruleName, nameLeast, nameMost)
	m.Description = p.limitedText(o.Get("description", read.Optional), ruleDescription, 0, descriptionMost)
	m.SystemPrompt = p.limitedText(o.Get("system_prompt", read.Required), ruleSystemPrompt, promptLeast, promptMost)
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
		p.unusedSlots(m.CredentialSlots)
	}
	o.Done()
	return m
}

// limitedText returns the text of a value. It reports a text that has too few or too many characters.
func (p *parser) limitedText(v doc.Value, rule *diag.Rule, minimum, maximum int) string {
	if !p.Is(v, doc.String) {
		return ""
	}
	n := utf8.RuneCountInString(v.Text())
	switch {
	case n < minimum:
		p.Report(rule, v.Place(), "", "%s has %s, but it must have at least %d", diag.Quote(v.Key()), countOf(n, "character"),
			minimum)
	case n > maximum:
		p.Report(rule, v.Place(), "", "%s has %d characters, but at most %d are allowed", diag.Quote(v.Key()), n, maximum)
	}
	return v.Text()
}

func (p *parser) examples(o *read.Object) []string {
	list := o.Get("example_prompts", read.Required)
	if list.Is(doc.Array) && (list.Len() == 0 || list.Len() > examplesMost) {
		p.Report(ruleExamples, list.Place(), "", "example_prompts lists %s, but it must list 1 to %d",
			countOf(list.Len(), "prompt"), examplesMost)
	}
	if !p.Is(list, doc.Array) {
		return nil
	}
	prompts := p.MakeStrings(list.Len())
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

// kindFields lists the fields that apply only to certain kinds of agents.
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

// perKind checks that the manifest has all required fields for the agent's kind. It reports fields that have no effect
// on that kind.
func (p *parser) perKind(o *read.Object, m *Manifest) {
	if p.kind == "" {
		return
	}
	root := o.Value()
	for _, f := range kindFields {
		if v := root.Get(f.key); v.Ok() && p.kind != f.kinds[0] && p.kind != f.kinds[1] {
			hint := `set "kind": ` + diag.Quote(f.kinds[0]) + ", or remove the field"
			p.Report(ruleOtherKind, v.KeyPlace(), hint, "%s has no effect on an agent of kind %s", diag.Quote(f.key),
				diag.Quote(p.kind))
		}
	}
	action := firstAction(root.Get("tools"))
	switch p.kind {
	case "static-recipe":
		if action.Ok() {
			p.Report(ruleRecipeActions, action.KeyPlace(), "", "the tool has an action, but the agent is a static recipe")
		}
	case "mcp-tool":
		if !action.Ok() && !m.hosted() {
			p.Report(ruleNeedsAction, p.missingAt(root, "tools"), "", "an mcp-tool agent needs at least one tool with an action")
		}
	case "skills-bundle":
		if !root.Get("skills_source").Ok() {
			p.Report(ruleNeedsSkills, p.missingAt(root, "skills_source"), "", `a skills-bundle needs "skills_source"`)
		}
		if list := root.Get("skills"); !list.Ok() || list.Is(doc.Array) && list.Len() == 0 {
			p.Report(ruleNeedsSkills, p.missingAt(root, "skills"), "", `a skills-bundle needs at least one skill in "skills"`)
		}
	case "code-bundle":
		for _, key := range []string{"entrypoint", "runtime", "mcp"} {
			if !root.Get(key).Ok() {
				p.Report(ruleNeedsCode, p.missingAt(root, key), "", "a code-bundle needs %s", diag.Quote(key))
			}
		}
		if action.Ok() {
			p.Report(ruleBundleActions, action.KeyPlace(), "",
				"the tool has an action, but the bundle's code implements the tool")
		}
	}
}

// firstAction returns the first action in a list of tools.
func firstAction(tools doc.Value) doc.Value {
	for t := range tools.Each() {
		if a := t.Get("action"); a.Ok() {
			return a
		}
	}
	return doc.Value{}
}

// missingAt returns the location at which to report a missing or empty member.
func (p *parser) missingAt(in doc.Value, key string) diag.Place {
	if v := in.Get(key); v.Ok() {
		return v.Place()
	}
	return in.MissingPlace(key)
}

// isWord reports whether a string is not empty and contains only allowed bytes. The first callback checks the first
// byte, and the second callback checks all other bytes.
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

// isUpperSnake reports whether a string is an environment variable name in UPPER_SNAKE case.
func isUpperSnake(s string) bool {
	return isWord(s, isUpper, func(c byte) bool { return isUpper(c) || isDigit(c) || c == '_' })
}

// countOf formats a number with a noun, as in "1 tool" or "2 tools".
func countOf(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return strconv.Itoa(n) + " " + word
}
