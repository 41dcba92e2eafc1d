// Package read converts a tree of values to a dialect's types, and reports every
// mismatch.
//
// A dialect opens an object with [Reader.Object], reads its known fields, and closes
// it with [Object.Done], which reports every other member and suggests the field that
// was probably meant. Each getter reports a wrong type or a missing field and then
// returns ok = false. So a dialect's own rules run only on values of the right type,
// and one mistake is reported once.
package read

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Presence says whether a field is required.
type Presence bool

const (
	Optional Presence = false
	Required Presence = true
)

// Reader reads one manifest.
type Reader struct {
	*diag.Reporter
	// Foreign maps field names of other dialects and formats to this dialect's names.
	Foreign map[string]string
	// Unknown is the rule for unknown fields, and UnknownHint its hint if no known
	// name is similar.
	Unknown     *diag.Rule
	UnknownHint string
	// Hints are special hints for certain unknown fields.
	Hints map[string]string

	room []string // what Room cuts from
}

// Object is an object that is being read. It remembers which fields were read, so that
// Done can report the others. Most objects fit on the stack, with space for the names
// of their fields.
type Object struct {
	r     *Reader
	v     doc.Value
	last  doc.Value // the member found last
	asked uint64    // a bit for each of the first 64 members that was read
	// The names of fields that were asked for: n of them in first, then more.
	first [12]string
	n     int
	more  []string
}

// Object opens v. If v is not an object, Object reports that, and every getter returns
// nothing without another report.
func (r *Reader) Object(v doc.Value) *Object {
	o := &Object{r: r}
	if r.Is(v, doc.Object) {
		o.v = v
	}
	return o
}

// known lists the names that were asked for.
func (o *Object) known() []string { return slices.Concat(o.first[:o.n], o.more) }

func (o *Object) isKnown(key string) bool {
	return slices.Contains(o.first[:o.n], key) || slices.Contains(o.more, key)
}

// Is reports whether v is of kind k, with a diagnostic if not. It does not report an
// absent value.
func (r *Reader) Is(v doc.Value, k doc.Kind) bool {
	if v.Is(k) {
		return true
	}
	if v.Ok() {
		what := diag.Quote(v.Key())
		if v.Key() == "" {
			what = "this"
		}
		r.Report(diag.WrongType, v.Place(), typeHint(v, k), "%s must be %s, not %s", what, k, v.Kind())
	}
	return false
}

