// Package recipe describes an agent as text for people and models. The output is a set of Agent Skills, or one text to
// paste into a chat. This text is called a recipe.
//
// For the model, a recipe contains instructions, skills, tools with their parameters, and examples. For the person, it
// contains the names of the credentials and the hosts that receive them. It contains no secrets, because manifests
// contain no secrets.
//
// A recipe gives no protection, because ambit cannot check the calls that a chat makes. If the agent has tools, a note
// in the recipe explains that the tools are available only under ambit.
//
// Invisible characters in the agent's texts are escaped, so that the person sees everything that is pasted.
package recipe

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/skill"
)

// Text returns the recipe of an agent. The bundle can be nil.
func Text(a *agent.Agent, skills *skill.Bundle) string {
	var w writer
	w.line("# " + oneLine(a.Name))
	w.paragraph(a.Description)
	w.sections(a, skills)
	return w.String()
}

// File is one file of an export.
type File struct {
	// Path is a relative path, with slashes.
	Path string `json:"path"`
	Text string `json:"text"`
}

// Skills converts each skill of an agent to an Agent Skill. If the agent has no skills, Skills returns one Agent Skill
// that contains the recipe.
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

// maxDescription is the maximum number of characters that the Agent Skills format allows for a description.
const maxDescription = 1024

func skillFile(name, description string, tags []string, text string) File {
	name = agent.Slug(name) // the result has no leading, trailing or double hyphens
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

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func cut(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit-1]) + "…"
}

type writer struct{ strings.Builder }

func (w *writer) line(s string) { w.WriteString(s + "\n") }

func (w *writer) heading(s string) { w.WriteString("\n## " + s + "\n") }

// paragraph writes s. It writes an empty line first, unless s is the first text. If s is empty, it writes nothing.
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
	w.paragraph("The agent can call these tools when it runs under ambit, which checks every call. A chat that was only " +
		"given this text has none of these tools.")
	for i := range a.Tools {
		t := &a.Tools[i]
		w.line("\n### " + oneLine(t.Name))
		w.paragraph(t.Description)
		w.line("")
		w.line("- " + effect(a, t))
		for _, limit := range limits(t.Policy) {
			w.line("- " + limit)
		}
		w.schema("Takes", t.InputSchema)
		w.schema("Returns", t.OutputSchema)
	}
}

func effect(a *agent.Agent, t *agent.Tool) string {
	s := map[agent.SideEffect]string{
		agent.Read: "Reads only", agent.Write: "Changes things", agent.Network: "Uses the network",
		agent.Shell: "Runs commands", agent.Chain: "Acts on a blockchain",
	}[t.SideEffect]
	switch b := t.Binding.(type) {
	case agent.HTTP:
		s += "; sends a request to " + oneLine(b.Host)
	case agent.OnServer:
		s += "; runs on the tool server " + oneLine(b.Alias)
	case agent.Compose:
		s += "; calls the agent " + oneLine(b.Agent)
	case agent.Prompt:
		s += "; returns a prompt"
	case nil:
		return s + "; cannot be called, because the manifest only describes it"
	}
	if !a.Callable(t) {
		s += "; cannot be called, because its side effect is not allowed"
	}
	return s
}

func limits(p agent.ToolPolicy) []string {
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

// credentials writes the names of the credentials, never their values.
func (w *writer) credentials(a *agent.Agent) {
	secrets := a.Reach().Secrets
	if len(secrets) == 0 {
		return
	}
	w.heading("Credentials")
	w.paragraph("Set these credentials with `ambit secret set` or in the environment. " +
		"Never paste a credential into a chat.")
	w.line("")
	for _, s := range secrets {
		what := s.Name
		if i := slices.IndexFunc(a.Slots, func(slot agent.Slot) bool { return slot.Env == s.Name }); i >= 0 {
			what = a.Slots[i].Label + " (" + s.Name + ")"
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

// oneLine returns s on one line, with invisible characters escaped.
func oneLine(s string) string { return visible(strings.Join(strings.Fields(s), " ")) }

// visible returns s with invisible characters escaped.
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
