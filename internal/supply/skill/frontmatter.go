package skill

import (
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// shape is the kind of value that a field has.
type shape uint8

const (
	asText shape = iota
	asList
	asTable
)

func (s shape) String() string { return [...]string{"a text", "a list", "names with texts"}[s] }

// field is one field of a front matter.
type field struct {
	key   string
	line  int
	shape shape
	text  string
	items []entry // of a list or a table
}

// entry is an item of a list, or a name with its text. A list of texts below a name reads as the texts with commas
// between them; deeper values have no text.
type entry struct {
	key, text string
	line      int
}

// frontmatter is the YAML between the two --- lines, and the text below it.
type frontmatter struct {
	present bool
	broken  bool // the YAML could not be read, and the problem is reported
	fields  []field
	body    string
	line    int // of the start of body
}

func (f *frontmatter) field(key string) *field {
	for i := range f.fields {
		if f.fields[i].key == key {
			return &f.fields[i]
		}
	}
	return nil
}

// FrontMatter returns the fields of a file's front matter and the text below it. Fields
// with a list or a table have an empty value. Invalid front matter has no fields.
func FrontMatter(all string) (fields map[string]string, body string) {
	m := readFrontmatter(all, func(int, bool, string, string) {})
	fields = map[string]string{}
	for _, f := range m.fields {
		fields[f.key] = f.text
	}
	return fields, m.body
}

// report takes a problem at a line.
type report func(line int, warning bool, hint, message string)

// maxMatter bounds the YAML of one file, in bytes.
const maxMatter = 64 << 10

// readFrontmatter splits a file into fields and body. A file whose first line is not --- is all body.
func readFrontmatter(all string, tell report) frontmatter {
	lines := strings.Split(all, "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	if strings.TrimRight(lines[0], " ") != "---" {
		return frontmatter{body: all, line: 1}
	}
	end := 1
	for end < len(lines) && strings.TrimRight(lines[end], " ") != "---" {
		end++
	}
	if end == len(lines) {
		tell(1, false, "end it with a line ---", "the front matter does not end")
		return frontmatter{present: true, broken: true, line: len(lines)}
	}
	f := frontmatter{present: true, body: strings.Join(lines[end+1:], "\n"), line: end + 2}
	failed := false
	m := &matter{lines: lines[:end], report: func(line int, warning bool, hint, message string) {
		failed = failed || !warning
		tell(line, warning, hint, message)
	}}
	f.fields = m.read()
	f.broken = failed && f.fields == nil
	return f
}

// matter reads the lines of a front matter, the first --- included, so that lines count as in the file.
type matter struct {
	lines  []string
	report report
}

func (m *matter) read() []field {
	if n := len(strings.Join(m.lines, "\n")); n > maxMatter {
		m.report(1, false, "move details into the text below", "the front matter has more than "+strconv.Itoa(maxMatter)+" bytes")
		return nil
	}
	for i, l := range m.lines {
		// YAML breaks lines at these characters, and editors do not.
		if strings.ContainsAny(l, "\u0085\u2028\u2029\ufeff") {
			m.report(i+1, false, "remove it", "the line contains a character that YAML and editors read differently")
			return nil
		}
		m.lines[i] = quoteGlobs(l)
	}
	root := m.parse()
	if root == nil {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		m.report(root.Line, false, `write "key: value"`, "the front matter has no fields")
		return nil
	}
	if !m.plain(root) {
		return nil
	}
	var fields []field
	for key, value := range m.pairs(root) {
		f := field{key: key.Value, line: key.Line}
		switch value.Kind {
		case yaml.ScalarNode:
			f.text = textOf(value)
		case yaml.SequenceNode:
			f.shape = asList
			for _, item := range value.Content {
				if item.Kind != yaml.ScalarNode {
					m.report(item.Line, false, `write a text: "- value"`, "an item of "+f.key+" is not a text")
				}
				f.items = append(f.items, entry{text: textOf(item), line: item.Line})
			}
		case yaml.MappingNode:
			f.shape = asTable
			for name, v := range m.pairs(value) {
				f.items = append(f.items, entry{key: name.Value, text: textOf(v), line: name.Line})
			}
		}
		fields = append(fields, f)
	}
	return fields
}

// maxRepairs bounds how many texts with a colon are put in quotes, each with another parse.
const maxRepairs = 20

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parse returns the root of the one document, or nil after it reported why there is none. A text with a colon needs
// quotes in YAML; many skills lack them, so such a text is repaired with a warning.
func (m *matter) parse() *yaml.Node {
	for repairs := 0; ; repairs++ {
		var doc, next yaml.Node
		d := yaml.NewDecoder(strings.NewReader(strings.Join(m.lines, "\n")))
		err := d.Decode(&doc)
		if err == nil && !errors.Is(d.Decode(&next), io.EOF) {
			m.report(1, false, "remove the line ...", "the front matter has a second YAML document")
			return nil
		}
		switch {
		case err == nil && len(doc.Content) > 0:
			if doc.Content[0].Tag == "!!null" {
				return nil // nothing but comments
			}
			return doc.Content[0]
		case err == nil || errors.Is(err, io.EOF):
			return nil
		}
		line, message := 1, yamlError.ReplaceAllString(err.Error(), "")
		if at := yamlError.FindStringSubmatch(err.Error()); at != nil && at[1] != "" {
			line, _ = strconv.Atoi(at[1])
			if strings.HasPrefix(message, "did not find expected") {
				line++ // these errors count lines from 0
			}
			line = min(line, len(m.lines))
		}
		if strings.HasPrefix(message, "mapping values are not allowed") && repairs < maxRepairs && m.quote(line) {
			continue
		}
		m.report(line, false, "correct the YAML; put text with special characters in quotes", "the front matter is not YAML: "+message)
		return nil
	}
}

// keyed is a line with a key and a text without quotes.
var keyed = regexp.MustCompile("^( *(?:- )?[A-Za-z0-9_./-]+: +)([^\\s'\"\\[\\]{}|>&*!%@`#,?-].*)$")

var colon = regexp.MustCompile(`:\s`)

// quote puts the text at a line in quotes, with the lines that continue it. It reports whether that was possible.
func (m *matter) quote(line int) bool {
	first := line - 1
	indent := func(i int) int { return len(m.lines[i]) - len(strings.TrimLeft(m.lines[i], " ")) }
	for first > 0 && !keyed.MatchString(m.lines[first]) {
		first--
	}
	at := keyed.FindStringSubmatch(m.lines[first])
	if at == nil {
		return false
	}
	last := first
	for i := first + 1; i < len(m.lines) && (strings.TrimSpace(m.lines[i]) == "" || indent(i) > indent(first)); i++ {
		if strings.TrimSpace(m.lines[i]) != "" {
			last = i
		}
	}
	if all := at[2] + strings.Join(m.lines[first+1:last+1], "\n") + "\n"; last < line-1 || !colon.MatchString(all) {
		return false
	}
	escape := func(s string) string { return strings.ReplaceAll(s, "'", "''") }
	text, comment, _ := strings.Cut(at[2], " #")
	if comment != "" && last > first {
		return false // a comment ends the text
	}
	m.lines[first] = at[1] + "'" + escape(text)
	for i := first + 1; i <= last; i++ {
		m.lines[i] = escape(m.lines[i])
	}
	m.lines[last] = strings.TrimRight(m.lines[last], " ") + "'"
	m.report(line, true, "put the text in quotes",
		"a text with a colon in it is not YAML without quotes, and some clients skip the file")
	return true
}

var (
	globsLine = regexp.MustCompile(`^globs: +([^\s'"#|>].*)$`)
	globItem  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s,\[\]][^,\]]*`)
)

// quoteGlobs puts file patterns in quotes: editors write them without, and YAML reads * as an alias.
func quoteGlobs(line string) string {
	m := globsLine.FindStringSubmatch(line)
	if m == nil {
		return line
	}
	single := func(s string) string { return "'" + strings.ReplaceAll(strings.TrimRight(s, " "), "'", "''") + "'" }
	if m[1][0] != '[' {
		return "globs: " + single(m[1])
	}
	return "globs: " + globItem.ReplaceAllStringFunc(m[1], func(s string) string {
		if s[0] == '"' || s[0] == '\'' {
			return s
		}
		return single(s)
	})
}

// plain refuses anchors, aliases and tags: a value has to mean what it shows.
func (m *matter) plain(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		m.report(n.Line, false, "write the value itself, or put the text in quotes",
			"the front matter uses an anchor, an alias or a tag: & * !")
		return false
	}
	for _, c := range n.Content {
		if !m.plain(c) {
			return false
		}
	}
	return true
}

// pairs yields the keys and values of a mapping, and reports keys that are not texts or appear twice.
func (m *matter) pairs(n *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			switch {
			case key.Kind != yaml.ScalarNode:
				m.report(key.Line, false, `write "key: value"`, "a key is not a text")
				continue
			case seen[key.Value]:
				m.report(key.Line, false, "keep one of them", "there already is a field "+key.Value)
			}
			seen[key.Value] = true
			if !yield(key, n.Content[i+1]) {
				return
			}
		}
	}
}

func textOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.ScalarNode:
		return strings.TrimRight(n.Value, "\n")
	case yaml.SequenceNode:
		var texts []string
		for _, item := range n.Content {
			if item.Kind == yaml.ScalarNode {
				texts = append(texts, item.Value)
			}
		}
		return strings.Join(texts, ",")
	}
	return ""
}
