package skill

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

// Check reports all problems of a bundle together, each with its file and line. It does not show a
// secret that it reports.
func TestCheck(t *testing.T) {
	token := "ghp_" + (rand.Text() + rand.Text())[:36]
	files := fake{
		"one/SKILL.md":   "---\nname: other\ndescription: One.\nx: y\n---\nUse " + token + ".\n",
		"two/SKILL.md":   "---\nname: two\ndescription: Two.\n---\nFine.\n",
		"three/SKILL.md": "---\nname: three\ndescription: Three.\n---\n\n§TOOLS\nnothing://at/all\n",
		"bad/SKILL.md":   "\xff",
	}
	declared := &agent.Skills{SourceKind: "r2", List: []agent.Skill{{ID: "one"}, {ID: "two"}, {ID: "four"}, {ID: "bad"}}}
	found, err := Check(t.Context(), files, declared, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, r := range found {
		for _, d := range r.Finish() {
			fmt.Fprintf(&got, "%s:%d:%d %s %s %s\n", r.Source.Name, d.Line, d.Column, d.Severity, d.Code, d.Message)
			if text := r.Source.Frame(d).Text; strings.Contains(text, token) {
				t.Errorf("the quoted line contains the secret: %s", text)
			}
		}
	}
	const want = `memory:1:1 error SK004 the manifest lists the skill "four", but no file has that id
memory/bad/SKILL.md:1:1 error SK001 the file is not UTF-8 text
memory/one/SKILL.md:2:1 error SK001 the skill is named "other", but its folder is named "one"
memory/one/SKILL.md:4:1 warning SK002 an Agent Skill has no field "x"
memory/one/SKILL.md:6:1 error SK001 the line contains something that looks like a secret: GitHub token
memory/three/SKILL.md:1:1 warning SK005 the manifest does not list the skill "three"
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
	// In strict mode, a warning is an error.
	found, err = Check(t.Context(), files, declared, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range found {
		if r.Errors() != len(r.Finish()) {
			t.Errorf("%s has a problem that is not an error", r.Source.Name)
		}
	}
	errBroken := errors.New("broken")
	if _, err := Check(t.Context(), failing{files, errBroken}, declared, nil, false); !errors.Is(err, errBroken) {
		t.Errorf("a file that cannot be read: got %v, want %v", err, errBroken)
	}
}

// In a code bundle, only the files that the manifest lists are skills.
func TestSkillsAmongCode(t *testing.T) {
	files := fake{
		"AGENTS.md": "For people.", "docs/SKILL.md": "no front matter", "src/agent.mjs": "1",
		"help/SKILL.md": "---\nname: help\ndescription: Helps.\n---\nHelp.\n",
	}
	b, err := Read(t.Context(), files, &agent.Skills{List: []agent.Skill{{ID: "help", Name: "help"}}}, nil)
	if err != nil || len(b.Skills) != 1 || b.Skills[0].Text != "Help." || b.Others != 3 {
		t.Fatalf("got %+v, %v; want only the skill help", b, err)
	}
	if _, err := Read(t.Context(), files, &agent.Skills{List: []agent.Skill{{ID: "docs"}, {ID: "gone"}}}, nil); err == nil || !strings.Contains(err.Error(), `"gone", but no file has that id`) || !strings.Contains(err.Error(), "docs/SKILL.md:1") {
		t.Errorf("got the error %v, want the problems of docs and gone", err)
	}
}
