package doc

import (
	"errors"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/ambit-run/ambit/manifest/diag"
)

// ParseTOML reads a TOML document into the same tree as ParseJSON: tables are
// objects, dates keep their text. go-toml decides what is valid; a second pass
// over its syntax tree keeps the places.
func ParseTOML(src *diag.Source, r *diag.Reporter) (t *Tree, ok bool) {
	b := []byte(src.Text)
	t = newTree(src)
	t.toml = true
	t.add(none, node{kind: Object, end: int32(len(b))})
	var content map[string]any
	if err := toml.Unmarshal(b, &content); err != nil {
		reportTOML(src, r, err)
		return t, false
	}
	build := &tomlBuilder{t: t, r: r, ok: true, tables: make(map[tableKey]int32)}
	build.p.Reset(b)
	table := int32(0)
	for build.ok && build.p.NextExpression() {
		table = build.expression(build.p.Expression(), table)
	}
	return t, build.ok
}

func reportTOML(src *diag.Source, r *diag.Reporter, err error) {
	var at diag.Place
	message := strings.TrimPrefix(err.Error(), "toml: ")
	if de, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := de.Position()
		at.Start = offset(src.Text, line, column)
		at.End = min(at.Start+1, len(src.Text))
		if key := de.Key(); len(key) > 0 {
			at.Pointer = "/" + strings.Join(key, "/")
		}
	}
	rule := diag.BadTOML
	if strings.Contains(message, "already") {
		rule = diag.DuplicateKey
	}
	r.Report(rule, at, "", "%s", diag.Printable(message))
}

// offset is where go-toml's line and column (in bytes, both from 1) stand.
func offset(text string, line, column int) int {
	off := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(text[off:], '\n')
		if i < 0 {
			return len(text)
		}
		off += i + 1
	}
	return min(off+max(column-1, 0), len(text))
}

type tomlBuilder struct {
	p  unstable.Parser
	t  *Tree
	r  *diag.Reporter
	ok bool
	// tables finds a table by its parent and name: a file may hold thousands.
	tables map[tableKey]int32
}

type tableKey struct {
	parent int32
	name   string
}

// table returns the table or list of that name, absent if there is none yet.
func (b *tomlBuilder) table(parent int32, part *unstable.Node) Value {
	if i, ok := b.tables[tableKey{parent, string(part.Data)}]; ok {
		return Value{b.t, i}
	}
	return Value{}
}

func (b *tomlBuilder) addTable(parent int32, part *unstable.Node, kind Kind) int32 {
	i := b.t.add(parent, b.named(part, kind))
	b.tables[tableKey{parent, string(part.Data)}] = i
	return i
}

// expression adds one line of TOML below table and returns the table that the
// next line stands in.
func (b *tomlBuilder) expression(e *unstable.Node, table int32) int32 {
	switch e.Kind {
	case unstable.KeyValue:
		b.keyValue(e, table, 1)
	case unstable.Table:
		return b.descend(e.Key(), 0, false)
	case unstable.ArrayTable:
		return b.descend(e.Key(), 0, true)
	}
	return table
}

// descend walks a dotted key from node at, making tables on the way, and
// returns the last one. With element, the last part is a list that gets one
// more table.
func (b *tomlBuilder) descend(key unstable.Iterator, at int32, element bool) int32 {
	for key.Next() {
		part := key.Node()
		last := key.IsLast()
		found := b.table(at, part)
		switch {
		case !found.Ok() && last && element:
			at = b.addTable(at, part, Array)
			at = b.element(at, part)
		case !found.Ok():
			at = b.addTable(at, part, Object)
		case found.Is(Array) && last && element:
			at = b.element(found.i, part)
		case found.Is(Array):
			at = b.t.nodes[found.i].last
		default:
			at = found.i
		}
	}
	return at
}

// named makes a node that stands where the key that names it stands.
func (b *tomlBuilder) named(part *unstable.Node, kind Kind) node {
	start, end := int32(part.Raw.Offset), int32(part.Raw.Offset+part.Raw.Length)
	return node{kind: kind, key: string(part.Data), start: start, end: end, keyStart: start, keyEnd: end}
}

func (b *tomlBuilder) element(list int32, part *unstable.Node) int32 {
	n := b.named(part, Object)
	n.key, n.keyStart, n.keyEnd = "", 0, 0
	return b.t.add(list, n)
}

func (b *tomlBuilder) keyValue(e *unstable.Node, table int32, depth int) {
	key := e.Key()
	at := table
	var n node
	for key.Next() {
		part := key.Node()
		if key.IsLast() {
			n = b.named(part, Absent)
			break
		}
		if found := b.table(at, part); found.Ok() {
			at = found.i
		} else {
			at = b.addTable(at, part, Object)
		}
	}
	b.value(e.Value(), at, n, depth)
}

func (b *tomlBuilder) value(v *unstable.Node, parent int32, n node, depth int) {
	at := diag.Place{Start: int(v.Raw.Offset), End: int(v.Raw.Offset + v.Raw.Length)}
	if at.End == 0 {
		at = diag.Place{Start: int(n.keyStart), End: int(n.keyEnd)}
	}
	switch {
	case !b.ok:
		return
	case depth > maxDepth:
		b.r.Report(diag.TooDeep, at, "", "nested more than %d levels deep", maxDepth)
		b.ok = false
		return
	case len(b.t.nodes) >= maxValues:
		b.r.Report(diag.TooManyValues, at, "", "the file holds more than %d values", maxValues)
		b.ok = false
		return
	}
	n.start, n.end = int32(at.Start), int32(at.End)
	n.text = string(v.Data)
	switch v.Kind {
	case unstable.String:
		n.kind = String
	case unstable.Bool:
		n.kind = Bool
	case unstable.Integer, unstable.Float:
		n.kind, n.text = Number, decimal(n.text, v.Kind)
		if n.text == "" {
			b.r.Report(diag.InexactNumber, at, "", "%s cannot be held exactly by every JSON reader", diag.Quote(string(v.Data)))
			n.text = "0"
		} else {
			reportInexact(b.r, at, n.text)
		}
	case unstable.Array:
		n.kind, n.text = Array, ""
		self := b.t.add(parent, n)
		for it := v.Children(); it.Next(); {
			b.value(it.Node(), self, node{}, depth+1)
		}
		return
	case unstable.InlineTable:
		n.kind, n.text = Object, ""
		self := b.t.add(parent, n)
		for it := v.Children(); it.Next(); {
			b.keyValue(it.Node(), self, depth+1)
		}
		return
	default:
		n.kind = Date
	}
	b.t.add(parent, n)
}

// decimal writes a TOML number the way JSON does; empty if JSON has no such
// number.
func decimal(s string, kind unstable.Kind) string {
	if kind == unstable.Float {
		f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
		if err != nil || f != f || f > maxExact || f < -maxExact {
			return ""
		}
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		// 0-prefixed forms aside, Go and TOML agree; a sign may lead.
		if n, err = strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64); err != nil {
			return ""
		}
	}
	return strconv.FormatInt(n, 10)
}
