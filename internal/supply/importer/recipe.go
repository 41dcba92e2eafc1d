package importer

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/findagent"
	"github.com/ambit-run/ambit/internal/supply/skill"
)

// The limits of FindAgent, in characters.
const (
	minName, maxName     = 3, 80
	maxDescription       = 4000
	minPrompt, maxPrompt = 50, 20_000
)

// findAgent fills in the fields that every FindAgent manifest has, within their
// limits.
func (b *builder) findAgent(name, description, prompt string) findagent.Manifest {
	m := findagent.Manifest{Name: cut(strings.TrimSpace(b.scrub(name)), maxName), Description: cut(strings.TrimSpace(b.scrub(description)), maxDescription)}
	if utf8.RuneCountInString(m.Name) < minName {
		m.Name = "Imported agent"
		b.note(Guessed, "name", "there was no usable name")
	}
	prompt = strings.TrimSpace(b.scrub(prompt))
	if n := utf8.RuneCountInString(prompt); n > maxPrompt {
		b.note(Dropped, "system_prompt", "it had %d characters; the first %d are kept", n, maxPrompt)
		prompt = cut(prompt, maxPrompt)
	} else if n < minPrompt {
		prompt = strings.TrimSpace(prompt + "\n\nYou are the agent " + m.Name + ". Do what the user asks within your task, and say when a request is outside of it.")
		b.note(Guessed, "system_prompt", "it was too short; a general sentence is added")
	}
	m.SystemPrompt = prompt
	return m
}

// cut shortens a text to at most most characters.
func cut(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return strings.TrimSpace(string([]rune(s)[:most]))
}

// subagent converts a Claude sub-agent: its text is the prompt.
func (b *builder) subagent(name string, raw []byte) (*Result, error) {
	if !utf8.Valid(raw) {
		return nil, fail("save the file as UTF-8", "it is not UTF-8 text")
	}
	fields, body := skill.FrontMatter(string(raw))
	if strings.TrimSpace(body) == "" {
		return nil, fail("", "the file has no text for a prompt")
	}
	title := cmp.Or(fields["name"], name)
	m := b.findAgent(title, fields["description"], body)
	m.Kind = string(agent.StaticRecipe)
	m.ExamplePrompts = []string{cut("Use "+m.Name+" for this: …", 200)}
	b.note(Guessed, "example_prompts", "write one to five example requests")
	for _, key := range sorted(fields) {
		switch key {
		case "name", "description":
		case "tools", "disallowedTools", "allowed-tools":
			b.note(Dropped, key, "these are the client's tools, not the agent's")
		case "model":
			b.note(Dropped, key, "the client chooses the model")
		case "mcpServers":
			b.note(Dropped, key, "import the servers separately: a recipe starts none")
		default:
			b.note(Dropped, key, "it has no counterpart")
		}
	}
	out, err := encode(m)
	return &Result{Source: "a Claude sub-agent", Dialect: agent.FindAgent, Name: agent.Slug(m.Name), Text: out, Next: "inspect"}, err
}
