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
package skill

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/tooluri"
)

// Tools is a skill's word on which tools may be called.
type Tools struct {
	name string
	// constrained says that there is a section; without one all is allowed.
	constrained bool
	uris        map[string]bool
}

// Allows reports whether the tool of that URI may be called.
func (t *Tools) Allows(uri string) bool { return !t.constrained || t.uris[uri] }

// Name is what the skill is called in messages.
func (t *Tools) Name() string { return t.name }

// Constrained reports whether the skill has a §TOOLS section.
func (t *Tools) Constrained() bool { return t.constrained }

// maxBytes bounds a skill file.
const maxBytes = 4 << 20

// Load reads the skill at path.
func Load(path string) (*Tools, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxBytes {
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxBytes>>20)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := ParseTools(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t.name = filepath.Base(path)
	return t, nil
}

// ParseTools reads the §TOOLS section of a skill's text. The error names every
// line of it that is not a pinned tool URI.
func ParseTools(text string) (*Tools, error) {
	t := &Tools{uris: map[string]bool{}}
	var problems []error
	inside, none := false, false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimSuffix(line, "\r"))
		title, heading := strings.CutPrefix(strings.TrimSpace(strings.TrimLeft(line, "#")), "§")
		switch {
		case heading && sectionName(title) == "TOOLS":
			if t.constrained {
				problems = append(problems, fmt.Errorf("line %d: a second §TOOLS section", i+1))
			}
			t.constrained, inside = true, true
		case heading || strings.HasPrefix(line, "#"):
			inside = false
		case !inside || line == "":
		case line == "none":
			none = true
		default:
			u, err := tooluri.Parse(line)
			if err != nil {
				problems = append(problems, fmt.Errorf("line %d: %w", i+1, err))
				continue
			}
			t.uris[u.String()] = true
		}
	}
	if none && len(t.uris) > 0 {
		problems = append(problems, errors.New("§TOOLS says none and lists tools"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return t, nil
}

// sectionName is a heading's name without what may follow it.
func sectionName(title string) string {
	name, _, _ := strings.Cut(title, " ")
	return strings.TrimSuffix(name, ":")
}
