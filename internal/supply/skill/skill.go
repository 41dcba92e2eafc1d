// Package skill reads skills: texts that tell a model how to do something, and
// may say which tools it can use while it does.
//
// A skill is content and is never executed. The one part of it that ambit acts
// on is the section §TOOLS. It starts at a line that says §TOOLS, with or
// without heading marks, and ends at the next line that starts with § or is a
// heading. It lists tool URIs, one to a line, or the word none. Without the
// section a skill does not constrain anything; with it, nothing that it does
// not list may be called. A section that cannot be read is an error, never a
// skill without one: what narrows must not vanish by a typing mistake.
//
// # Bundles
//
// [Read] reads a whole bundle: Agent Skills (SKILL.md folders), rules of Cursor,
// Windsurf and Continue, and AGENTS.md. Its files come from [Files]: a [Folder]
// beside the manifest, or a [Store] that speaks S3. What the manifest lists and
// what is there must agree, both ways: a skill that nobody reviewed is not
// served, and neither is a bundle that lacks one. All problems are found at
// once, each with its file and line, and a bundle with any is not served at
// all; warnings are told and do no harm. [Check] tells the same as diagnostics.
//
// A bundle of code has its skills among its other files. There only the skills
// that the manifest lists count: an AGENTS.md for whoever works on the code is
// none of the agent's.
//
// An Agent Skill's id is the name of its folder, another file's its own name
// without the ending, in small letters; AGENTS.md of a folder is FOLDER-agents.
// No two may be the same.
//
// # Front matter
//
// Front matter is YAML of at most 64 KiB, without anchors, aliases, tags or a
// second document. Two things that people write are not YAML, and are read
// nevertheless: a text with a colon and no quotes, with a warning, and file
// patterns (globs: *.ts).
//
// # Bounds
//
// A file has at most 1 MiB, all that are read 16 MiB, a bundle 10,000 files.
// Nothing leads out of a folder: no "..", no absolute path, no link. Files that
// are no skills (scripts, references) are not read.
package skill

import (
	"fmt"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Bounds of a bundle.
const (
	maxDocument = 1 << 20
	maxTotal    = 16 << 20
	maxFiles    = 10_000
)

// Problem is something wrong with a bundle, where it is and how to mend it.
type Problem struct {
	// File is relative to the bundle; empty for the bundle itself.
	File string `json:"file"`
	// Line counts from 1; 0 is the file as a whole.
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

// Invalid is a bundle that is not served.
type Invalid struct {
	// Where is the bundle.
	Where    string
	Problems []Problem
}

func (e *Invalid) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the skills in %s cannot be used", e.Where)
	for i, p := range e.Problems {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep + p.String())
	}
	return b.String()
}

// Hint is what to do about the first problem that says so.
func (e *Invalid) Hint() string {
	for _, p := range e.Problems {
		if p.Hint != "" {
			return p.Hint
		}
	}
	return ""
}
