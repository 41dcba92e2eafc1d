// Package words tells what stands in a run of records without keeping it: the sums
// of their words, which are the values that filters of the journal ask for.
//
// A sum is 31 bits of a CRC. It needs no secret and no strength: two words of the
// same sum cost a look at records in vain, and nothing can be hidden that way,
// because a word that is there always has its sum there. A [Row] is what a store
// keeps, sorted, four bytes for each. Words of calls are marked, since there are as
// many as records: rows over many records leave them out.
//
// Records are read in the one form in which the journal writes them. Whatever
// has another form may hold any word, and so may a row that is no row.
package words

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"sort"
)

// Sum stands for a word.
type Sum uint32

// Calls is the first sum of a call.
const Calls Sum = 1 << 31

// Kind is what a word is about. Members of a record that one filter asks for are of
// one kind.
type Kind byte

// The kinds.
const (
	Agent Kind = iota
	Tool
	Principal
	Code
	Decision
	Call
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Of is the sum of a value, which is given as JSON.
func Of(k Kind, value []byte) Sum {
	s := Sum(crc32.Update(^uint32(k), castagnoli, value)) &^ Calls
	if k == Call {
		s |= Calls
	}
	return s
}

// members is how many members of a record have words.
const members = 9

// member tells which of them a key is, and the kind of its word.
func member(key []byte) (which int, k Kind) {
	switch string(key) {
	case `"agent"`:
		return 0, Agent
	case `"id"`:
		return 1, Agent
	case `"digest"`:
		return 2, Agent
	case `"tool"`:
		return 3, Tool
	case `"uri"`:
		return 4, Tool
	case `"principal"`:
		return 5, Principal
	case `"code"`:
		return 6, Code
	case `"decision"`:
		return 7, Decision
	case `"call"`:
		return 8, Call
	}
	return -1, 0
}

// Set collects words. Its zero value is empty.
type Set struct {
	sums []Sum
	last [members]Sum // of each member, in the record before
	any  bool         // something could not be read
}

// Reset empties it.
func (s *Set) Reset() { *s = Set{sums: s.sums[:0]} }

// Record takes the words of a record.
func (s *Set) Record(text []byte) {
	if !s.read(text) {
		s.any = true
	}
}

// Anything takes a record that cannot be read.
func (s *Set) Anything() { s.any = true }

// Row takes the words of a row, but for those of calls.
func (s *Set) Row(r Row) {
	if !r.whole() {
		s.any = true
		return
	}
	for i := range r.before(Calls) {
		s.sums = append(s.sums, r.at(i))
	}
}

// Add takes the words of another set, but for those of calls.
func (s *Set) Add(other *Set) {
	sums := other.sorted()
	calls, _ := slices.BinarySearch(sums, Calls)
	s.sums, s.any = append(s.sums, sums[:calls]...), s.any || other.any
}

func (s *Set) sorted() []Sum {
	slices.Sort(s.sums)
	s.sums = slices.Compact(s.sums)
	return s.sums
}

// read goes over the members of a record.
func (s *Set) read(record []byte) bool {
	rest, ok := bytes.CutPrefix(record, []byte("{"))
	for ok {
		var key, value []byte
		if key, rest = cutText(rest); key == nil || len(rest) == 0 || rest[0] != ':' {
			return false
		}
		if value, rest = cutValue(rest[1:]); len(value) == 0 {
			return false
		}
		if which, k := member(key); which >= 0 {
			if _, more := cutText(value); len(more) > 0 {
				return false
			}
			// Most records say of most members what the one before said.
			if sum := Of(k, value); sum != s.last[which] || sum == 0 {
				s.last[which] = sum
				s.sums = append(s.sums, sum)
			}
		}
		if rest[0] == '}' {
			return len(rest) == 1
		}
		rest, ok = bytes.CutPrefix(rest, []byte(","))
	}
	return false
}

// cutText cuts off a JSON string, quotes included; it is nil where there is none.
func cutText(b []byte) (text, rest []byte) {
	if len(b) == 0 || b[0] != '"' {
		return nil, b
	}
	for end := 1; ; end++ {
		n := bytes.IndexByte(b[end:], '"')
		if n < 0 {
			return nil, b
		}
		end += n
		slashes := 0
		for b[end-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return b[:end+1], b[end+1:]
		}
	}
}

// cutValue cuts off what stands before the next comma, or before the end of what it
// is in. It is nil where that does not come.
func cutValue(b []byte) (value, rest []byte) {
	depth := 0
	for at := 0; at < len(b); {
		switch c := b[at]; {
		case c == '"':
			text, _ := cutText(b[at:])
			if text == nil {
				return nil, b
			}
			at += len(text)
			continue
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == '}' || c == ']'):
			return b[:at], b[at:]
		case c == '}' || c == ']':
			depth--
		}
		at++
	}
	return nil, b
}

// Row is a set as a store keeps it. One whose length is not that of sums may hold
// any word.
type Row []byte

// Anything is a row that may hold any word.
var Anything = Row{0}

// Keep makes a row of a set.
func (s *Set) Keep() Row {
	if s.any {
		return Anything
	}
	sums := s.sorted()
	row := make(Row, 0, 4*len(sums))
	for _, sum := range sums {
		row = binary.BigEndian.AppendUint32(row, uint32(sum))
	}
	return row
}

func (r Row) whole() bool  { return len(r)%4 == 0 }
func (r Row) len() int     { return len(r) / 4 }
func (r Row) at(i int) Sum { return Sum(binary.BigEndian.Uint32(r[4*i:])) }

// before is how many sums stand before one.
func (r Row) before(s Sum) int {
	return sort.Search(r.len(), func(i int) bool { return r.at(i) >= s })
}

// May tells whether one of the records may hold all of some words.
func (r Row) May(all []Sum) bool {
	if !r.whole() {
		return true
	}
	for _, s := range all {
		if i := r.before(s); i == r.len() || r.at(i) != s {
			return false
		}
	}
	return true
}

// Covers tells whether a row leaves out nothing of a set.
func (r Row) Covers(s *Set) bool {
	if !r.whole() {
		return true
	}
	i := 0
	for _, sum := range s.sorted() {
		for i < r.len() && r.at(i) < sum {
			i++
		}
		if i == r.len() || r.at(i) != sum {
			return false
		}
	}
	return !s.any
}
