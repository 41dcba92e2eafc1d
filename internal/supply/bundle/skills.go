package bundle

import (
	"context"
	"errors"
	"io/fs"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/supply/skill"
)

// treeFiles implements skill.Files for the tree of a bundle.
type treeFiles struct{ of *Bundle }

var _ skill.Files = treeFiles{}

func (t treeFiles) Name() string { return t.of.Path }

func (t treeFiles) List(context.Context) ([]skill.File, error) {
	files := make([]skill.File, len(t.of.Tree))
	for i := range t.of.Tree {
		files[i] = skill.File{Path: t.of.Tree[i].Path, Size: int64(len(t.of.Tree[i].Data))}
	}
	return files, nil
}

func (t treeFiles) Read(_ context.Context, path string) ([]byte, error) {
	if f := t.of.Tree.Find(path); f != nil {
		return f.Data, nil
	}
	return nil, fs.ErrNotExist
}

// checkSkills reports differences between the skills in the bundle and the skills in the manifest.
func (b *Bundle) checkSkills(a *agent.Agent) {
	if a.Skills == nil || len(a.Skills.List) == 0 {
		return
	}
	var tools []string
	for i := range a.Tools {
		tools = append(tools, a.Tools[i].Name)
	}
	_, err := skill.Read(context.Background(), treeFiles{b}, a.Skills, tools)
	invalid, ok := errors.AsType[*skill.Invalid](err)
	if err != nil && !ok {
		b.report(ruleSkills, "", 0, "the skills cannot be read: %v", err)
	}
	if ok {
		for _, p := range invalid.Problems {
			b.report(ruleSkills, p.File, p.Line, "%s", p.Message)
		}
	}
}
