// Package skill reads skills: texts that teach a model how to do something, and may limit
// the tools that it can use meanwhile.
//
// A skill is content and is never executed. ambit acts on one part of it, the section
// §TOOLS. The section starts at a line §TOOLS, with or without heading marks, and ends at
// the next line that starts with § or is a heading. It lists tool URIs, one per line, or
// the word none. A skill without the section limits nothing. With it, only the listed
// tools may be called. A section that cannot be parsed is an error: a typing mistake must
// not remove a restriction.
//
// # Bundles
//
// [Read] reads a whole bundle: Agent Skills (SKILL.md folders), rules of Cursor, Windsurf
// and Continue, and AGENTS.md. Its files come from [Files]: a [Folder] beside the
// manifest, or a [Store] with the S3 API. The manifest's list and the files must agree,
// both ways: ambit serves neither a skill that was not reviewed nor a bundle that lacks a
// skill. All problems are reported at once, each with its file and line. A bundle with an
// error is not served; warnings do not matter. [Check] returns the same problems as
// diagnostics.
//
// A code bundle has its skills among its other files. There only the skills in the
// manifest's list count: an AGENTS.md for developers of the code is not one of the
// agent's skills.
//
// The id of an Agent Skill is the name of its folder. The id of any other file is its own
// name in lower case without the extension; AGENTS.md of a folder is FOLDER-agents. Ids
// must be unique.
//
// # Front matter
//
// Front matter is YAML of at most 64 KiB, without anchors, aliases, tags or a second
// document. Two common mistakes are accepted: a text with a colon and no quotes, with a
// warning, and file patterns without quotes (globs: *.ts).
//
// # Limits
//
// A file has at most 1 MiB, all skills together 16 MiB, and a bundle 10,000 files.
// Nothing leads out of a folder: no "..", no absolute path, no link. Other files (scripts,
// references) are not read.
package skill

import (
	"fmt"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Limits of a bundle.
const (
	maxDocument = 1 << 20
	maxTotal    = 16 << 20
	maxFiles    = 10_000
)

// Problem is a problem of a bundle, with its location and fix.
type Problem struct {
	// File is relative to the bundle; empty for the bundle itself.
	File string `json:"file"`
	// Line counts from 1; 0 means the whole file.
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
	// Where is the bundle's location.
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

// Hint is the hint of the first problem that has one.
func (e *Invalid) Hint() string {
	for _, p := range e.Problems {
		if p.Hint != "" {
			return p.Hint
		}
	}
	return ""
}
