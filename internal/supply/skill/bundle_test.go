package skill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

// good returns a valid Agent Skill with the given name.
func good(name string) string {
	return "---\nname: " + name + "\ndescription: Does it.\n---\n# Title\n\nDo " + name + ".\n"
}

// writeFiles writes files to a new folder and returns the folder.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func declare(ids ...string) *agent.Skills {
	s := &agent.Skills{SourceKind: "r2", SourceKey: "b"}
	for _, id := range ids {
		s.List = append(s.List, agent.Skill{ID: id, Name: id})
	}
	return s
}

// readFolder reads the bundle in the subfolder b of dir.
func readFolder(t *testing.T, dir string, declared *agent.Skills) (*Bundle, error) {
	t.Helper()
	f, err := OpenFolder(dir, "b")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(t.Context(), f, declared, []string{"look_up"})
}

func TestRead(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"b/skills/review/SKILL.md":                  "---\nname: review\ndescription: >-\n  Reviews\n  code.\nmetadata:\n  tags: git, code\n---\nReview it.\n\n## §TOOLS\nlook_up\n",
		"b/skills/review/scripts/run.sh":            "rm -rf /",
		"b/skills/review/assets/sample.mdc":         "not a rule of its own",
		"b/.cursor/rules/Type Script.mdc":           "---\ndescription: Types.\nglobs: *.ts,*.tsx\nalwaysApply: false\n---\nUse types.\n",
		"b/.cursor/rules/code_style.mdc":            "Tabs.\n",
		"b/.windsurf/rules/go.md":                   "---\ntrigger: glob\nglobs: \"**/*.go\"\n---\nUse gofumpt.\n",
		"b/.windsurfrules":                          "Be brief.\n",
		"b/.continue/rules/sql.md":                  "---\nname: SQL\nregex: \"SELECT\"\nglobs: [\"*.sql\"]\n---\nNo star.\n",
		"b/AGENTS.md":                               "# Agents\n\nRun the tests.\n",
		"b/packages/api/AGENTS.md":                  "Run the API.\n",
		"b/CLAUDE.md":                               "Run the linter.\n",
		"b/web/GEMINI.md":                           "Run the browser.\n",
		"b/.github/copilot-instructions.md":         "Write tests.\n",
		"b/.github/instructions/go.instructions.md": "---\napplyTo: \"**/*.go\"\ntags: [go, style]\n---\nUse gofmt.\n",
		"b/.cursorrules":                            "Be kind.\n",
		"b/.clinerules":                             "Be careful.\n",
		"b/.junie/guidelines.md":                    "Be precise.\n",
		"b/.kiro/steering/tech.md":                  "---\ninclusion: always\n---\nUse Go.\n",
		"b/README.md":                               "not a skill",
		"b/.git/AGENTS.md":                          "not looked at",
	})
	declared := declare("agents", "review", "type-script", "code_style", "go", "windsurfrules", "sql", "packages-api-agents",
		"claude", "web-gemini", "copilot-instructions", "go-instructions", "cursorrules", "clinerules", "guidelines", "tech")
	declared.Router = "review"
	declared.List[1] = agent.Skill{ID: "review", Name: "Code review", Description: "Reviews code.", Tags: []string{"git", "code"}}
	b, err := readFolder(t, dir, declared)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range b.Skills {
		got = append(got, d.ID+" "+d.Format+" "+d.File)
	}
	want := []string{
		"review an Agent Skill skills/review/SKILL.md",
		"agents an instruction file AGENTS.md",
		"type-script a Cursor rule .cursor/rules/Type Script.mdc",
		"code_style a Cursor rule .cursor/rules/code_style.mdc",
		"go a Windsurf rule .windsurf/rules/go.md",
		"windsurfrules a Windsurf rule .windsurfrules",
		"sql a Continue rule .continue/rules/sql.md",
		"packages-api-agents an instruction file packages/api/AGENTS.md",
		"claude an instruction file CLAUDE.md",
		"web-gemini an instruction file web/GEMINI.md",
		"copilot-instructions a Copilot instruction .github/copilot-instructions.md",
		"go-instructions a Copilot instruction .github/instructions/go.instructions.md",
		"cursorrules a Cursor rule .cursorrules",
		"clinerules a rule of a client .clinerules",
		"guidelines a rule of a client .junie/guidelines.md",
		"tech a Kiro steering file .kiro/steering/tech.md",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	review := b.Skill("review")
	if review.Name != "Code review" || review.Description != "Reviews code." || !slices.Equal(review.Tags, []string{"git", "code"}) ||
		review.Text != "Review it.\n\n## §TOOLS\nlook_up" {
		t.Errorf("got %+v", review)
	}
	if tags := b.Skill("go-instructions").Tags; !slices.Equal(tags, []string{"go", "style"}) {
		t.Errorf("got the tags %q, want go and style", tags)
	}
	if !review.Tools.Allows("look_up") || review.Tools.Allows("delete") || review.Tools.Allows(read) || !b.Skill("go").Tools.Allows("delete") {
		t.Error("a skill with §TOOLS must allow only the listed tools, and a skill without it all tools")
	}
	if b.Others != 3 {
		t.Errorf("got %d files that are not skills, want 3", b.Others)
	}
	if got := fmt.Sprint(b.Warnings); !strings.Contains(got, ".continue/rules/sql.md: the name differs from the name in the manifest") {
		t.Errorf("got the warnings %s, want one about the name of the rule sql.md", got)
	}
}

