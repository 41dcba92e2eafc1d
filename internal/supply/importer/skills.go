package importer

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/findagent"
	"github.com/ambit-run/ambit/internal/supply/skill"
)

// skills converts a folder of skills or rules. The files stay where they are, and the manifest refers to the folder.
func (b *builder) skills(dir, output string) (*Result, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	folder, err := skill.OpenFolder(filepath.Dir(dir), filepath.Base(dir))
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	ctx := context.Background()
	found, err := b.findSkills(ctx, folder, filepath.Base(dir))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fail("", "%s contains no skills or rules that ambit can serve (SKILL.md, AGENTS.md, CLAUDE.md, or rules for "+
			"Cursor or another client)%s", dir, b.reasons())
	}
	name := filepath.Base(dir)
	m := b.findAgent(strings.ReplaceAll(name, "-", " "), "Skills imported from "+name+".",
		"You have the skills that are listed here. Find the one that fits the request, read it in full, and follow it. If "+
			"none fits, say so and help without one.")
	m.Kind, m.Skills = string(agent.SkillsBundle), found
	m.SkillsSource = &findagent.SkillsSource{Kind: "r2", Key: b.key(dir, output)}
	m.ExamplePrompts = []string{"Which of your skills fits this: …"}
	b.note(Guessed, "system_prompt", "the prompt is generic; adapt it to your agent")
	b.note(Guessed, "example_prompts", "write one to five example requests")
	out, err := encode(m)
	return &Result{
		Source: "a folder of skills", Dialect: agent.FindAgent, Name: agent.Slug(name), Text: out, Next: "inspect",
	}, err
}

// findSkills returns the skills in a folder that ambit can serve. The name is the name of the folder.
func (b *builder) findSkills(ctx context.Context, folder *skill.Folder, name string) ([]agent.Skill, error) {
	files, err := folder.List(ctx)
	if err != nil {
		return nil, err
	}
	var found []agent.Skill
	at := map[string]string{} // the ids of the skills, by file
	ids := skill.IDs(files)
	for _, f := range files {
		id, holds := ids[f.Path]
		if !holds || f.Refused != "" {
			continue
		}
		raw, err := folder.Read(ctx, f.Path)
		if err != nil {
			b.note(Dropped, f.Path, "the file cannot be read")
			continue
		}
		fields, tags, _ := skill.FrontMatter(string(raw))
		s := agent.Skill{
			ID: id, Name: strings.TrimSpace(b.scrub(fields["name"])),
			Description: strings.TrimSpace(b.scrub(fields["description"])),
		}
		for _, tag := range tags {
			s.Tags = append(s.Tags, b.scrub(tag))
		}
		if id == "" { // a skill at the top of the folder gets its id from its own name or the folder's name
			id = agent.Slug(cmp.Or(s.Name, name))
			s.ID = id
		}
		s.Name = cmp.Or(s.Name, id)
		if slices.ContainsFunc(found, func(o agent.Skill) bool { return o.ID == id }) {
			b.note(Dropped, f.Path, "another skill also has the id %s: rename one of the two", id)
			continue
		}
		found = append(found, s)
		at[f.Path] = id
	}
	return b.leaveOut(ctx, folder, found, at), nil
}

// key returns the path of dir relative to output, which is the folder of the manifest. If dir is not below output, key
// returns only the base name of dir, and adds a note that asks the user to move the folder.
func (b *builder) key(dir, output string) string {
	base := filepath.Base(dir)
	out, err := filepath.Abs(output)
	if err == nil {
		if rel, err := filepath.Rel(out, dir); err == nil && filepath.IsLocal(rel) && rel != "." {
			return filepath.ToSlash(rel)
		}
	}
	b.note(Guessed, "skills_source", "move the folder %s into the manifest's folder", base)
	return base
}

// leaveOut reads the skills in the same way as a running agent, and returns those that ambit can serve.
func (b *builder) leaveOut(ctx context.Context, folder *skill.Folder, found []agent.Skill, at map[string]string) []agent.Skill {
	_, err := skill.Read(ctx, folder, &agent.Skills{SourceKind: "r2", List: found}, nil)
	invalid, ok := errors.AsType[*skill.Invalid](err)
	if !ok {
		return found
	}
	for _, p := range invalid.Problems {
		id := at[p.File]
		if id == "" {
			b.note(Guessed, p.File, "ambit cannot serve the skills until this problem is fixed: %s", p.Message)
			continue
		}
		b.note(Dropped, p.File, "the skill is left out: %s", p.Message)
		found = slices.DeleteFunc(found, func(s agent.Skill) bool { return s.ID == id })
	}
	return found
}
