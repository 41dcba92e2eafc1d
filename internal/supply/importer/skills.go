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

// skills converts a folder of skills or rules. The files stay in place; the manifest
// is written beside them.
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
	files, err := folder.List(ctx)
	if err != nil {
		return nil, err
	}
	var found []findagent.Skill
	ids := skill.IDs(files)
	for _, f := range files {
		id, holds := ids[f.Path]
		if !holds || f.Refused != "" {
			continue
		}
		raw, err := folder.Read(ctx, f.Path)
		if err != nil {
			b.note(Dropped, f.Path, "it cannot be read")
			continue
		}
		fields, _ := skill.FrontMatter(string(raw))
		s := findagent.Skill{
			ID: id, Name: strings.TrimSpace(b.scrub(fields["name"])), Description: strings.TrimSpace(b.scrub(fields["description"])),
		}
		if id == "" { // it is at the top, so its name is its id
			id = agent.Slug(cmp.Or(s.Name, filepath.Base(dir)))
			s.ID = id
		}
		s.Name = cmp.Or(s.Name, id)
		if slices.ContainsFunc(found, func(o findagent.Skill) bool { return o.ID == id }) {
			b.note(Dropped, f.Path, "there is another skill %s: rename one of the two", id)
			continue
		}
		found = append(found, s)
	}
	if len(found) == 0 {
		return nil, fail("", "there are no skills or rules in %s: no SKILL.md, no rules of Cursor, Windsurf or Continue, and no AGENTS.md", dir)
	}
	name := filepath.Base(dir)
	m := b.findAgent(strings.ReplaceAll(name, "-", " "), "Skills imported from "+name+".",
		"You have the skills that are listed here. Find the one that fits the request, read it in full, and follow it. If none fits, say so and help without one.")
	m.Kind, m.Skills = string(agent.SkillsBundle), found
	m.SkillsSource = &findagent.SkillsSource{Kind: "r2", Key: b.key(dir, output)}
	m.ExamplePrompts = []string{"Which of your skills fits this: …"}
	b.note(Guessed, "system_prompt", "a general one is filled in")
	b.note(Guessed, "example_prompts", "write one to five example requests")
	b.checkBundle(ctx, folder, m)
	out, err := encode(m)
	return &Result{Source: "a folder of skills", Dialect: agent.FindAgent, Name: agent.Slug(name), Text: out, Next: "inspect"}, err
}

// key is the folder's path relative to the manifest.
func (b *builder) key(dir, output string) string {
	base := filepath.Base(dir)
	out, err := filepath.Abs(output)
	if err == nil {
		if rel, err := filepath.Rel(out, dir); err == nil && filepath.IsLocal(rel) && rel != "." {
			return filepath.ToSlash(rel)
		}
	}
	b.note(Guessed, "skills_source", "the folder %s must be beside the manifest: move it there", base)
	return base
}

// checkBundle reads the bundle as an agent would, and notes the errors that would stop it.
func (b *builder) checkBundle(ctx context.Context, folder *skill.Folder, m findagent.Manifest) {
	declared := &agent.Skills{SourceKind: m.SkillsSource.Kind}
	for _, s := range m.Skills {
		declared.List = append(declared.List, agent.Skill{ID: s.ID, Name: s.Name, Description: s.Description})
	}
	_, err := skill.Read(ctx, folder, declared, nil)
	invalid, ok := errors.AsType[*skill.Invalid](err)
	if !ok {
		return
	}
	for _, p := range invalid.Problems {
		if !p.Warning {
			b.note(Guessed, p.File, "fix this before the bundle is served: %s", p.Message)
		}
	}
}
