package cli

import (
	"context"
	"slices"

	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

// readSkills checks the skills that manifests list. Skills that are kept elsewhere are not fetched.
func (c *checked) readSkills(ctx context.Context, strict bool) {
	for _, m := range slices.Clone(c.files) {
		a := m.Agent()
		if a == nil || a.Skills == nil || len(a.Skills.List) == 0 || m.Path == stdinName {
			continue
		}
		folder, err := host.SkillsFolder(m)
		if err != nil {
			c.skipped = append(c.skipped, skipped{m.Path, "its skills are not beside it, so they were not checked"})
			continue
		}
		found, err := skill.Check(ctx, folder, a.Skills, host.SkillTools(a), strict)
		if err != nil {
			c.pass(folder.Name(), err)
		}
		folder.Close()
		for _, r := range found {
			c.add(&manifest.Manifest{Path: r.Source.Name, Dialect: m.Dialect, Source: r.Source, Diagnostics: r.Finish()})
			c.attached++
		}
	}
}
