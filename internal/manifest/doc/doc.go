// Package doc represents a manifest as a tree of values with their locations.
//
// Both syntaxes become the same tree: [ParseJSON] and [ParseTOML]. Other packages do
// not know the syntax of a file. A [Value] is a small handle into its [Tree]. The zero
// Value is absent, and all its methods return zero values, so code that reads optional
// fields needs no checks.
//
// The JSON parser is written here instead of using a library, for these reasons. It
// continues after a comment, a trailing or missing comma or an unquoted key, so all
// problems of a file are reported at once. It keeps the location of every key and
// value. It finds duplicate keys and inexact numbers in the same pass, with limits on
// size, depth and number of values. It accepts without a report exactly RFC 8259: a
// fuzz test compares it with another parser.
//
// A tree is one slice of nodes linked by index. Strings without escapes are parts of
// the source, not copies, so parsing makes a handful of allocations however many
// values there are, and fewer if trees are reused with [Tree.Release].
package doc

import (
	"iter"
	"strconv"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Limits on the input. Exceeding one gives a diagnostic.
const (
	MaxBytes  = 16 << 20
	maxDepth  = 100
	maxValues = 1_000_000
)

// Kind is the type of a value.
type Kind uint8

// The kinds of values. Absent is the kind of the zero Value.
const (
	Absent Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
	// Date is a TOML date or time; no dialect has one.
	Date
)

func (k Kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "a list", "an object", "a date"}[k]
}

// node is one value. It contains no pointers, so the garbage collector does not scan a
// tree. Texts are spans of the source. A text with an escape is stored in Tree.decoded
// instead, and the node has its index.
type node struct {
	start, end       int32
	keyStart, keyEnd int32
	parent           int32
	next             int32
	first, last      int32
	index, count     int32
	text, key        int32  // in Tree.decoded; 0 is none
	keyTag           uint32 // tagOf the key
	kind             Kind
	origin           origin // TOML only, while the tree is built
	// bare reports that the key has no quotes.
	bare bool
}

// Tree is a parsed document.
type Tree struct {
	nodes   []node
	decoded []string        // from 1
	bytes   strings.Builder // the memory of keepBytes
	members members
	// Source is the text that the tree was parsed from.
	Source *diag.Source
	toml   bool
	odd    []int32 // see Odd
}

const none = -1

// trees keeps released trees for the next files.
var trees = sync.Pool{New: func() any { return new(Tree) }}

func newTree(src *diag.Source) *Tree {
	t := trees.Get().(*Tree)
	t.Source = src
	if values := min(len(src.Text)/16+8, maxValues); cap(t.nodes) < values {
		t.nodes = make([]node, 0, values) // most files have fewer
	}
	return t
}

// Release returns the tree's memory for the next tree. Texts from the tree stay valid;
// the tree and its values must not be used again.
func (t *Tree) Release() {
	const most = 1 << 14 // a larger tree is rare and keeps a lot of memory
	if cap(t.nodes) > most || cap(t.decoded) > most || cap(t.odd) > most {
		return
	}
	clear(t.decoded)
	*t = Tree{nodes: t.nodes[:0], decoded: t.decoded[:0], odd: t.odd[:0]}
	trees.Put(t)
}

// tagOf is a cheap hash of a key, so that looking up a key compares few texts.
func tagOf(key string) uint32 {
	n := len(key)
	if n == 0 {
		return 0
	}
	return uint32(uint8(n)) | uint32(key[0])<<8 | uint32(key[n/2])<<16 | uint32(key[n-1])<<24
}

// keep stores a text that is not a span of the source.
func (t *Tree) keep(s string) int32 {
	if len(t.decoded) == 0 {
		t.decoded = append(t.decoded, "")
	}
	t.decoded = append(t.decoded, s)
	return int32(len(t.decoded) - 1)
}

// keepBytes is keep for bytes, which it copies. Short ones share their memory.
func (t *Tree) keepBytes(b []byte) int32 {
	if t.bytes.Len() == 0 {
		t.bytes.Grow(max(len(b), 256))
	}
	start := t.bytes.Len()
	t.bytes.Write(b)
	return t.keep(t.bytes.String()[start:])
}

