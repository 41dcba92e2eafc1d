package doc

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// ParseTOML parses a TOML 1.0 document into the same kind of tree as [ParseJSON]. Tables become objects, and dates
// keep their text.
//
// The library go-toml parses the syntax. ParseTOML itself checks whether a table is defined twice, because the check in
// go-toml takes quadratic time and stops at the first problem. A fuzz test compares the two checks.
func ParseTOML(src *diag.Source, r *diag.Reporter) (t *Tree, ok bool) {
	t = newTree(src)
	t.toml = true
	t.add(none, &node{kind: Object, end: int32(len(src.Text)), origin: byHeader})
	p := parsers.Get().(*unstable.Parser)
	defer parsers.Put(p)
	b := &tomlBuilder{p: p, t: t, r: r, ok: true}
	b.p.Reset(unsafe.Slice(unsafe.StringData(src.Text), len(src.Text))) // the parser does not modify the bytes
	table := int32(0)
	for b.ok && b.p.NextExpression() {
		table = b.addExpression(b.p.Expression(), table)
	}
	if pe, failed := errors.AsType[*unstable.ParserError](b.p.Error()); failed {
		at := b.p.Range(pe.Highlight)
		start := int(at.Offset)
		place := diag.Place{Start: start, End: max(start+int(at.Length), min(start+1, len(src.Text)))}
		r.Report(diag.BadTOML, place, "", "%s", diag.Printable(pe.Message))
		return t, false
	}
	return t, b.ok
}

// origin says how a TOML table or list was created. The origin decides which headers and keys can still add members
// to the table or list.
type origin uint8

const (
	// byValue marks a value after an equals sign. No header or key can add members to the value.
	byValue origin = iota
	// byPath marks a table without its own header, such as "a" after [a.b].
	byPath
	// byHeader marks a table created by [table], or an element created by [[table]].
	byHeader
	// byDots marks a table created by a dotted key, such as "a" after a.b = 1.
	byDots
	// byList marks a list to which [[table]] appends elements.
	byList
)

// parsers contains go-toml parsers for reuse. Each parser keeps the memory of its syntax tree.
var parsers = sync.Pool{New: func() any { return new(unstable.Parser) }}

type tomlBuilder struct {
	p  *unstable.Parser
	t  *Tree
	r  *diag.Reporter
	ok bool
}

// add appends a member to a node. The member's key and value both get the location of the key.
func (b *tomlBuilder) add(parent int32, part *unstable.Node, kind Kind, o origin) int32 {
	n := b.named(part)
	n.kind, n.origin = kind, o
	return b.addNode(parent, &n, true)
}

// addNode appends a member or item to a node. A value is marked as odd if its text is not plain or its key has
// quotes.
func (b *tomlBuilder) addNode(parent int32, n *node, plain bool) int32 {
	i := b.t.add(parent, n)
	if !plain || n.keyEnd > 0 && !n.bare {
		b.t.markOdd(i)
	}
	return i
}

func (b *tomlBuilder) named(part *unstable.Node) node {
	start, end := int32(part.Raw.Offset), int32(part.Raw.Offset+part.Raw.Length)
	n := node{start: start, end: end, keyStart: start, keyEnd: end}
	// A bare key is ASCII and needs no decoding.
	key := b.t.Source.Text[start:end]
	if n.bare = key == string(part.Data); !n.bare {
		key = string(part.Data)
		n.key = b.t.addDecoded(key)
	}
	n.keyTag = tagOf(key)
	return n
}

// addExpression adds one TOML expression to the tree. It returns the table to which the next key belongs.
func (b *tomlBuilder) addExpression(e *unstable.Node, table int32) int32 {
	switch e.Kind {
	case unstable.KeyValue:
		b.keyValue(e, table, 1)
		return table
	case unstable.Table:
		return b.followHeader(e.Key(), false)
	case unstable.ArrayTable:
		return b.followHeader(e.Key(), true)
	}
	return table
}

// reportDefined reports a name that another node already defines. It returns a new table outside the tree, so that
// parsing can continue and later members of the duplicate are discarded.
func (b *tomlBuilder) reportDefined(part *unstable.Node, first int32) int32 {
	n := b.named(part)
	line, _ := b.t.Source.Position(int(b.t.nodes[first].start))
	at := diag.Place{Start: int(n.keyStart), End: int(n.keyEnd), Pointer: Value{b.t, first}.Pointer()}
	b.r.Report(diag.DuplicateKey, at, "", "%s is already defined on line %d", diag.Quote(string(part.Data)), line)
	n.kind, n.origin = Object, byHeader
	return b.addNode(none, &n, true)
}

// followHeader follows a header such as [a.b] or [[a.b]] from the root, and creates missing tables. It returns the last
// table.
func (b *tomlBuilder) followHeader(key unstable.Iterator, list bool) int32 {
	at := int32(0)
	for depth := 1; key.Next(); depth++ {
		part := key.Node()
		if !b.withinLimits(part, depth) {
			return at
		}
		found := b.t.members.find(b.t, at, string(part.Data))
		if !key.IsLast() {
			at = b.enterTable(at, found, part)
			continue
		}
		switch {
		case list && found < 0:
			return b.element(b.add(at, part, Array, byList), part)
		case list && b.t.nodes[found].origin == byList:
			return b.element(found, part)
		case !list && found < 0:
			return b.add(at, part, Object, byHeader)
		case !list && b.t.nodes[found].origin == byPath:
			b.t.nodes[found].origin = byHeader
			return found
		default:
			return b.reportDefined(part, found)
		}
	}
	return at
}

