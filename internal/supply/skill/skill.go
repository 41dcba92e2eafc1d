// Package skill reads skills. A skill is a text that teaches a model how to do something. While the model uses a
// skill, the skill can limit the tools that the model may call.
//
// ambit never executes a skill. It interprets only one part of the text, the section §TOOLS. The section starts at a
// line §TOOLS, with or without heading marks. It ends at the next heading or the next line that starts with §. It
// contains tool URIs, one per line, or the word none. A line can be an item of a Markdown list. If a skill has this
// section, only the listed tools are allowed. A skill without the section allows all tools. A section that cannot be
// parsed is an error, because a typing mistake must not remove a restriction.
//
// # Bundles
//
// [Read] reads a whole bundle: Agent Skills (SKILL.md folders), rules of clients such as Cursor, Windsurf, Continue and
// Copilot, and instruction files such as AGENTS.md and CLAUDE.md. The files come from a [Files], which is a [Folder]
// below the manifest's folder or a [Store] with the S3 API. ambit reads and serves only the skills that the manifest
// lists, because the others were not reviewed. It refuses a bundle in which a listed skill is missing. Read reports all
// problems together, each with its file and line. ambit serves a bundle with warnings, but not a bundle with errors.
// [Check] returns the same problems as diagnostics.
//
// In a code bundle, skills are mixed with other files. ambit therefore reads only the skills that the manifest lists.
// For example, an AGENTS.md for the developers of the code is not one of the agent's skills.
//
// The id of an Agent Skill is the name of its folder. The id of any other skill is the name of its file, in lower
// case and without the extension. The id of an instruction file is made of the names of its folder and the
// file, such as docs-agents for docs/AGENTS.md. If several skills would have the same id, their ids are made of their
// whole paths.
//
// # Front matter
//
// Front matter is YAML of at most 64 KiB, without anchors, aliases, tags or a second document. Two common mistakes
// are accepted. A string with a colon but without quotes is accepted with a warning. File patterns without quotes
// (globs: *.ts) are accepted without a warning.
//
// # Limits
//
// A file can have at most 1 MiB, and all skills together at most 16 MiB. A bundle can have at most 10,000 files.
// ambit reads no file outside the bundle, even if a path is absolute, contains ".." or leads through a link. It does
// not read files that are not skills, such as scripts and references.
package skill

import (
	"fmt"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Limits of a bundle: the size of one skill and of all skills in bytes, and the number of files.
const (
	maxDocument = 1 << 20
	maxTotal    = 16 << 20
	maxFiles    = 10_000
)

// Problem is a problem in a bundle, with its location and a hint for fixing it.
type Problem struct {
	// File is the path of the file in the bundle. It is empty if the problem concerns the whole bundle.
	File string `json:"file"`
	// Line is the line number, starting at 1. It is 0 if the problem concerns the whole file.
	Line    int    `json:"line"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
	Warning bool   `json:"warning,omitempty"`

	rule *diag.Rule
}

func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Message
	case p.Line == 0:
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
}

// Invalid is the error for a bundle that ambit cannot serve because of its problems.
type Invalid struct {
	Where    string // the location of the bundle
	Problems []Problem
}

func (e *Invalid) Error() string {
	problems := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		problems[i] = p.String()
	}
	return fmt.Sprintf("the skills in %s cannot be used: %s", e.Where, strings.Join(problems, "; "))
}

// Hint returns the hint of the first problem that has a hint.
func (e *Invalid) Hint() string {
	for _, p := range e.Problems {
		if p.Hint != "" {
			return p.Hint
		}
	}
	return ""
}