func TestReadBad(t *testing.T) {
	token := "ghp" + "_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
	tests := []struct {
		name  string
		files map[string]string
		ids   []string
		want  []string
	}{
		{"missing", map[string]string{"b/one/SKILL.md": good("one")}, []string{"one", "two"}, []string{`the manifest lists the skill "two", but no file has that id`}},
		{"a missing skill and an unlisted skill", map[string]string{"b/ome/SKILL.md": good("ome")}, []string{"one"}, []string{`the manifest lists the skill "one", but no file has that id`}},
		{"same id", map[string]string{"b/x/one/SKILL.md": good("one"), "b/y/one/SKILL.md": good("one")}, []string{"one"}, []string{`the manifest lists the skill "one", but no file has that id`}},
		{"no front matter", map[string]string{"b/one/SKILL.md": "Just text.\n"}, []string{"one"}, []string{"one/SKILL.md:1: an Agent Skill needs front matter"}},
		{"no name", map[string]string{"b/one/SKILL.md": "---\ndescription: D.\n---\nx\n"}, []string{"one"}, []string{"one/SKILL.md:1: an Agent Skill needs the field name"}},
		{"empty description", map[string]string{"b/one/SKILL.md": "---\nname: one\ndescription:\n---\nx\n"}, []string{"one"}, []string{"one/SKILL.md:3: an Agent Skill needs the field description"}},
		{"long name", map[string]string{"b/one/SKILL.md": "---\nname: " + strings.Repeat("a", 65) + "\ndescription: D.\n---\nx\n"}, []string{"one"}, []string{`one/SKILL.md:2: the skill is named "aaa`}},
		{"capitals", map[string]string{"b/one/SKILL.md": "---\nname: One\ndescription: D.\n---\nx\n"}, []string{"one"}, []string{"one/SKILL.md:2: \"One\" is not a valid name"}},
		{"double hyphen", map[string]string{"b/a--b/SKILL.md": good("a--b")}, []string{"a--b"}, []string{"a--b/SKILL.md:2: \"a--b\" is not a valid name"}},
		{"hyphen at the end", map[string]string{"b/one-/SKILL.md": good("one-")}, []string{"one-"}, []string{"one-/SKILL.md:2: \"one-\" is not a valid name"}},
		{"name differs from the folder", map[string]string{"b/two/SKILL.md": good("one")}, []string{"two"}, []string{`two/SKILL.md:2: the skill is named "one", but its folder is named "two"`}},
		{"metadata is a string", map[string]string{"b/one/SKILL.md": "---\nname: one\ndescription: D.\nmetadata: x\n---\nx\n"}, []string{"one"}, []string{"one/SKILL.md:4: the field metadata is a string, but must be a mapping of names to strings"}},
		{"no text", map[string]string{"b/one/SKILL.md": "---\nname: one\ndescription: D.\n---\n\n"}, []string{"one"}, []string{"one/SKILL.md: the skill has no text"}},
		{"secret", map[string]string{"b/one/SKILL.md": good("one") + "Use " + token + ".\n"}, []string{"one"}, []string{"one/SKILL.md:8: the line contains something that looks like a secret: GitHub token"}},
		{"not text", map[string]string{"b/one/SKILL.md": "\xff\xfe"}, []string{"one"}, []string{"one/SKILL.md: the file is not UTF-8 text"}},
		{"too large", map[string]string{"b/one/SKILL.md": good("one") + strings.Repeat("x", 1<<20)}, []string{"one"}, []string{"one/SKILL.md: the file has 1048", `no file has that id`}},
		{"bad tools", map[string]string{"b/one/SKILL.md": good("one") + "§TOOLS\nanything\n"}, []string{"one"}, []string{"one/SKILL.md:9: invalid tool URI"}},
		{"invalid alwaysApply", map[string]string{"b/r.mdc": "---\nalwaysApply: yes\n---\nx\n"}, []string{"r"}, []string{`r.mdc:2: alwaysApply cannot be "yes"`}},
		{"invalid trigger", map[string]string{"b/.windsurf/rules/r.md": "---\ntrigger: sometimes\n---\nx\n"}, []string{"r"}, []string{`.windsurf/rules/r.md:2: trigger cannot be "sometimes"`}},
		{"several problems", map[string]string{"b/one/SKILL.md": "---\nname: One\nname: one\nlicense: [x]\n---\n", "b/two/SKILL.md": "x"}, []string{"one", "two"}, []string{
			"one/SKILL.md: the skill has no text", "one/SKILL.md:1: an Agent Skill needs the field description", "one/SKILL.md:2: \"One\" is not a valid name", "one/SKILL.md:3: the field name appears twice", "one/SKILL.md:4: the field license is a list", "two/SKILL.md:1: an Agent Skill needs front matter",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readFolder(t, writeFiles(t, tt.files), declare(tt.ids...))
			invalid, ok := errors.AsType[*Invalid](err)
			if !ok {
				t.Fatalf("got the error %v, want an *Invalid", err)
			}
			if len(invalid.Problems) != len(tt.want) {
				t.Errorf("got %d problems, want %d: %v", len(invalid.Problems), len(tt.want), err)
			}
			for _, want := range tt.want {
				if !slices.ContainsFunc(invalid.Problems, func(p Problem) bool { return strings.Contains(p.String(), want) }) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			if strings.Contains(err.Error(), token[8:]) {
				t.Error("the error contains the secret")
			}
		})
	}
}

// Harmless problems are warnings, and Read still returns the bundle.
func TestReadWarns(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"unknown field", "---\nname: one\ndescription: D.\nlicence: MIT\n---\nx\n", `4: an Agent Skill has no field "licence"`},
		{"colon", "---\nname: one\ndescription: Use when: asked.\n---\nx\n", "3: in YAML, a string with a colon"},
		{"hidden", "---\nname: one\ndescription: D.\n---\nx\u200by\n", "5: the text contains invisible characters"},
		{"long description", "---\nname: one\ndescription: " + strings.Repeat("é", 1025) + "\n---\nx\n", "3: description has 1025 characters; the limit is 1024"},
		{"long compatibility", "---\nname: one\ndescription: D.\ncompatibility: " + strings.Repeat("x", 501) + "\n---\nx\n", "4: compatibility has 501 characters; the limit is 500"},
		{"a list of mappings", "---\nname: one\ndescription: D.\ntags: [a, {b: c}]\nmetadata: {author: {name: x}, tags: [d]}\n---\nx\n", "4: an item of tags is not a string"},
		{"long", "---\nname: one\ndescription: D.\n---\n" + strings.Repeat("x\n", 501), "the text has 501 lines"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := readFolder(t, writeFiles(t, map[string]string{"b/one/SKILL.md": tt.text}), declare("one"))
			if err != nil {
				t.Fatal(err)
			}
			if len(b.Warnings) != 1 || !strings.Contains(b.Warnings[0].String(), tt.want) {
				t.Errorf("got the warnings %v, want %q", b.Warnings, tt.want)
			}
		})
	}
}

