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

// skills makes a bundle of a folder of skills or rules. The files stay where
// they are; the manifest goes beside them.
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
		fields, _ := frontMatter(string(raw))
		s := findagent.Skill{ID: id, Name: strings.TrimSpace(b.scrub(text(fields["name"]))), Description: strings.TrimSpace(b.scrub(text(fields["description"])))}
		if id == "" { // it stands at the top, and is called by its name
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
		"You have the skills that are listed here. Find the one that fits what you are asked for, read it in full, and do as it says. If none fits, say so and help without one.")
	m.Kind, m.Skills = string(agent.SkillsBundle), found
	m.SkillsSource = &findagent.SkillsSource{Kind: "r2", Key: b.key(dir, output)}
	m.ExamplePrompts = []string{"Which of your skills fits this: …"}
	b.note(Guessed, "system_prompt", "a general one is filled in")
	b.note(Guessed, "example_prompts", "write one to five that show what to ask for")
	b.trial(ctx, folder, m)
	out, err := encode(m)
	return &Result{Source: "a folder of skills", Dialect: agent.FindAgent, Name: agent.Slug(name), Text: out, Next: "inspect"}, err
}

// key is the folder as seen from the manifest.
func (b *builder) key(dir, output string) string {
	base := filepath.Base(dir)
	out, err := filepath.Abs(output)
	if err == nil {
		if rel, err := filepath.Rel(out, dir); err == nil && filepath.IsLocal(rel) && rel != "." {
			return filepath.ToSlash(rel)
		}
	}
	b.note(Guessed, "skills_source", "the folder %s is looked for beside the manifest: put it there", base)
	return base
}

// trial reads the bundle as an agent would, and tells what would stop it.
func (b *builder) trial(ctx context.Context, folder *skill.Folder, m findagent.Manifest) {
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
			b.note(Guessed, p.File, "it has to be mended before the bundle is served: %s", p.Message)
		}
	}
}
