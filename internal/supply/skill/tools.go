package skill

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/tooluri"
)

// Tools is the set of tools that a skill allows.
type Tools struct {
	name string
	// constrained means that there is a section; without one all tools are allowed.
	constrained bool
	uris        map[string]bool
}

// Allows reports whether a tool may be called, by its URI, or by its name if it has
// none.
func (t *Tools) Allows(uri string) bool { return !t.constrained || t.uris[uri] }

// Name is the skill's name for messages.
func (t *Tools) Name() string { return t.name }

// maxBytes limits a skill file.
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

// ParseTools parses the §TOOLS section of a skill's text. The error lists every line
// that is not a pinned tool URI.
func ParseTools(text string) (*Tools, error) {
	t, problems := parseTools(text, nil)
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
		if p.line > 0 {
			errs[i] = fmt.Errorf("line %d: %w", p.line, p)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// lineError is the problem of a line; 0 is the section.
type lineError struct {
	error
	line int
}

func (e lineError) Unwrap() error { return e.error }

// parseTools parses the section. names are the tools without a URI, which it may list
// by name.
func parseTools(text string, names []string) (*Tools, []lineError) {
	t := &Tools{uris: map[string]bool{}}
	var problems []lineError
	inside, none := false, false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimSuffix(line, "\r"))
		title, heading := strings.CutPrefix(strings.TrimSpace(strings.TrimLeft(line, "#")), "§")
		switch {
		case heading && sectionName(title) == "TOOLS":
			if t.constrained {
				problems = append(problems, lineError{errors.New("a second §TOOLS section"), i + 1})
			}
			t.constrained, inside = true, true
		case almostSection(line):
			problems = append(problems, lineError{fmt.Errorf("%s is not recognized: write §TOOLS, in capitals and without spaces", diag.Quote(line)), i + 1})
			inside = false
		case heading || strings.HasPrefix(line, "#"):
			inside = false
		case !inside || line == "":
		case slices.Contains(names, line):
			t.uris[line] = true
		case line == "none":
			none = true
		default:
			u, err := tooluri.Parse(line)
			if err != nil {
				problems = append(problems, lineError{err, i + 1})
				continue
			}
			t.uris[u.String()] = true
		}
	}
	if none && len(t.uris) > 0 {
		problems = append(problems, lineError{errors.New("§TOOLS contains both none and tools"), 0})
	}
	return t, problems
}

// almostSection reports whether a line looks like the section's heading but has the
// wrong case, spaces or marks. An overlooked section would limit nothing.
func almostSection(line string) bool {
	mark := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	title, marked := strings.CutPrefix(strings.TrimLeftFunc(line, func(r rune) bool { return r != '§' && mark(r) }), "§")
	title = strings.TrimLeftFunc(title, mark)
	if end := strings.IndexFunc(title, mark); end >= 0 {
		title = title[:end]
	}
	return marked && strings.EqualFold(title, "tools")
}

// sectionName is a heading's text without any suffix.
func sectionName(title string) string {
	name, _, _ := strings.Cut(title, " ")
	return strings.TrimSuffix(name, ":")
}
