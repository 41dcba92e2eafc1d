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

// tomlFile edits a TOML file that has one table [table.KEY] for each entry.
type tomlFile struct {
	table string
	shape shape
}

func (f tomlFile) valueOf(e Entry) any { return f.shape.value(e) }

func (f tomlFile) parse(text []byte) (map[string]any, error) {
	_, text = splitMark(text)
	root := map[string]any{}
	if err := toml.Unmarshal(text, &root); err != nil {
		if e, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, _ := e.Position()
			return nil, fmt.Errorf("the file is not valid TOML: error on line %d", line)
		}
		return nil, errors.New("the file is not valid TOML")
	}
	if holder, there := root[f.table]; there {
		if _, ok := holder.(map[string]any); !ok {
			return nil, fmt.Errorf("the value of %q is not a table", f.table)
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

// set replaces the table of the entry, or adds a table at the end of the file. It fails if the edit would change the
// meaning of the rest of the file. It also fails if f.table is an inline table, because TOML does not allow inline
// tables to be extended.
func (f tomlFile) set(text []byte, key string, e Entry) (edited, error) {
	before, err := f.parse(text)
	if err != nil {
		return edited{}, err
	}
	eol := eolOf(text)
	block := f.render(key, e, eol)
	var out edited
	if from, to, ok := f.find(text, key); ok {
		out = edited{text: apply(text, splice{from, to, block}), line: lineAt(text, from), added: block}
		out.removed = string(text[from:to])
	} else {
		gap := eol
		if len(text) == 0 {
			gap = ""
		} else if !bytes.HasSuffix(text, []byte("\n")) {
			gap = eol + eol
		}
		out = edited{text: append(bytes.Clone(text), gap+block...), added: block}
		out.line = lineAt(out.text, len(text)+len(gap))
	}
	after, err := f.parse(out.text)
	if err != nil || !f.sameExcept(before, after, key) {
		return edited{}, fmt.Errorf("cannot add a table to %s, which is probably an inline table", f.table)
	}
	return out, nil
}

// sameExcept reports whether two parsed files are equal except for the entry with this key. It deletes the entry from
// both arguments.
func (f tomlFile) sameExcept(a, b map[string]any, key string) bool {
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
	lines := []string{"[" + f.table + "." + tomlKey(key) + "]"}
	for _, of := range f.shape.of(e) {
		value := literal(of.value, "")
		if variables, ok := of.value.(map[string]string); ok {
			value = "{ " + homeVariable + " = " + quote(variables[homeVariable]) + " }"
		}
		lines = append(lines, of.name+" = "+value)
	}
	return strings.Join(lines, eol) + eol
}

// bareKey lists the characters that are allowed in a TOML key without quotes.
const bareKey = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

func tomlKey(key string) string {
	if key == "" || strings.Trim(key, bareKey) != "" {
		return quote(key)
	}
	return key
}

// find returns the byte range of the entry's table and its subtables. The range does not include comments that belong
// to the next table.
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
	// Blank lines and comments before the next table belong to the next table.
	for to > from && to < len(rest) {
		start := bytes.LastIndexByte(rest[:to-1], '\n') + 1
		if line := bytes.TrimSpace(rest[start:to]); len(line) > 0 && line[0] != '#' {
			break
		}
		to = start
	}
	return from + len(mark), to + len(mark), true
}

// remove removes the entry's table and the blank line before it.
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
	if err != nil || !f.sameExcept(before, after, key) {
		return edited{}, fmt.Errorf("the table for %q cannot be removed without changing other settings", key)
	}
	return out, nil
}