// A file that the manifest does not list is not served, even if it is invalid. The other skills are served.
func TestUnlisted(t *testing.T) {
	files := map[string]string{
		"b/one/SKILL.md": good("one"), "b/two/SKILL.md": good("two"), "b/bad/SKILL.md": "no front matter", "b/large/SKILL.md": strings.Repeat("x", 1<<20+1),
		"b/x/same/SKILL.md": good("same"), "b/y/same/SKILL.md": good("same"),
	}
	b, err := readFolder(t, writeFiles(t, files), declare("one", "y-same"))
	if err != nil || len(b.Skills) != 2 || b.Skill("one") == nil || b.Skill("y-same").File != "y/same/SKILL.md" {
		t.Fatalf("got %+v and %v, want the skills one and y-same", b, err)
	}
	var got []string
	for _, w := range b.Warnings {
		if id, ok := strings.CutPrefix(w.Message, "the manifest does not list the skill "); ok {
			got = append(got, id)
		}
	}
	if want := []string{`"bad"`, `"large"`, `"two"`, `"x-same"`}; !slices.Equal(got, want) {
		t.Errorf("got warnings about the skills %q, want %q", got, want)
	}
}

// ambit refuses a bundle with a link that leads out of the bundle. The link can replace a file, a
// folder or the bundle itself.
func TestFolderStaysInside(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("on Windows, creating links needs a privilege")
	}
	tests := []struct {
		name  string
		links map[string]string
		want  string
	}{
		{"file", map[string]string{"b/one/SKILL.md": "../../outside/SKILL.md"}, "the link is broken or leads out"},
		{"absolute", map[string]string{"b/one/SKILL.md": "/etc/hostname"}, "the link is broken or leads out"},
		{"folder", map[string]string{"b/one": "../outside"}, "the link is broken or leads out"},
		{"other file", map[string]string{"b/notes.txt": "../outside/SKILL.md"}, "the link is broken or leads out"},
		{"bundle", map[string]string{"b": "../"}, "no skills were found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := writeFiles(t, map[string]string{"outside/SKILL.md": good("outside"), "home/x": ""})
			within := filepath.Join(dir, "home")
			for link, target := range tt.links {
				link = filepath.Join(within, link)
				if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
					t.Fatal(err)
				}
				if tt.name != "absolute" && tt.name != "bundle" {
					target = "../" + target
				}
				if err := os.Symlink(target, link); err != nil {
					t.Fatal(err)
				}
			}
			_, err := readFolder(t, within, declare("one"))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got the error %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("link inside", func(t *testing.T) {
		dir := writeFiles(t, map[string]string{"b/AGENTS.md": "Do it.\n", "b/x/y": ""})
		if err := os.Symlink("../AGENTS.md", filepath.Join(dir, "b/x/AGENTS.md")); err != nil {
			t.Fatal(err)
		}
		b, err := readFolder(t, dir, declare("agents", "x-agents"))
		if err != nil || b.Skill("x-agents").Text != "Do it." {
			t.Errorf("a link within the bundle was not followed: %v", err)
		}
	})
}

