// Package rawjson reads JSON without building values: it checks text, finds
// members and leaves every byte as it was written.
//
// [Valid] and [Walk] check the grammar of RFC 8259, UTF-8 and the nesting depth.
// The other functions expect JSON that was checked before. They stop at a
// mistake instead of reporting it.
//
// The scanner checks a string eight bytes at a time; jsontext takes two to four
// times as long (BenchmarkValid).
package rawjson

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Valid reports whether data is one JSON value in UTF-8 with nothing after it,
// nested at most [MaxDepth] levels deep.
func Valid(data []byte) bool {
	s := scanner{data: data}
	end := s.value(s.space(0), 0)
	return end >= 0 && s.space(end) == len(data) && !s.badUTF8
}

// Text returns the value of a JSON string; ok is false for any other value and
// for a string with half of a surrogate pair.
func Text(raw []byte) (value string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	return string(b), err == nil
}

// Lookup follows member names into nested objects and returns the value as
// written, or nil.
func Lookup(raw []byte, path ...string) jsontext.Value {
	for _, name := range path {
		start, end := Find(raw, name)
		if start == end {
			return nil
		}
		raw = raw[start:end:end]
	}
	return raw
}

// Find returns the offsets of a member's value in an object; start equals end if
// the object has no such member.
func Find(object []byte, name string) (start, end int) {
	w := Walk(object)
	for k, v, ok := w.Member(); ok; k, v, ok = w.Member() {
		if Named(k, name) {
			return w.from, w.from + len(v)
		}
	}
	return 0, 0
}

// Members calls visit for every member of an object, with the decoded name and
// the value as written. It skips names that are not Unicode text.
func Members(object []byte, visit func(name string, value jsontext.Value)) {
	w := Walk(object)
	for k, v, ok := w.Member(); ok; k, v, ok = w.Member() {
		if name, isText := Text(k); isText {
			visit(name, v)
		}
	}
}

// Elements calls visit for every element of an array, as written.
func Elements(array []byte, visit func(value jsontext.Value)) {
	w := Walk(array)
	for e, ok := w.Element(); ok; e, ok = w.Element() {
		visit(e)
	}
}

// Named reports whether a member's name, as written with its quotes, is want.
func Named(name []byte, want string) bool {
	if len(name) == len(want)+2 && string(name[1:len(name)-1]) == want {
		return true
	}
	if bytes.IndexByte(name, '\\') < 0 {
		return false
	}
	got, err := jsontext.AppendUnquote(nil, name)
	return err == nil && string(got) == want
}

// linearNames is the number of names that Twice compares one by one. Beyond it
// a map keeps Twice from taking quadratic time.
const linearNames = 16

// Twice reports whether two members of an object have the same name: one reader
// takes the first value, another the last. Names that differ only in case are
// the same, because some readers ignore case. Twice does not look inside the
// members' values.
func Twice(object []byte) bool {
	var array [linearNames][]byte
	names := array[:0]
	var folded map[string]bool
	w := Walk(object)
	for name, _, ok := w.Member(); ok; name, _, ok = w.Member() {
		name = unquote(name)
		if folded == nil && len(names) < linearNames {
			for _, n := range names {
				if bytes.EqualFold(n, name) {
					return true
				}
			}
			names = append(names, name)
			continue
		}
		if folded == nil {
			folded = map[string]bool{}
			for _, n := range names {
				folded[fold(n)] = true
			}
		}
		if folded[fold(name)] {
			return true
		}
		folded[fold(name)] = true
	}
	return false
}

// unquote decodes a checked name. Half of a surrogate pair becomes U+FFFD, as in
// most readers.
func unquote(name []byte) []byte {
	if bytes.IndexByte(name, '\\') < 0 {
		return name[1 : len(name)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, name)
	return text
}

func fold(name []byte) string { return strings.ToLower(strings.ToUpper(string(name))) }

// Walker steps through the members of an object or the elements of an array and
// checks them on the way.
type Walker struct {
	scanner
	from int // offset of the last value
	next int
	end  int // offset after the value, once the walk is complete
	open byte
}

// Walk begins a walk through the object or array at the start of data.
func Walk(data []byte) Walker {
	w := Walker{scanner: scanner{data: data}}
	i := w.space(0)
	c := w.byteAt(i)
	if c != '{' && c != '[' {
		w.fail("neither an object nor an array")
		return w
	}
	w.open, w.next = c, w.space(i+1)
	if w.byteAt(w.next) == closing(c) {
		w.end, w.open = w.next+1, 0
	}
	return w
}

// closing returns the bracket that closes an object or array.
func closing(open byte) byte { return open + 2 } // so in ASCII

// Member returns the next member of an object: its name as written, with the
// quotes, and its value. There is none in an array.
func (w *Walker) Member() (name, value []byte, ok bool) {
	if w.open != '{' {
		return nil, nil, false
	}
	start := w.next
	i := w.key(start)
	if i < 0 {
		w.open = 0
		return nil, nil, false
	}
	name = w.data[start:i]
	name = name[:bytes.LastIndexByte(name, '"')+1]
	value, ok = w.step(i)
	return name, value, ok
}

// Element returns the next element of an array. There is none in an object.
func (w *Walker) Element() (value []byte, ok bool) {
	if w.open != '[' {
		return nil, false
	}
	return w.step(w.next)
}

// Problem returns the mistake that ended the walk, or "" if the whole data is
// one valid object or array. It may be asked when the walk has ended.
func (w *Walker) Problem() string {
	if w.problem == "" && w.space(w.end) != len(w.data) {
		return "more text after the end"
	}
	return w.problem
}

// BadUTF8 reports whether a string read so far contains bytes that are not UTF-8.
func (w *Walker) BadUTF8() bool { return w.badUTF8 }

func (w *Walker) step(i int) ([]byte, bool) {
	w.from = i
	end := w.value(i, 1)
	if end < 0 {
		w.open = 0
		return nil, false
	}
	next := w.space(end)
	switch w.byteAt(next) {
	case ',':
		w.next = w.space(next + 1)
	case closing(w.open):
		w.end, w.open = next+1, 0
	default:
		w.open = 0
		w.fail("invalid JSON")
		return nil, false
	}
	return w.data[i:end:end], true
}
