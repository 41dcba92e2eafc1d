package skill

import (
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

type shape uint8

const (
	asText shape = iota
	asList
	asTable
)

func (s shape) String() string {
	return [...]string{"a string", "a list", "a mapping of names to strings"}[s]
}

type field struct {
	key   string
	line  int
	shape shape
	text  string
	items []entry
}

// entry is an item of a list or a key-value pair of a mapping. The key of a list item is empty. The text is the item,
// or the value of the pair, as a string: a list becomes its strings, separated by commas, and a mapping becomes "".
type entry struct {
	key, text string
	line      int
}

// frontmatter is the result of parsing a file: the fields of the YAML between the two "---" lines, and the body
// below.
type frontmatter struct {
	present bool
	broken  bool // true if the front matter could not be parsed; the problem was reported
	fields  []field
	body    string
	line    int // the number of the first line of the body
}

func (f *frontmatter) field(key string) *field {
	for i := range f.fields {
		if f.fields[i].key == key {
			return &f.fields[i]
		}
	}
	return nil
}

// FrontMatter returns the fields of a file's front matter, the tags, and the text below the front matter. If a field
// contains a list or a mapping, its value is empty. If the front matter is invalid, the map is empty.
func FrontMatter(all string) (fields map[string]string, tags []string, body string) {
	m := readFrontmatter(all, func(int, bool, string, string) {})
	fields = map[string]string{}
	for _, f := range m.fields {
		fields[f.key] = f.text
	}
	return fields, tagsOf(&m), m.body
}

// report records a problem at a line.
type report func(line int, warning bool, hint, message string)

// maxMatter limits the front matter of one file, in bytes.
const maxMatter = 64 << 10

// readFrontmatter splits a file into the fields of its front matter and the body. It calls the function note for each
// problem. If the first line is not "---", the whole file is the body.
func readFrontmatter(all string, note report) frontmatter {
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
		note(1, false, "add a line \"---\" after the front matter", "the front matter has no closing line \"---\"")
		return frontmatter{present: true, broken: true, line: len(lines)}
	}
	f := frontmatter{present: true, body: strings.Join(lines[end+1:], "\n"), line: end + 2}
	failed := false
	m := &matter{lines: lines[:end], report: func(line int, warning bool, hint, message string) {
		failed = failed || !warning
		note(line, warning, hint, message)
	}}
	f.fields = m.read()
	f.broken = failed && f.fields == nil
	return f
}

// matter parses the front matter of a file. It keeps the opening line "---", so that line numbers are the same as in
// the file.
type matter struct {
	lines  []string
	report report
}

func (m *matter) read() []field {
	if n := len(strings.Join(m.lines, "\n")); n > maxMatter {
		m.report(1, false, "move details into the text after the front matter",
			"the front matter has more than "+strconv.Itoa(maxMatter)+" bytes")
		return nil
	}
	for i, l := range m.lines {
		// YAML treats these characters as line breaks or ignores them. For an editor, they are part of the line.
		if strings.ContainsAny(l, "\u0085\u2028\u2029\ufeff") {
			m.report(i+1, false, "remove the character",
				"the line contains an invisible character that YAML and editors interpret differently")
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
	if !m.isPlain(root) {
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
					m.report(item.Line, true, `write a string: "- value"`, "an item of "+f.key+" is not a string")
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

// maxRepairs limits the number of strings that are put in quotes. After each repair, the document must be parsed
// again.
const maxRepairs = 20

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parse returns the root of the YAML document. It returns nil if the document is empty. If the document is invalid,
// parse reports the problem and returns nil. In YAML, a string that contains a colon needs quotes. Because many skills
// lack these quotes, parse adds them and reports a warning.
func (m *matter) parse() *yaml.Node {
	for repairs := 0; ; repairs++ {
		var doc, next yaml.Node
		d := yaml.NewDecoder(strings.NewReader(strings.Join(m.lines, "\n")))
		err := d.Decode(&doc)
		if err == nil && !errors.Is(d.Decode(&next), io.EOF) {
			m.report(1, false, "remove the line \"...\"", "the front matter contains a second YAML document")
			return nil
		}
		switch {
		case err == nil && len(doc.Content) > 0:
			if doc.Content[0].Tag == "!!null" {
				return nil // the document contains only comments
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
		m.report(line, false, "correct the YAML; put text with special characters in quotes",
			"the front matter is not valid YAML: "+message)
		return nil
	}
}

// unquotedLine matches a line that contains a key and a string without quotes.
var unquotedLine = regexp.MustCompile("^( *(?:- )?[A-Za-z0-9_./-]+: +)([^\\s'\"\\[\\]{}|>&*!%@`#,?-].*)$")

// quote adds the missing quotes to the string on a line and reports a warning. If the line contains no unquoted string
// with a colon, quote returns false.
func (m *matter) quote(line int) bool {
	at := unquotedLine.FindStringSubmatch(m.lines[line-1])
	if at == nil {
		return false
	}
	text, _, _ := strings.Cut(at[2], " #")
	if !strings.Contains(text+" ", ": ") {
		return false
	}
	m.lines[line-1] = at[1] + singleQuoted(text)
	m.report(line, true, "put the string in quotes",
		"in YAML, a string with a colon needs quotes; without the quotes, some clients ignore the file")
	return true
}

// singleQuoted returns s as a YAML string in single quotes.
func singleQuoted(s string) string {
	return "'" + strings.ReplaceAll(strings.TrimRight(s, " "), "'", "''") + "'"
}

var (
	globsLine = regexp.MustCompile(`^globs: +([^\s'"#|>].*)$`)
	globItem  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s,\[\]][^,\]]*`)
)

// quoteGlobs puts the file patterns of a globs line in quotes. Editors write patterns without quotes, but YAML would
// interpret * as an alias.
func quoteGlobs(line string) string {
	m := globsLine.FindStringSubmatch(line)
	if m == nil {
		return line
	}
	if m[1][0] != '[' {
		return "globs: " + singleQuoted(m[1])
	}
	return "globs: " + globItem.ReplaceAllStringFunc(m[1], func(s string) string {
		if s[0] == '"' || s[0] == '\'' {
			return s
		}
		return singleQuoted(s)
	})
}

// isPlain reports a problem and returns false if a node contains an anchor, alias or tag. With these, a parsed value
// can differ from the text in the file.
func (m *matter) isPlain(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		m.report(n.Line, false, "write the value itself, or put the string in quotes",
			"the front matter uses a YAML anchor (&), alias (*) or tag (!)")
		return false
	}
	for _, c := range n.Content {
		if !m.isPlain(c) {
			return false
		}
	}
	return true
}

// pairs yields the keys and values of a mapping. It reports keys that are not strings and keys that appear twice.
func (m *matter) pairs(n *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			switch {
			case key.Kind != yaml.ScalarNode:
				m.report(key.Line, false, `write "key: value"`, "a key is not a string")
				continue
			case seen[key.Value]:
				m.report(key.Line, false, "remove one of the two fields", "the field "+key.Value+" appears twice")
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