func TestOpenFolder(t *testing.T) {
	dir := writeFiles(t, map[string]string{"here/b/AGENTS.md": "x", "b/AGENTS.md": "outside", "file": "x"})
	for _, key := range []string{"../b", "..", "/etc", "nothing", "b/../../b", "../here/../b"} {
		f, err := OpenFolder(filepath.Join(dir, "here"), key)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, ErrNoBundle) {
			t.Errorf("%s: got the error %v, want %v", key, err, ErrNoBundle)
		}
	}
}

func TestReadBounds(t *testing.T) {
	t.Run("total", func(t *testing.T) {
		f := fake{}
		var ids []string
		for i := range 17 {
			id := fmt.Sprint("s", i)
			f[id+"/SKILL.md"], ids = good(id)+strings.Repeat("x", 1<<20-100), append(ids, id)
		}
		if _, err := Read(t.Context(), f, declare(ids...), nil); err == nil || !strings.Contains(err.Error(), "exceed 16777216 bytes") {
			t.Errorf("got the error %.200v, want one about the total size", err)
		}
	})
	t.Run("file has grown", func(t *testing.T) {
		if _, err := readBounded(strings.NewReader(strings.Repeat("x", maxDocument+1)), "one"); err == nil {
			t.Error("readBounded read a file that is larger than the limit")
		}
	})
	t.Run("file cannot be read", func(t *testing.T) {
		broken := errors.New("broken")
		if _, err := Read(t.Context(), failing{fake{"AGENTS.md": "x"}, broken}, declare("agents"), nil); !errors.Is(err, broken) {
			t.Errorf("got the error %v, want %v", err, broken)
		}
	})
}

// fake is a bundle in memory.
type fake map[string]string

func (f fake) Name() string { return "memory" }

func (f fake) List(context.Context) ([]File, error) {
	var files []File
	for name, text := range f {
		files = append(files, File{Path: name, Size: int64(len(text))})
	}
	return files, nil
}

func (f fake) Read(_ context.Context, name string) ([]byte, error) { return []byte(f[name]), nil }

// failing is a bundle with files that cannot be read.
type failing struct {
	fake
	err error
}

func (f failing) Read(context.Context, string) ([]byte, error) { return nil, f.err }

// The example bundle that ships with ambit has no problems.
func TestShippedBundle(t *testing.T) {
	f, err := OpenFolder("../../../agents/examples/skills-bundle", "skills")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	declared := declare("pick-a-template", "commit-message", "incident-report")
	b, err := Read(t.Context(), f, declared, nil)
	if err != nil || len(b.Warnings) != 0 || len(b.Skills) != 3 {
		t.Errorf("got %+v, %v; want 3 skills without warnings", b, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("one/SKILL.md", good("one"))
	f.Add("r.mdc", "---\nglobs: *.ts\n---\nx")
	f.Add("AGENTS.md", "x\n§TOOLS\nnone\n")
	f.Fuzz(func(t *testing.T, file, all string) {
		if formatOf(file) == nil {
			return
		}
		d := parse(file, idOf(file), []byte(all), nil, func(Problem) {})
		if d.ID != "" && !isID(d.ID) {
			t.Fatalf("%q is not a valid id", d.ID)
		}
	})
}
