package client

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlFile is a TOML file with one table per entry, below table.
type tomlFile struct{ table string }

func (f tomlFile) meaning(e Entry) any { return e.meaning(false) }

func (f tomlFile) parse(text []byte) (map[string]any, error) {
	_, text = splitMark(text)
	root := map[string]any{}
	if err := toml.Unmarshal(text, &root); err != nil {
		if e, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, _ := e.Position()
			return nil, fmt.Errorf("it is not valid TOML: error in line %d", line)
		}
		return nil, errors.New("it is not valid TOML")
	}
	if holder, there := root[f.table]; there {
		if _, ok := holder.(map[string]any); !ok {
			return nil, fmt.Errorf("its %q is not a table", f.table)
		}
	}
	return root, nil
}

func (f tomlFile) get(text []byte, key string) (any, error) {
	root, err := f.parse(text)
	if err != nil {
		return nil, err
	}
	holder, _ := root[f.table].(map[string]any)
	return holder[key], nil
}

// set writes the table at the end of the file, or replaces the existing one. It checks that
// everything else keeps its meaning, because some notations of tables allow no addition.
func (f tomlFile) set(text []byte, key string, e Entry) (edited, error) {
	before, err := f.parse(text)
	if err != nil {
		return edited{}, err
	}
	eol := eolOf(text)
	block := f.render(key, e, eol)
	var out edited
	if from, to, ok := f.find(text, key); ok {
		out = edited{text: apply(text, splice{from, to, block}), line: lineAt(text, from), removed: string(text[from:to]), added: block}
	} else {
		gap := ""
		switch {
		case len(text) == 0:
		case !bytes.HasSuffix(text, []byte("\n")):
			gap = eol + eol
		default:
			gap = eol
		}
		out = edited{text: append(bytes.Clone(text), gap+block...), added: block}
		out.line = lineAt(out.text, len(text)+len(gap))
	}
	after, err := f.parse(out.text)
	if err != nil || !f.same(before, after, key) {
		return edited{}, fmt.Errorf("%s has a notation that allows no further table", f.table)
	}
	return out, nil
}

// same compares everything except one entry.
func (f tomlFile) same(a, b map[string]any, key string) bool {
	for _, root := range []map[string]any{a, b} {
		if holder, ok := root[f.table].(map[string]any); ok {
			delete(holder, key)
			if len(holder) == 0 {
				delete(root, f.table)
			}
		}
	}
	return reflect.DeepEqual(a, b)
}

func (f tomlFile) render(key string, e Entry, eol string) string {
	lines := []string{
		"[" + f.table + "." + tomlKey(key) + "]",
		"command = " + quoted(e.Command),
		"args = " + quotedList(e.Args),
	}
	if e.Home != "" {
		lines = append(lines, "env = { "+homeVariable+" = "+quoted(e.Home)+" }")
	}
	return strings.Join(lines, eol) + eol
}

// tomlKey quotes a key if necessary.
func tomlKey(key string) string {
	for _, r := range key {
		if r != '-' && r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return quoted(key)
		}
	}
	if key == "" {
		return `""`
	}
	return key
}

// find returns the lines of an entry's table and its subtables, without the comments that belong to
// the next table.
func (f tomlFile) find(text []byte, key string) (from, to int, ok bool) {
	mark, rest := splitMark(text)
	var p unstable.Parser
	p.Reset(rest)
	from, to = -1, len(rest)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable {
			continue
		}
		var path []string
		first := -1
		for keys := e.Key(); keys.Next(); {
			path = append(path, string(keys.Node().Data))
			if first < 0 {
				first = bytes.LastIndexByte(rest[:keys.Node().Raw.Offset], '\n') + 1
			}
		}
		ours := len(path) >= 2 && path[0] == f.table && path[1] == key
		switch {
		case ours && from < 0:
			from = first
		case !ours && from >= 0 && first < to:
			to = first
		}
	}
	if from < 0 || p.Error() != nil {
		return 0, 0, false
	}
	// Blank lines and comments before the next table belong to that table.
	for to > from && to < len(rest) {
		start := bytes.LastIndexByte(rest[:to-1], '\n') + 1
		if line := bytes.TrimSpace(rest[start:to]); len(line) > 0 && line[0] != '#' {
			break
		}
		to = start
	}
	return from + len(mark), to + len(mark), true
}

// remove removes the table and the blank line before it.
func (f tomlFile) remove(text []byte, key string, _ bool) (edited, error) {
	before, err := f.parse(text)
	if err != nil {
		return edited{}, err
	}
	from, to, ok := f.find(text, key)
	if !ok {
		return edited{text: text, line: 1}, nil
	}
	out := edited{line: lineAt(text, from), removed: string(text[from:to])}
	for _, empty := range []string{"\r\n", "\n"} {
		if bytes.HasSuffix(text[:from], []byte("\n"+empty)) {
			from -= len(empty)
			break
		}
	}
	out.text = apply(text, splice{from, to, ""})
	after, err := f.parse(out.text)
	if err != nil || !f.same(before, after, key) {
		return edited{}, fmt.Errorf("the table of %q cannot be removed alone", key)
	}
	return out, nil
}