// spanOr returns the decoded text with that index, or a span of the source if it is 0.
func (t *Tree) spanOr(kept int32, start, end int) string {
	if kept > 0 {
		return t.decoded[kept]
	}
	return t.Source.Text[start:end]
}

func (t *Tree) keyOf(n *node) string {
	switch {
	case n.key > 0:
		return t.decoded[n.key]
	case n.bare:
		return t.Source.Text[n.keyStart:n.keyEnd]
	case n.keyEnd > n.keyStart+1:
		return t.Source.Text[n.keyStart+1 : n.keyEnd-1]
	}
	return ""
}

func (t *Tree) textOf(n *node) string {
	if n.text > 0 {
		return t.decoded[n.text]
	}
	switch n.kind {
	case String:
		return t.Source.Text[n.start+1 : n.end-1]
	case Number, Bool, Null:
		return t.Source.Text[n.start:n.end]
	}
	return ""
}

// push appends an empty child to parent.
func (t *Tree) push(parent int32) int32 {
	i := int32(len(t.nodes))
	t.nodes = append(t.nodes, node{parent: parent, next: none, first: none, last: none})
	if parent >= 0 {
		p := &t.nodes[parent]
		t.nodes[i].index = p.count
		p.count++
		if p.last >= 0 {
			t.nodes[p.last].next = i
		} else {
			p.first = i
		}
		p.last = i
	}
	return i
}

// add appends a child like n to parent.
func (t *Tree) add(parent int32, n *node) int32 {
	i := t.push(parent)
	c := &t.nodes[i]
	c.start, c.end, c.keyStart, c.keyEnd, c.text, c.key = n.start, n.end, n.keyStart, n.keyEnd, n.text, n.key
	c.keyTag, c.kind, c.origin, c.bare = n.keyTag, n.kind, n.origin, n.bare
	return i
}

// Root returns the document itself; absent if nothing could be parsed.
func (t *Tree) Root() Value {
	if t == nil || len(t.nodes) == 0 {
		return Value{}
	}
	return Value{t, 0}
}

// All yields every value of the tree, parents before their children.
func (t *Tree) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for i := range t.nodes {
			if !yield(Value{t, int32(i)}) {
				return
			}
		}
	}
}

// Odd yields the values whose key or text may not be plain. A plain text appears
// unchanged in the source and is printable ASCII.
func (t *Tree) Odd() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for _, i := range t.odd {
			if !yield(Value{t, i}) {
				return
			}
		}
	}
}

// markOdd adds a value to Odd. Its key comes before its text.
func (t *Tree) markOdd(i int32) {
	if len(t.odd) == 0 || t.odd[len(t.odd)-1] != i {
		t.odd = append(t.odd, i)
	}
}

// Value is one value of a tree.
type Value struct {
	t *Tree
	i int32
}

// Ok reports whether the value is present.
func (v Value) Ok() bool { return v.t != nil }

func (v Value) node() *node { return &v.t.nodes[v.i] }

// Kind returns the value's kind.
func (v Value) Kind() Kind {
	if v.t == nil {
		return Absent
	}
	return v.node().kind
}

// Raw is the value's text in the source.
func (v Value) Raw() string {
	if v.t == nil {
		return ""
	}
	n := v.node()
	return v.t.Source.Text[n.start:n.end]
}

// Is reports whether the value is of kind k.
func (v Value) Is(k Kind) bool { return v.Kind() == k }

// Text returns a string's content, a number's digits, or true or false.
func (v Value) Text() string {
	if v.t == nil {
		return ""
	}
	return v.t.textOf(v.node())
}

// Key returns the value's key in its object.
func (v Value) Key() string {
	if v.t == nil {
		return ""
	}
	return v.t.keyOf(v.node())
}

// TOML reports whether the value was read from TOML.
func (v Value) TOML() bool { return v.t != nil && v.t.toml }

// Index is the value's position among the members or items of its parent, from 0.
func (v Value) Index() int {
	if v.t == nil {
		return 0
	}
	return int(v.node().index)
}

