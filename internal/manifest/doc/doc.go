// Package doc represents a manifest as a tree of values with their locations.
//
// [ParseJSON] and [ParseTOML] build the same kind of tree. Other packages need not know the syntax of a file. A
// [Value] is a small handle into its [Tree]. The zero Value is absent, and all its methods return zero values. Code
// that reads optional fields therefore needs no checks.
//
// The package has its own JSON parser, because no library does all of the following. The parser continues after a
// comment, a trailing comma, a missing comma or an unquoted key. ambit can then report all problems of a file at
// once. The parser records the location of every key and value. In the same pass, the parser finds duplicate keys and
// inexact numbers, and limits the depth and the number of values. The parser reports a syntax error if and only if
// the text is invalid under RFC 8259. A fuzz test compares the parser with another parser.
//
// A tree is one slice of nodes that refer to each other by index. Strings without escapes are substrings of the
// source, not copies. Parsing therefore needs few allocations for any number of values. [Tree.Release] makes a tree
// available for reuse, which saves more allocations.
package doc

import (
	"iter"
	"strconv"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Limits on the input. A file that exceeds a limit gets a diagnostic.
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
	// Date is a TOML date or time. No dialect has a field of this kind.
	Date
)

func (k Kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "a list", "an object", "a date"}[k]
}

// node is one value. A node contains no pointers, so that the garbage collector does not scan the nodes of a tree. The
// key and the text of a value are usually spans of the source. A key or text that differs from the source, for example
// because of an escape, is stored in Tree.decoded, and the node contains the index.
type node struct {
	start, end       int32
	keyStart, keyEnd int32
	parent           int32
	next             int32
	first, last      int32
	index, count     int32
	text, key        int32  // each is an index in Tree.decoded, or 0 for a span of the source
	keyTag           uint32 // the tag of the key, see tagOf
	kind             Kind
	origin           origin // a field that only ParseTOML uses
	// bare is set if the key has no quotes in the source.
	bare bool
}

// Tree is a parsed document.
type Tree struct {
	nodes   []node
	decoded []string        // decoded[0] is unused
	bytes   strings.Builder // the strings from addDecodedBytes
	members members
	// Source is the text of the document.
	Source *diag.Source
	toml   bool
	odd    []int32 // the nodes that Odd yields
}

const none = -1

// trees contains released trees for reuse.
var trees = sync.Pool{New: func() any { return new(Tree) }}

func newTree(src *diag.Source) *Tree {
	t := trees.Get().(*Tree)
	t.Source = src
	if values := min(len(src.Text)/16+8, maxValues); cap(t.nodes) < values {
		t.nodes = make([]node, 0, values) // this capacity is enough for most files
	}
	return t
}

// Release makes the tree's memory available to the next tree. The caller must not use the tree or its values
// afterwards. Strings from the tree stay valid.
func (t *Tree) Release() {
	const most = 1 << 14 // larger trees are rare and would keep a lot of memory
	if cap(t.nodes) > most || cap(t.decoded) > most || cap(t.odd) > most {
		return
	}
	clear(t.decoded)
	*t = Tree{nodes: t.nodes[:0], decoded: t.decoded[:0], odd: t.odd[:0]}
	trees.Put(t)
}

// tagOf returns a cheap hash of a key. Thanks to the hash, a lookup compares only a few keys in full.
func tagOf(key string) uint32 {
	n := len(key)
	if n == 0 {
		return 0
	}
	return uint32(uint8(n)) | uint32(key[0])<<8 | uint32(key[n/2])<<16 | uint32(key[n-1])<<24
}

// addDecoded stores a string in Tree.decoded and returns its index. Strings that are spans of the source are not stored
// there.
func (t *Tree) addDecoded(s string) int32 {
	if len(t.decoded) == 0 {
		t.decoded = append(t.decoded, "")
	}
	t.decoded = append(t.decoded, s)
	return int32(len(t.decoded) - 1)
}

// addDecodedBytes is like addDecoded, but copies the bytes. Short texts share one allocation.
func (t *Tree) addDecodedBytes(b []byte) int32 {
	if t.bytes.Len() == 0 {
		t.bytes.Grow(max(len(b), 256))
	}
	start := t.bytes.Len()
	t.bytes.Write(b)
	return t.addDecoded(t.bytes.String()[start:])
}

