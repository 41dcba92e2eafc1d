// Package recipe writes an agent as text for people and models: a recipe to paste into
// a chat, and the same as an Agent Skill.
//
// A recipe contains what a model needs (instructions, skills, each tool with its
// parameters, examples) and what a person needs (the credentials and the hosts they
// are sent to). It contains no secret, because manifests contain none: credentials
// appear by name. It promises nothing: ambit does not check the calls of a chat that
// was given a recipe, and the recipe says so if there are tools.
//
// The agent's texts are copied as written, except that invisible characters are
// escaped, so the pasted text is the text that was read.
package recipe

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/skill"
)

// Text returns the recipe of an agent. skills may be nil.
func Text(a *agent.Agent, skills *skill.Bundle) string {
	var w writer
	w.line("# " + oneLine(a.Name))
	w.paragraph(a.Description)
	w.sections(a, skills)
	return w.String()
}

// File is one file of an export.
type File struct {
	// Path is relative, with slashes.
	Path string `json:"path"`
	Text string `json:"text"`
}

// Skills returns an agent as Agent Skills: each skill of its bundle, or else one skill
// with the recipe.
func Skills(a *agent.Agent, skills *skill.Bundle) []File {
	if skills == nil || len(skills.Skills) == 0 {
		name := agent.Slug(a.Name)
		var w writer
		w.line("# " + oneLine(a.Name))
		w.sections(a, nil)
		return []File{skillFile(name, cmp.Or(a.Description, a.Prompt, a.Name), nil, w.String())}
	}
	files := make([]File, len(skills.Skills))
	for i, d := range skills.Skills {
		var w writer
		w.paragraph(d.Text)
		files[i] = skillFile(strings.ReplaceAll(d.ID, "_", "-"), cmp.Or(d.Description, d.Name), d.Tags, w.String())
	}
	return files
}

// maxDescription is the format's limit for a description.
const maxDescription = 1024

func skillFile(name, description string, tags []string, text string) File {
	name = agent.Slug(name) // no double hyphens, and none at the ends
	var w writer
	w.line("---")
	w.line("name: " + name)
	w.line("description: " + quote(cut(oneLine(description), maxDescription)))
	if len(tags) > 0 {
		w.line("metadata:")
		w.line("  tags: " + quote(oneLine(strings.Join(tags, ", "))))
	}
	w.line("---")
	w.WriteString("\n" + text)
	return File{Path: name + "/SKILL.md", Text: w.String()}
}

// quote returns a YAML string.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// cut shortens a text to at most most characters.
func cut(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

type writer struct{ strings.Builder }

func (w *writer) line(s string) { w.WriteString(s + "\n") }

func (w *writer) heading(s string) { w.WriteString("\n## " + s + "\n") }

// paragraph writes a text of the agent's after an empty line.
func (w *writer) paragraph(s string) {
	if s = strings.TrimSpace(visible(s)); s == "" {
		return
	}
	if w.Len() > 0 {
		w.WriteByte('\n')
	}
	w.line(s)
}

func (w *writer) sections(a *agent.Agent, skills *skill.Bundle) {
	if a.Prompt != "" {
		w.heading("Instructions")
		w.paragraph(a.Prompt)
	}
	if skills != nil {
		for _, d := range skills.Skills {
			w.heading("Skill: " + oneLine(d.Name))
			w.paragraph(d.Description)
			w.paragraph(d.Text)
		}
	}
	w.tools(a)
	if len(a.Examples) > 0 {
		w.heading("Examples")
		w.line("")
		for _, e := range a.Examples {
			w.line("- " + oneLine(e))
		}
	}
	w.credentials(a)
}

func (w *writer) tools(a *agent.Agent) {
	if len(a.Tools) == 0 {
		return
	}
	w.heading("Tools")
	w.paragraph("The agent can call these when it runs under ambit, which checks every call. A chat that was only given this text has none of them.")
	for i := range a.Tools {
		t := &a.Tools[i]
		w.line("\n### " + oneLine(t.Name))
		w.paragraph(t.Description)
		w.line("")
		w.line("- " + effect(a, t))
		for _, rail := range rails(t.Policy) {
			w.line("- " + rail)
		}
		w.schema("Takes", t.InputSchema)
		w.schema("Returns", t.OutputSchema)
	}
}

// effect describes a tool's side effect.
func effect(a *agent.Agent, t *agent.Tool) string {
	s := map[agent.SideEffect]string{
		agent.Read: "Reads only", agent.Write: "Changes things", agent.Network: "Uses the network",
		agent.Shell: "Runs commands", agent.Chain: "Acts on a chain",
	}[t.SideEffect]
	switch b := t.Binding.(type) {
	case agent.HTTP:
		s += "; sends a request to " + oneLine(b.Host)
	case agent.OnServer:
		s += "; on the tool server " + oneLine(b.Alias)
	case agent.Compose:
		s += "; asks the agent " + oneLine(b.Agent)
	case agent.Prompt:
		s += "; returns a text to continue from"
	case nil:
		return s + "; described only: it cannot be called"
	}
	if !a.Callable(t) {
		s += "; may not be called: its side effect is not allowed"
	}
	return s
}

func rails(p agent.ToolPolicy) []string {
	var list []string
	if p.HumanApproval {
		list = append(list, "A person approves every call")
	}
	if p.Rate != nil {
		list = append(list, "At most "+p.Rate.String())
	}
	if c := p.Spend; c != nil {
		money := func(amount string) string { return strings.TrimSpace(amount + " " + c.Currency) }
		if c.PerCall != "" {
			list = append(list, "Spends at most "+money(c.PerCall)+" a call")
		}
		if c.PerDay != "" {
			list = append(list, "Spends at most "+money(c.PerDay)+" a day")
		}
	}
	return list
}

// credentials lists the credentials by name, never a value.
func (w *writer) credentials(a *agent.Agent) {
	secrets := a.Reach().Secrets
	if len(secrets) == 0 {
		return
	}
	w.heading("Credentials")
	w.paragraph("Set these with ambit secret set, or in the environment. Never paste one into a chat.")
	w.line("")
	for _, s := range secrets {
		what := s.Name
		if slot := slotOf(a, s.Name); slot != nil {
			what = slot.Label + " (" + s.Name + ")"
		}
		if len(s.Hosts) > 0 {
			what += ", sent only to " + diag.Words(s.Hosts, "and")
		}
		if !s.Required {
			what += ", optional"
		}
		w.line("- " + oneLine(what))
	}
}

func slotOf(a *agent.Agent, env string) *agent.Slot {
	for i := range a.Slots {
		if a.Slots[i].Env == env {
			return &a.Slots[i]
		}
	}
	return nil
}

// oneLine puts a text on one line.
func oneLine(s string) string { return visible(strings.Join(strings.Fields(s), " ")) }

// visible escapes invisible characters.
func visible(s string) string {
	var b strings.Builder
	for {
		start, end, what := diag.HiddenRun(s)
		if what == "" {
			return b.String() + s
		}
		b.WriteString(s[:start] + diag.Printable(s[start:end]))
		s = s[end:]
	}
}
