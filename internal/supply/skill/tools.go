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
	// constrained is true if the skill has a §TOOLS section. A skill without this section allows all tools.
	constrained bool
	uris        map[string]bool
}

// Allows reports whether the skill allows a tool. The parameter uri is the tool's URI, or the tool's name if the tool
// has no URI.
func (t *Tools) Allows(uri string) bool { return !t.constrained || t.uris[uri] }

// Name returns the name of the skill, for messages.
func (t *Tools) Name() string { return t.name }

// Load reads the skill at path and parses its §TOOLS section.
func Load(path string) (*Tools, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := readBounded(f, path)
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

// ParseTools parses the §TOOLS section of a skill's text. The error lists every problem in the section.
func ParseTools(text string) (*Tools, error) {
	t, problems := parseTools(text, nil)
	var texts []string
	for _, p := range problems {
		text := p.Error()
		if p.line > 0 {
			text = fmt.Sprintf("line %d: %s", p.line, text)
		}
		texts = append(texts, text)
	}
	if len(texts) > 0 {
		return nil, errors.New(strings.Join(texts, "; ")) // errors.Join would put each error on its own line
	}
	return t, nil
}

// lineError is a problem in a line. If the line number is 0, the problem concerns the whole section.
type lineError struct {
	error
	line int
}

// parseTools parses the §TOOLS section. It accepts tool URIs and the given tool names.
func parseTools(text string, names []string) (*Tools, []lineError) {
	t := &Tools{uris: map[string]bool{}}
	var problems []lineError
	inside, none := false, false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimSuffix(line, "\r"))
		title, heading := strings.CutPrefix(strings.TrimSpace(strings.TrimLeft(line, "#")), "§")
		item := listItem(line)
		switch {
		case heading && sectionName(title) == "TOOLS":
			if t.constrained {
				problems = append(problems, lineError{errors.New("the skill has a second §TOOLS section"), i + 1})
			}
			t.constrained, inside = true, true
		case almostSection(line):
			err := fmt.Errorf("%s is not recognized as a section: write §TOOLS, in capital letters and without spaces",
				diag.Quote(line))
			problems = append(problems, lineError{err, i + 1})
			inside = false
		case heading || strings.HasPrefix(line, "#"):
			inside = false
		case !inside || line == "":
		case slices.Contains(names, item):
			t.uris[item] = true
		case item == "none":
			none = true
		default:
			u, err := tooluri.Parse(item)
			if err != nil {
				problems = append(problems, lineError{err, i + 1})
				continue
			}
			t.uris[u.String()] = true
		}
	}
	if none && len(t.uris) > 0 {
		problems = append(problems, lineError{errors.New("§TOOLS contains the word \"none\" but also lists tools"), 0})
	}
	return t, problems
}

// listItem returns a line without the bullet and the code marks of Markdown.
func listItem(line string) string {
	if len(line) > 1 && strings.ContainsRune("-*+", rune(line[0])) && (line[1] == ' ' || line[1] == '\t') {
		line = strings.TrimSpace(line[1:])
	}
	if inner, ok := strings.CutPrefix(line, "`"); ok {
		if inner, ok := strings.CutSuffix(inner, "`"); ok {
			return inner
		}
	}
	return line
}

// almostSection reports whether a line looks like a misspelled heading of the §TOOLS section, such as a heading with
// the wrong case, extra spaces or extra marks. If parseTools ignored such a section, the skill would allow all tools.
// parseTools calls almostSection only for lines that are not the correct heading.
func almostSection(line string) bool {
	mark := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	title, marked := strings.CutPrefix(strings.TrimLeftFunc(line, func(r rune) bool { return r != '§' && mark(r) }), "§")
	title = strings.TrimLeftFunc(title, mark)
	if end := strings.IndexFunc(title, mark); end >= 0 {
		title = title[:end]
	}
	return marked && strings.EqualFold(title, "tools")
}

// sectionName returns the first word of a heading, without a colon at its end.
func sectionName(title string) string {
	name, _, _ := strings.Cut(title, " ")
	return strings.TrimSuffix(name, ":")
}
