package importer

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/findagent"
	"github.com/ambit-run/ambit/internal/supply/skill"
)

// Limits of FindAgent manifests, in characters.
const (
	minName, maxName     = 3, 80
	maxDescription       = 4000
	minPrompt, maxPrompt = 50, 20_000
)

// findAgent returns a FindAgent manifest with the given name, description and prompt. Texts that are too long or too
// short for the format are shortened or extended.
func (b *builder) findAgent(name, description, prompt string) findagent.Manifest {
	m := findagent.Manifest{
		Name:        cut(strings.TrimSpace(b.scrub(name)), maxName),
		Description: cut(strings.TrimSpace(b.scrub(description)), maxDescription),
	}
	if utf8.RuneCountInString(m.Name) < minName {
		m.Name = "Imported agent"
		b.note(Guessed, "name", "the input has no usable name; this name is a placeholder")
	}
	prompt = strings.TrimSpace(b.scrub(prompt))
	if n := utf8.RuneCountInString(prompt); n > maxPrompt {
		b.note(Dropped, "system_prompt", "the prompt has %d characters; only the first %d are copied", n, maxPrompt)
		prompt = cut(prompt, maxPrompt)
	} else if n < minPrompt {
		prompt = strings.TrimSpace(prompt + "\n\nYou are the agent " + m.Name +
			". Do what the user asks within your task, and say so when a request is outside your task.")
		b.note(Guessed, "system_prompt", "the prompt was too short, so a general sentence was added")
	}
	m.SystemPrompt = prompt
	return m
}

func cut(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return strings.TrimSpace(string([]rune(s)[:limit]))
}

// subagent converts a Claude sub-agent. The text of the file becomes the prompt.
func (b *builder) subagent(name string, raw []byte) (*Result, error) {
	if !utf8.Valid(raw) {
		return nil, fail("save the file as UTF-8", "the file is not UTF-8 text")
	}
	fields, _, body := skill.FrontMatter(string(raw))
	if strings.TrimSpace(body) == "" {
		return nil, fail("", "the file contains no text that could be the prompt")
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
			b.note(Dropped, key, "the listed tools belong to the client, not to the agent")
		case "model":
			b.note(Dropped, key, "the client chooses the model")
		case "mcpServers":
			b.note(Dropped, key, "import the servers separately, because this kind of agent cannot start servers")
		default:
			b.note(Dropped, key, "the field has no counterpart in a manifest")
		}
	}
	out, err := encode(m)
	return &Result{
		Source: "a Claude sub-agent", Dialect: agent.FindAgent, Name: agent.Slug(m.Name), Text: out, Next: "inspect",
	}, err
}
