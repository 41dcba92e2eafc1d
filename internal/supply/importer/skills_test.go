package importer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/findagent"
	"github.com/ambit-run/ambit/internal/supply/skill"
)

// A skill that cannot be served is left out with a note. The rest of the repository is imported, and can be served.
func TestBadSkills(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	for name, text := range map[string]string{
		"good/SKILL.md":        "---\nname: good\ndescription: " + strings.Repeat("long ", 300) + "\ntags: [a, b]\nmetadata:\n  author: {name: x}\n  hooks: [{on: x}]\n---\nDo it.\n",
		"unnamed/SKILL.md":     "---\ndescription: D.\n---\nDo it.\n",
		"broken/SKILL.md":      "---\nname: [\n---\nDo it.\n",
		"a/skills/x/SKILL.md":  "---\nname: x\ndescription: The first.\n---\nDo it.\n",
		"b/skills/x/SKILL.md":  "---\nname: x\ndescription: The second.\n---\nDo it.\n",
		".cursor/rules/go.mdc": "---\nglobs: *.go\n---\nUse gofmt.\n", ".goosehints": "Be brief.", "QWEN.md": "Be kind.", ".trae/rules/project.md": "Be quick.",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Import(dir, filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	wantNote(t, r, "unnamed/SKILL.md: the skill is left out: an Agent Skill needs the field name")
	wantNote(t, r, "broken/SKILL.md: the skill is left out: the front matter is not valid YAML")
	var m findagent.Manifest
	if err := json.Unmarshal(r.Text, &m); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, s := range m.Skills {
		ids = append(ids, s.ID+strings.Join(s.Tags, "+"))
	}
	if got, want := strings.Join(ids, " "), "go goosehints project qwen a-skills-x b-skills-x gooda+b"; got != want {
		t.Errorf("got the skills %s, want %s", got, want)
	}
	folder, err := skill.OpenFolder(filepath.Dir(dir), "repo")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	b, err := skill.Read(t.Context(), folder, &agent.Skills{SourceKind: "r2", List: m.Skills}, nil)
	if err != nil || len(b.Skills) != len(ids) {
		t.Errorf("got %+v and %v, want all imported skills", b, err)
	}
}

// The error for a folder without a usable skill says why the last one was left out.
func TestOnlyBadSkills(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	path := filepath.Join(dir, "broken", "SKILL.md")
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("---\nname: [\n---\nDo it.\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Import(dir, filepath.Dir(dir))
	if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Reason, ": broken/SKILL.md: the skill is left out: the front matter is not valid YAML") || e.Hint != "" {
		t.Errorf("got %#v", err)
	}
}