// spanOr returns the decoded text with the given index. If the index is 0, spanOr returns the source from start to end.
func (t *Tree) spanOr(i int32, start, end int) string {
	if i > 0 {
		return t.decoded[i]
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

// push appends an empty child to a node and returns the child's index.
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

// add appends a copy of a node to the children of another node.
func (t *Tree) add(parent int32, n *node) int32 {
	i := t.push(parent)
	c := &t.nodes[i]
	c.start, c.end, c.keyStart, c.keyEnd, c.text, c.key = n.start, n.end, n.keyStart, n.keyEnd, n.text, n.key
	c.keyTag, c.kind, c.origin, c.bare = n.keyTag, n.kind, n.origin, n.bare
	return i
}

// Root returns the value of the whole document. The value is absent if the document contains no value.
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

// Odd yields every value whose key or text is not plain. A plain text consists of printable ASCII and appears
// unchanged in the source. Odd can also yield some plain values.
func (t *Tree) Odd() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for _, i := range t.odd {
			if !yield(Value{t, i}) {
				return
			}
		}
	}
}

// markOdd adds a value to the values that Odd yields. The parser can mark a value twice, once for its key and once for
// its text, but the value is added only once.
func (t *Tree) markOdd(i int32) {
	if len(t.odd) == 0 || t.odd[len(t.odd)-1] != i {
		t.odd = append(t.odd, i)
	}
}

// Value is a handle to one value of a tree.
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

// Raw returns the part of the source that contains the value.
func (v Value) Raw() string {
	if v.t == nil {
		return ""
	}
	n := v.node()
	return v.t.Source.Text[n.start:n.end]
}

// Is reports whether the value has the given kind.
func (v Value) Is(k Kind) bool { return v.Kind() == k }

// Text returns the content of a string, or the text of a number, boolean, date or null.
func (v Value) Text() string {
	if v.t == nil {
		return ""
	}
	return v.t.textOf(v.node())
}

// Key returns the value's key in its object. Key returns "" if the value is not a member of an object.
func (v Value) Key() string {
	if v.t == nil {
		return ""
	}
	return v.t.keyOf(v.node())
}

// TOML reports whether the value comes from a TOML document.
func (v Value) TOML() bool { return v.t != nil && v.t.toml }

// Index returns the position of the value among the members or items of its parent. Positions start at 0.
func (v Value) Index() int {
	if v.t == nil {
		return 0
	}
	return int(v.node().index)
}

// Len returns the number of members of an object or items of a list.
func (v Value) Len() int {
	if v.t == nil {
		return 0
	}
	return int(v.node().count)
}

// Get returns the member with the given key. The result is absent if the value is not an object or has no member with
// this key.
func (v Value) Get(key string) Value {
	if v.Kind() != Object {
		return Value{}
	}
	if i := v.t.members.find(v.t, v.i, key); i >= 0 {
		return Value{v.t, i}
	}
	return Value{}
}

// GetAfter is like Get, but first searches the members after the given one. GetAfter is faster if the caller requests
// members roughly in the order of the file.
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
	if i := v.t.findBetween(from, none, key, tag); i != none {
		return Value{v.t, i}
	}
	if i := v.t.findBetween(first, from, key, tag); i != from {
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

// Int returns the value of a number. The second result reports whether the value is an integer.
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

// Place returns the location of the value.
func (v Value) Place() diag.Place {
	if v.t == nil {
		return diag.Place{}
	}
	n := v.node()
	return diag.Place{Start: int(n.start), End: int(n.end), Pointer: v.Pointer()}
}

// KeyPlace returns the location of the value's key. For a value without a key, KeyPlace returns the location of the
// value.
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

// Within returns the location of a part of a string, from one offset to another. For a string with escapes, Within
// returns the location of the whole string.
func (v Value) Within(start, end int) diag.Place {
	p := v.Place()
	if raw := v.t.Source.Text[p.Start:p.End]; v.Is(String) && len(raw) == len(v.Text())+2 {
		p.Start, p.End = p.Start+1+start, p.Start+1+end
	}
	return p
}

// Head returns the location of the opening bracket of an object or list. In TOML, Head returns the location of the
// value. For a whole TOML document, Head returns an empty span.
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

// MissingPlace returns the location at which to report that the object lacks a member.
func (v Value) MissingPlace(key string) diag.Place {
	p := v.Head()
	p.Pointer += "/" + key
	return p
}

// shortKey shortens a key for a JSON pointer, because the pointer of every value below the key repeats the key.
func shortKey(key string) string {
	const most = 200
	if len(key) <= most {
		return key
	}
	return strings.ToValidUTF8(key[:most], "") + "…"
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// Pointer returns the value's JSON pointer (RFC 6901). Secret-like keys are masked.
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