// typeHint returns how to convert v to kind k, if that is clear.
func typeHint(v doc.Value, k doc.Kind) string {
	switch have := v.Kind(); {
	case have == doc.Null && v.Key() != "":
		return "give it a value, or leave it out if it is optional"
	case k == doc.String && (have == doc.Number || have == doc.Bool || have == doc.Date):
		return "put it into double quotes"
	case k == doc.Number && have == doc.String && isNumber(v.Text()), k == doc.Bool && have == doc.String && (v.Text() == "true" || v.Text() == "false"):
		return "write it without quotes"
	case k == doc.Array && (have == doc.String || have == doc.Object && !v.TOML()):
		return "write a list: [ … ]"
	case k == doc.Object && have != doc.Null && !v.TOML():
		return "write an object: { … }"
	}
	return ""
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// Ok reports whether there is an object.
func (o *Object) Ok() bool { return o.v.Ok() }

// Value is the object itself.
func (o *Object) Value() doc.Value { return o.v }

// Get returns a member of any type, and counts it as known. Each member is asked for
// once; use Value to look at it again.
func (o *Object) Get(key string, p Presence) doc.Value {
	if o.n < len(o.first) {
		o.first[o.n] = key
		o.n++
	} else {
		o.more = append(o.more, key)
	}
	var v doc.Value
	if !o.allAsked() {
		v = o.v.GetAfter(o.last, key)
	}
	switch {
	case v.Ok():
		o.last = v
		o.asked |= 1 << v.Index()
	case p == Required && o.v.Ok():
		o.missing(key)
	}
	return v
}

// allAsked reports whether every member was asked for, so that no other member exists.
// It may return false for a large object.
func (o *Object) allAsked() bool { return bits.OnesCount64(o.asked) == o.v.Len() }

// missing reports a missing field, at the misspelt field if there is one.
func (o *Object) missing(key string) {
	hint := "add " + diag.Quote(key)
	looked := 0
	for m := range o.v.Each() {
		if o.isKnown(m.Key()) {
			continue
		}
		if looked++; looked > 64 {
			break // too many members for a typing mistake
		}
		if diag.Closest(m.Key(), []string{key}) != "" || o.r.Foreign[m.Key()] == key {
			hint = "is " + diag.Quote(m.Key()) + " meant to be " + diag.Quote(key) + "?"
			break
		}
	}
	at := o.v.Head()
	at.Pointer += "/" + key
	o.r.Report(diag.Missing, at, hint, "%s is required", diag.Quote(key))
}

// String returns a string field.
func (o *Object) String(key string, p Presence) (string, bool) {
	v := o.Get(key, p)
	return v.Text(), o.r.Is(v, doc.String)
}

// Text returns a string field that must not be empty.
func (o *Object) Text(key string, p Presence) (string, bool) {
	v := o.Get(key, p)
	if !o.r.Is(v, doc.String) {
		return "", false
	}
	if v.Text() == "" {
		o.r.Report(diag.EmptyText, v.Place(), "", "%s must not be empty", diag.Quote(key))
		return "", false
	}
	return v.Text(), true
}

// Enum returns a string field that is one of a list of words.
func (o *Object) Enum(key string, p Presence, words []string) (string, bool) {
	v := o.Get(key, p)
	if !o.r.Is(v, doc.String) || !o.r.OneOf(v, words) {
		return "", false
	}
	return v.Text(), true
}

// OneOf reports whether the string v is one of the words, with a diagnostic if not.
func (r *Reader) OneOf(v doc.Value, words []string) bool {
	if slices.Contains(words, v.Text()) {
		return true
	}
	hint := diag.DidYouMean(v.Text(), words)
	if word := withPart(words, v.Text()); hint == "" && word != "" {
		hint = "did you mean " + diag.Quote(word) + "?"
	}
	if hint == "" {
		hint = "use one of " + diag.Words(words, "or")
	}
	what := "here"
	if v.Key() != "" {
		what = "for " + diag.Quote(v.Key())
	}
	r.Report(diag.NotInEnum, v.Place(), hint, "%s is not allowed %s; use %s", diag.Quote(v.Text()), what, diag.Words(words, "or"))
	return false
}

// withPart returns the only word that has part as one side: user-local for local.
func withPart(words []string, part string) string {
	found := ""
	for _, w := range words {
		i := strings.IndexAny(w, "-._")
		if i < 0 || w[:i] != part && w[i+1:] != part {
			continue
		}
		if found != "" {
			return ""
		}
		found = w
	}
	return found
}

// Bool returns a true or false field.
func (o *Object) Bool(key string, p Presence) (value, ok bool) {
	v := o.Get(key, p)
	return v.Text() == "true", o.r.Is(v, doc.Bool)
}

// Int returns a whole number from least to most.
func (o *Object) Int(key string, p Presence, least, most int64) (int64, bool) {
	v := o.Get(key, p)
	if !o.r.Is(v, doc.Number) {
		return 0, false
	}
	n, ok := v.Int()
	if !ok {
		o.r.Report(diag.OutOfRange, v.Place(), "", "%s must be a whole number", diag.Quote(key))
		return 0, false
	}
	if n < least || n > most {
		o.r.Report(diag.OutOfRange, v.Place(), "", "%s must be from %d to %d", diag.Quote(key), least, most)
		return 0, false
	}
	return n, true
}

// MaxInt is the largest integer that every JSON parser represents exactly.
const MaxInt = 1 << 53

// List returns a field that is a list.
func (o *Object) List(key string, p Presence) doc.Value {
	v := o.Get(key, p)
	if !o.r.Is(v, doc.Array) {
		return doc.Value{}
	}
	return v
}

// Strings yields the strings of a list and reports other values. It is small enough to
// be inlined, so that nothing is allocated.
func (r *Reader) Strings(list doc.Value) iter.Seq[doc.Value] {
	return func(yield func(doc.Value) bool) {
		for v := range list.Each() {
			if r.Is(v, doc.String) && !yield(v) {
				return
			}
		}
	}
}

// Room returns an empty list with capacity for n strings. Short lists share their
// memory.
func (r *Reader) Room(n int) []string {
	used := len(r.room)
	if r.room == nil || n > cap(r.room)-used {
		used, r.room = 0, make([]string, 0, max(n, 32))
	}
	r.room = r.room[:used+n]
	return r.room[used : used : used+n]
}

// AnyTexts returns the strings of a list field, including empty ones.
func (o *Object) AnyTexts(key string, p Presence) []string { return o.texts(key, p, true) }

// Texts returns the strings of a list field, and reports empty ones.
func (o *Object) Texts(key string, p Presence) []string { return o.texts(key, p, false) }

func (o *Object) texts(key string, p Presence, mayBeEmpty bool) []string {
	list := o.List(key, p)
	if list.Len() == 0 {
		return nil
	}
	texts := o.r.Room(list.Len())
	for v := range o.r.Strings(list) {
		if v.Text() == "" && !mayBeEmpty {
			o.r.Report(diag.EmptyText, v.Place(), "", "an entry of %s is empty", diag.Quote(key))
			continue
		}
		texts = append(texts, v.Text())
	}
	return texts
}

// Done reports every member that no getter read.
func (o *Object) Done() {
	if o.allAsked() {
		return
	}
	for m := range o.v.Each() {
		if o.r.Unknown == nil || o.isKnown(m.Key()) {
			continue
		}
		if o.r.Full() {
			o.r.Report(o.r.Unknown, diag.Place{}, "", "")
			continue
		}
		o.r.Report(o.r.Unknown, m.KeyPlace(), o.unknownHint(m.Key()), "unknown field %s", diag.Quote(m.Key()))
	}
}

// unknownHint suggests the field that was probably meant.
func (o *Object) unknownHint(key string) string {
	if hint := o.r.Hints[key]; hint != "" {
		return hint
	}
	if ours := o.r.Foreign[key]; ours != "" && o.isKnown(ours) {
		return "this dialect calls it " + diag.Quote(ours)
	}
	return cmp.Or(diag.DidYouMean(key, o.known()), o.r.UnknownHint)
}