// enterTable returns the table for one part of a header. It is not called for the last part. The argument found is the
// index of the parent's member with this name, or negative if there is no such member.
func (b *tomlBuilder) enterTable(table, found int32, part *unstable.Node) int32 {
	switch {
	case found < 0:
		return b.add(table, part, Object, byPath)
	case b.t.nodes[found].origin == byList:
		return b.t.nodes[found].last
	case b.t.nodes[found].origin == byValue:
		return b.reportDefined(part, found)
	}
	return found
}

func (b *tomlBuilder) element(list int32, part *unstable.Node) int32 {
	n := b.named(part)
	n.kind, n.origin, n.key, n.keyTag, n.keyStart, n.keyEnd = Object, byHeader, 0, 0, 0, 0
	return b.t.add(list, &n)
}

func (b *tomlBuilder) keyValue(e *unstable.Node, table int32, depth int) {
	at := table
	for key := e.Key(); key.Next(); depth++ {
		part := key.Node()
		if !b.withinLimits(part, depth) {
			return
		}
		found := b.t.members.find(b.t, at, string(part.Data))
		switch {
		case key.IsLast() && found >= 0:
			at = b.reportDefined(part, found)
			b.value(e.Value(), at, b.named(part), depth)
		case key.IsLast():
			b.value(e.Value(), at, b.named(part), depth)
		case found < 0:
			at = b.add(at, part, Object, byDots)
		case b.t.nodes[found].origin == byDots:
			at = found
		default:
			at = b.reportDefined(part, found)
		}
	}
}

// withinLimits reports whether one more value at this depth is within the limits. If not, it reports the problem and
// the parser stops.
func (b *tomlBuilder) withinLimits(n *unstable.Node, depth int) bool {
	at := diag.Place{Start: int(n.Raw.Offset), End: int(n.Raw.Offset + n.Raw.Length)}
	switch {
	case !b.ok:
	case depth > maxDepth:
		b.r.Report(diag.TooDeep, at, "", "nested more than %d levels deep", maxDepth)
		b.ok = false
	case len(b.t.nodes) >= maxValues:
		b.r.Report(diag.TooManyValues, at, "", "the file contains more than %d values", maxValues)
		b.ok = false
	}
	return b.ok
}

// isPrintable reports whether a string is printable ASCII.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7F {
			return false
		}
	}
	return true
}

func (b *tomlBuilder) value(v *unstable.Node, parent int32, n node, depth int) {
	if !b.withinLimits(v, depth) {
		return
	}
	// go-toml has no location for lists and inline tables, so these values keep the location of their key.
	if v.Raw.Length > 0 {
		n.start, n.end = int32(v.Raw.Offset), int32(v.Raw.Offset+v.Raw.Length)
	}
	plain := true
	switch v.Kind {
	case unstable.String:
		n.kind = String
		// A string without escapes needs no decoding.
		raw := b.t.Source.Text[n.start:n.end]
		if len(raw) != len(v.Data)+2 || raw[1:len(raw)-1] != string(v.Data) {
			n.text = b.t.addDecoded(string(v.Data))
			plain = false
			break
		}
		plain = isPrintable(raw)
	case unstable.Bool:
		n.kind = Bool
		if b.t.Source.Text[n.start:n.end] != string(v.Data) {
			n.text = b.t.addDecoded(string(v.Data))
		}
	case unstable.Array:
		n.kind = Array
		self := b.addNode(parent, &n, true)
		for it := v.Children(); it.Next(); {
			b.value(it.Node(), self, node{start: n.start, end: n.end}, depth+1)
		}
		return
	case unstable.InlineTable:
		n.kind = Object
		self := b.addNode(parent, &n, true)
		for it := v.Children(); it.Next(); {
			b.keyValue(it.Node(), self, depth+1)
		}
		return
	default:
		b.parseScalar(v, &n)
	}
	b.addNode(parent, &n, plain)
}

// parseScalar parses a number or date. The go-toml parser accepts some invalid numbers and dates, so the go-toml
// decoder checks the text again.
func (b *tomlBuilder) parseScalar(v *unstable.Node, n *node) {
	at := diag.Place{Start: int(n.start), End: int(n.end)}
	text := string(v.Data)
	n.kind = Number
	if len(text) < 16 && !strings.ContainsAny(text, ".eE") && json.Valid(v.Data) &&
		b.t.Source.Text[n.start:n.end] == text {
		return
	}
	var content map[string]any
	if err := toml.Unmarshal([]byte("v = "+text), &content); err != nil {
		b.r.Report(diag.BadTOML, at, "", "%s is not a TOML value: %s", diag.Quote(text),
			strings.TrimPrefix(err.Error(), "toml: "))
		b.ok = false
		return
	}
	switch c := content["v"].(type) {
	case int64:
		text = strconv.FormatInt(c, 10)
	case float64:
		if c != c || c > maxExact || c < -maxExact {
			b.r.Report(diag.InexactNumber, at, "", "not every JSON parser represents %s exactly", diag.Quote(text))
			c = 0
		}
		text = strconv.FormatFloat(c, 'g', -1, 64)
	default:
		n.kind = Date
	}
	n.text = b.t.addDecoded(text)
}