// Len counts the members of an object or the items of a list.
func (v Value) Len() int {
	if v.t == nil {
		return 0
	}
	return int(v.node().count)
}

// Get returns an object's member, absent if there is none.
func (v Value) Get(key string) Value {
	if v.Kind() != Object {
		return Value{}
	}
	if i := v.t.members.find(v.t, v.i, key); i >= 0 {
		return Value{v.t, i}
	}
	return Value{}
}

// GetAfter is Get for a reader that asks for members roughly in file order: it starts
// the search after the member that it found last.
func (v Value) GetAfter(last Value, key string) Value {
	if v.Kind() != Object || v.Len() > fewMembers {
		return v.Get(key)
	}
	nodes, tag := v.t.nodes, tagOf(key)
	first := nodes[v.i].first
	from := first
	if last.t == v.t && nodes[last.i].parent == v.i && nodes[last.i].next >= 0 {
		from = nodes[last.i].next
	}
	if i := v.t.between(from, none, key, tag); i != none {
		return Value{v.t, i}
	}
	if i := v.t.between(first, from, key, tag); i != from {
		return Value{v.t, i}
	}
	return Value{}
}

// Each yields the members of an object or the items of a list, in order.
func (v Value) Each() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.t == nil {
			return
		}
		for i := v.node().first; i >= 0; i = v.t.nodes[i].next {
			if !yield(Value{v.t, i}) {
				return
			}
		}
	}
}

// Int returns a number as an integer, if it is one.
func (v Value) Int() (int64, bool) {
	if v.Kind() != Number {
		return 0, false
	}
	n, err := strconv.ParseInt(v.Text(), 10, 64)
	if err == nil {
		return n, true
	}
	// 1e3 and 5.0 are integers too.
	f, err := strconv.ParseFloat(v.Text(), 64)
	if err != nil || f != float64(int64(f)) || f > maxExact || f < -maxExact {
		return 0, false
	}
	return int64(f), true
}

// Place is the location of the value.
func (v Value) Place() diag.Place {
	if v.t == nil {
		return diag.Place{}
	}
	n := v.node()
	return diag.Place{Start: int(n.start), End: int(n.end), Pointer: v.Pointer()}
}

// KeyPlace is the location of the value's key, or of the value if it has no key.
func (v Value) KeyPlace() diag.Place {
	if v.t == nil {
		return diag.Place{}
	}
	n := v.node()
	if n.keyEnd == 0 {
		return v.Place()
	}
	return diag.Place{Start: int(n.keyStart), End: int(n.keyEnd), Pointer: v.Pointer()}
}

// Within is the location of a part of a string, from start to end of its text. For a
// string with escapes it is the whole string.
func (v Value) Within(start, end int) diag.Place {
	p := v.Place()
	if raw := v.t.Source.Text[p.Start:p.End]; v.Is(String) && len(raw) == len(v.Text())+2 {
		p.Start, p.End = p.Start+1+start, p.Start+1+end
	}
	return p
}

// Head is where an object or list begins: the location for a missing member.
func (v Value) Head() diag.Place {
	p := v.Place()
	switch {
	case v.t == nil:
	case v.t.toml && v.i == 0:
		p.End = p.Start
	case !v.t.toml:
		p.End = min(p.Start+1, p.End)
	}
	return p
}

// shortKey limits the length of a key in a pointer, since every problem below the key
// contains it.
func shortKey(key string) string {
	const most = 200
	if len(key) <= most {
		return key
	}
	return strings.ToValidUTF8(key[:most], "") + "…"
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// Pointer is the value's JSON pointer (RFC 6901).
func (v Value) Pointer() string {
	if v.t == nil {
		return ""
	}
	var parts []string
	for i := v.i; v.t.nodes[i].parent >= 0; i = v.t.nodes[i].parent {
		n := &v.t.nodes[i]
		if v.t.nodes[n.parent].kind == Array {
			parts = append(parts, strconv.Itoa(int(n.index)))
		} else {
			parts = append(parts, pointerEscaper.Replace(diag.Name(shortKey(v.t.keyOf(n)))))
		}
	}
	var b strings.Builder
	for i := len(parts) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(parts[i])
	}
	return b.String()
}
