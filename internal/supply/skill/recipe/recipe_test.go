package recipe

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The recipes of the agents that ship with ambit match the golden files. After -update, read the files
// before you commit them.
func TestText(t *testing.T) {
	for name, path := range map[string]string{
		"mcp-tool": "examples/mcp-tool/findagent.json", "static-recipe": "examples/static-recipe/findagent.json", "default": "default.json", "research": "examples/research/agent.toml",
	} {
		t.Run(name, func(t *testing.T) {
			m, err := manifest.Load(filepath.Join("../../../../agents", path), manifest.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := Text(m.Agent(), nil)
			golden := filepath.Join("testdata", name+".md")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestSchemaInWords(t *testing.T) {
	tests := []struct{ name, schema, want string }{
		{"none", "", ""},
		{"nothing", `{"type":"object"}`, "- Takes an object without defined properties\n"},
		{"text", `{"type":"string","minLength":2}`, "- Takes text, at least 2 characters\n"},
		{"order", `{"properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},"required":["b"]}`, "- Takes:\n  - `b` (true or false, required)\n  - `a` (whole number, optional)\n"},
		{"words", `{"properties":{"a":{"enum":["x",1],"default":"x","description":"An A."}}}`, "- Takes:\n  - `a` (anything, one of \"x\" or 1, \"x\" if not given, optional): An A.\n"},
		{"nested", `{"properties":{"a":{"type":"array","items":{"type":"object","properties":{"b":{"type":["string","null"]}}}}}}`, "- Takes:\n  - `a` (list of object, optional)\n    - `b` (text or null, optional)\n"},
		{"other words", `{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, "- Takes:\n  - `a` (anything, and anyOf [{\"type\":\"string\"},{\"type\":\"null\"}], optional)\n"},
		{"true", `{"properties":{"a":true}}`, "- Takes:\n  - `a` (anything, optional)\n"},
		{"hidden", `{"properties":{"a":{"description":"x\u200by\nz"}}}`, "- Takes:\n  - `a` (anything, optional): x\\u200by z\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w writer
			if w.schema("Takes", tt.schema); w.String() != tt.want {
				t.Errorf("got %q, want %q", w.String(), tt.want)
			}
		})
	}
}

// The package skill reads exported skills without a problem.
func TestSkillsAreSkills(t *testing.T) {
	bundle := &skill.Bundle{Skills: []*skill.Document{
		{ID: "one_two", Name: "One", Description: "Says \"one\": \\ two\nthree.", Tags: []string{"a", "b"}, Text: "Do it."},
		{ID: "rule", Name: "A rule", Text: "---\nnot front matter"},
	}}
	long := &agent.Agent{Name: "Long -- Name!", Description: strings.Repeat("é ", 2000), Prompt: "Do it."}
	for name, files := range map[string][]File{"bundle": Skills(nil, bundle), "agent": Skills(long, nil)} {
		dir := t.TempDir()
		declared := &agent.Skills{}
		for _, f := range files {
			file := filepath.Join(dir, "b", filepath.FromSlash(f.Path))
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(f.Text), 0o600); err != nil {
				t.Fatal(err)
			}
			declared.List = append(declared.List, agent.Skill{ID: strings.TrimSuffix(f.Path, "/SKILL.md")})
		}
		folder, err := skill.OpenFolder(dir, "b")
		if err != nil {
			t.Fatal(err)
		}
		b, err := skill.Read(t.Context(), folder, declared, nil)
		if err != nil || len(b.Warnings) > 0 {
			t.Errorf("reading the exported skills of the %s returned %v and the error %v", name, err, b)
			continue
		}
		if name == "bundle" && (b.Skills[0].Description != `Says "one": \ two three.` || strings.Join(b.Skills[0].Tags, " ") != "a b" || b.Skills[1].Description != "A rule") {
			t.Errorf("got %+v", b.Skills[0])
		}
		folder.Close()
	}
}
