package importer

import (
	"cmp"
	"regexp"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/findagent"
)

// The limits of FindAgent, in characters.
const (
	leastName, mostName     = 3, 80
	mostDescription         = 4000
	leastPrompt, mostPrompt = 50, 20_000
)

// findAgent fills in what every FindAgent manifest has, within its limits.
func (b *builder) findAgent(name, description, prompt string) findagent.Manifest {
	m := findagent.Manifest{Name: cut(strings.TrimSpace(b.scrub(name)), mostName), Description: cut(strings.TrimSpace(b.scrub(description)), mostDescription)}
	if utf8.RuneCountInString(m.Name) < leastName {
		m.Name = "Imported agent"
		b.note(Guessed, "name", "there was none that can be used")
	}
	prompt = strings.TrimSpace(b.scrub(prompt))
	if n := utf8.RuneCountInString(prompt); n > mostPrompt {
		b.note(Dropped, "system_prompt", "it had %d characters, of which %d are kept", n, mostPrompt)
		prompt = cut(prompt, mostPrompt)
	} else if n < leastPrompt {
		prompt = strings.TrimSpace(prompt + "\n\nYou are the agent " + m.Name + ". Do what you are asked within your task, and say so when something lies outside of it.")
		b.note(Guessed, "system_prompt", "it was too short, and a general sentence is added")
	}
	m.SystemPrompt = prompt
	return m
}

// cut shortens a text to so many characters.
func cut(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return strings.TrimSpace(string([]rune(s)[:most]))
}

// frontMatter splits a Markdown file. What is not YAML counts as none.
func frontMatter(doc string) (fields map[string]any, body string) {
	doc = strings.ReplaceAll(doc, "\r\n", "\n")
	rest, ok := strings.CutPrefix(doc, "---\n")
	if !ok {
		return nil, doc
	}
	head, body, ok := strings.Cut(rest, "\n---")
	if !ok {
		return nil, doc
	}
	_, body, _ = strings.Cut(body, "\n")
	var raw any
	if err := yaml.Unmarshal([]byte(head), &raw); err == nil {
		if p, err := plain(raw, 0); err == nil && object(p) != nil {
			return object(p), body
		}
	}
	return looseFields(head), body
}

var looseField = regexp.MustCompile(`(?m)^([A-Za-z][\w-]*):[ \t]*(.*)$`)

// looseFields takes front matter that people write and YAML does not: a colon
// in a description.
func looseFields(head string) map[string]any {
	fields := map[string]any{}
	for _, m := range looseField.FindAllStringSubmatch(head, -1) {
		fields[m[1]] = strings.Trim(m[2], `"' `)
	}
	return fields
}

// subagent makes a recipe of a Claude sub-agent: its text is the prompt.
func (b *builder) subagent(name string, raw []byte) (*Result, error) {
	if !utf8.Valid(raw) {
		return nil, fail("save the file as UTF-8", "it is not UTF-8 text")
	}
	fields, body := frontMatter(string(raw))
	if strings.TrimSpace(body) == "" {
		return nil, fail("", "it has no text that could be a prompt")
	}
	title := cmp.Or(text(fields["name"]), name)
	m := b.findAgent(title, text(fields["description"]), body)
	m.Kind = string(agent.StaticRecipe)
	m.ExamplePrompts = []string{cut("Use "+m.Name+" for this: …", 200)}
	b.note(Guessed, "example_prompts", "write one to five that show what to ask for")
	for _, key := range sorted(fields) {
		switch key {
		case "name", "description":
		case "tools", "disallowedTools", "allowed-tools":
			b.note(Dropped, key, "the tools of the client are not the agent's: the client decides on them")
		case "model":
			b.note(Dropped, key, "the client chooses the model")
		case "mcpServers":
			b.note(Dropped, key, "import the servers on their own: a recipe starts none")
		default:
			b.note(Dropped, key, "it has no counterpart")
		}
	}
	out, err := encode(m)
	return &Result{Source: "a Claude sub-agent", Dialect: agent.FindAgent, Name: agent.Slug(m.Name), Text: out, Next: "inspect"}, err
}
