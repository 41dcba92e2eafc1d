package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// yamlFile edits a YAML file. The entries are in the mapping that is the value of one top-level key.
type yamlFile struct {
	key   string // the top-level key
	shape shape
}

func (f yamlFile) valueOf(e Entry) any { return f.shape.value(e) }

// yamlDocument is a parsed YAML file.
type yamlDocument struct {
	values map[string]any
	// root is the top-level mapping. The fields key and entries are the key and the value of the mapping that contains
	// the entries. Both are nil if the file has no such key.
	root, key, entries *yaml.Node
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

func (f yamlFile) parse(text []byte) (*yamlDocument, error) {
	_, text = splitMark(text)
	if bytes.ContainsAny(bytes.ReplaceAll(text, []byte("\r\n"), nil), "\r\u0085\u2028\u2029") {
		return nil, errors.New("the file contains unusual line breaks: CR, U+0085, U+2028 or U+2029")
	}
	var node yaml.Node
	d := &yamlDocument{values: map[string]any{}}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&node)
	if errors.Is(err, io.EOF) {
		return d, nil // the file is empty
	}
	if err == nil {
		err = node.Decode(&d.values)
	}
	if err != nil {
		// The rest of the parser's message quotes the file and could reveal a secret.
		if line := yamlLine.FindStringSubmatch(err.Error()); line != nil {
			return nil, fmt.Errorf("the file is not valid YAML: error on line %s", line[1])
		}
		return nil, errors.New("the file is not valid YAML")
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file contains more than one YAML document")
	}
	d.root = node.Content[0]
	if d.root.Kind != yaml.MappingNode {
		return d, nil // the document is null
	}
	for i := 0; i < len(d.root.Content); i += 2 {
		if d.root.Content[i].Value == f.key {
			d.key, d.entries = d.root.Content[i], d.root.Content[i+1]
		}
	}
	if _, ok := d.values[f.key].(map[string]any); !ok && d.values[f.key] != nil {
		return nil, fmt.Errorf("the value of %q is not a mapping", f.key)
	}
	return d, nil
}

func (f yamlFile) get(text []byte, key string) (any, error) {
	d, err := f.parse(text)
	if err != nil {
		return nil, err
	}
	entries, _ := d.values[f.key].(map[string]any)
	return entries[key], nil
}

// set replaces the entry, or adds it as the first entry. It fails if the edit would change the meaning of the rest of
// the file, for example because the entries are in braces.
func (f yamlFile) set(text []byte, key string, e Entry) (edited, error) {
	d, err := f.parse(text)
	if err != nil {
		return edited{}, err
	}
	eol := eolOf(text)
	indent := "  "
	if d.entries != nil && len(d.entries.Content) > 0 {
		indent = strings.Repeat(" ", d.entries.Content[0].Column-1)
	}
	block := f.render(key, e, indent, eol)
	var out edited
	switch from, to, found := f.find(text, d, key); {
	case found:
		out = edited{removed: string(text[from:to])}
		out.text = apply(text, splice{from, to, block})
		out.line = lineAt(text, from)
	case d.key != nil:
		at := lineStart(text, d.key.Line+1)
		if at == len(text) && !bytes.HasSuffix(text, []byte("\n")) {
			block = eol + strings.TrimSuffix(block, eol)
		}
		out.text = apply(text, splice{at, at, block})
		out.line = d.key.Line + 1
	default:
		block = f.key + ":" + eol + block
		gap := ""
		if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
			gap = eol
		}
		out.text = append(bytes.Clone(text), gap+block...)
		out.line = lineAt(out.text, len(text)+len(gap))
		out.made = true
	}
	out.added = block
	return out, f.check(d, out.text, key)
}

// check returns an error if an edit changed more than the entry with this key.
func (f yamlFile) check(before *yamlDocument, text []byte, key string) error {
	after, err := f.parse(text)
	if err == nil {
		for _, values := range []map[string]any{before.values, after.values} {
			entries, _ := values[f.key].(map[string]any)
			delete(entries, key)
			if len(entries) == 0 {
				delete(values, f.key)
			}
		}
		if reflect.DeepEqual(before.values, after.values) {
			return nil
		}
	}
	return fmt.Errorf("an entry of %q cannot be changed without changing other settings", f.key)
}

// find returns the byte range of an entry. Blank lines and comments after the entry belong to the next entry.
func (f yamlFile) find(text []byte, d *yamlDocument, key string) (from, to int, found bool) {
	if d.entries == nil || d.entries.Style&yaml.FlowStyle != 0 {
		return 0, 0, false
	}
	to = len(text)
	end := func(next *yaml.Node) { to = lineStart(text, next.Line) }
	for i := 0; i+1 < len(d.root.Content); i += 2 {
		if d.root.Content[i] == d.key && i+2 < len(d.root.Content) {
			end(d.root.Content[i+2])
		}
	}
	for i := 0; i < len(d.entries.Content); i += 2 {
		if d.entries.Content[i].Value != key {
			continue
		}
		from, found = lineStart(text, d.entries.Content[i].Line), true
		if i+2 < len(d.entries.Content) {
			end(d.entries.Content[i+2])
		}
	}
	for found && to > from {
		start := bytes.LastIndexByte(text[:to-1], '\n') + 1
		if line := bytes.TrimSpace(text[start:to]); len(line) > 0 && line[0] != '#' {
			break
		}
		to = start
	}
	return from, to, found
}

// lineStart returns the offset of a line. Lines are numbered from 1. After the last line, it returns the length of the
// text.
func lineStart(text []byte, line int) int {
	at := 0
	for range line - 1 {
		i := bytes.IndexByte(text[at:], '\n')
		if i < 0 {
			return len(text)
		}
		at += i + 1
	}
	return at
}

// plainYAML matches keys that need no quotes.
var plainYAML = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

func (f yamlFile) render(key string, e Entry, indent, eol string) string {
	name := quote(key)
	var word any
	if plainYAML.MatchString(key) && yaml.Unmarshal([]byte(key), &word) == nil && word == key {
		name = key
	}
	lines := []string{indent + name + ":"}
	for _, of := range f.shape.of(e) {
		lines = append(lines, indent+"  "+of.name+": "+literal(of.value, ": "))
	}
	return strings.Join(lines, eol) + eol
}

// remove removes the entry. If made is true and no other entry is left, it also removes the key of the entries.
func (f yamlFile) remove(text []byte, key string, made bool) (edited, error) {
	d, err := f.parse(text)
	if err != nil {
		return edited{}, err
	}
	from, to, found := f.find(text, d, key)
	if !found {
		return edited{text: text, line: 1}, nil
	}
	out := edited{line: lineAt(text, from), removed: string(text[from:to])}
	if made && len(d.entries.Content) == 2 {
		from = lineStart(text, d.key.Line)
	}
	out.text = apply(text, splice{from, to, ""})
	return out, f.check(d, out.text, key)
}
