// Package read turns a tree of values into a dialect's types, and reports
// every place where the two do not fit.
//
// A dialect opens an object with [Reader.Object], asks it for the fields it
// knows, and closes it with [Object.Done], which reports every member that
// nobody asked for, with the field it was probably meant to be. Each getter
// reports a wrong type or a missing field by itself and then answers ok =
// false, so that a dialect's own rules run only on values of the right type
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

// Presence says whether a field may be left out.
type Presence bool

// Whether a field may be left out.
const (
	Optional Presence = false
	Required Presence = true
)

// Reader reads one manifest.
type Reader struct {
	*diag.Reporter
	// Foreign maps field names of other dialects and formats to the name that
	// this dialect has for the same thing.
	Foreign map[string]string
	// Unknown is the rule that an unknown field breaks, and UnknownHint its
	// hint where no spelling is close.
	Unknown     *diag.Rule
	UnknownHint string
	// Hints are those of unknown fields that deserve one of their own.
	Hints map[string]string

	room []string // what Room cuts from
}

// Object is an object that is being read. It remembers which fields the dialect
// asked for, so that Done can tell the rest. A manifest has many objects: one
// fits on the stack, where its names have room for what most objects have.
type Object struct {
	r     *Reader
	v     doc.Value
	last  doc.Value // the member found last
	asked uint64    // a bit for each member that was asked for, of the first 64
	// The names that were asked for: n of them in first, then more.
	first [12]string
	n     int
	more  []string
}

// Object opens v. If it is not an object, that is reported and every getter
// answers that there is nothing, without reporting more.
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

// Is reports, by diagnostic and by answer, whether v is of kind k. Nothing is
// said of a value that is not there.
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

// typeHint says how to make a value of kind k of v, where that is clear.
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

// Get returns a member of any type, and counts it as known. A member is asked
// for once; Value is there to look at it again.
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

// allAsked reports whether every member was asked for: what else is asked for
// is not there, and none is unknown. It may say no of a large object.
func (o *Object) allAsked() bool { return bits.OnesCount64(o.asked) == o.v.Len() }

// missing points at the misspelt field where there is one: that is where the
// mistake is.
func (o *Object) missing(key string) {
	hint := "add " + diag.Quote(key)
	looked := 0
	for m := range o.v.Each() {
		if o.isKnown(m.Key()) {
			continue
		}
		if looked++; looked > 64 {
			break // not a typing mistake among that many
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

// String returns a text field.
func (o *Object) String(key string, p Presence) (string, bool) {
	v := o.Get(key, p)
	return v.Text(), o.r.Is(v, doc.String)
}

// Text returns a text field that must say something.
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

// Enum returns a text field that is one of a list of words.
func (o *Object) Enum(key string, p Presence, words []string) (string, bool) {
	v := o.Get(key, p)
	if !o.r.Is(v, doc.String) || !o.r.OneOf(v, words) {
		return "", false
	}
	return v.Text(), true
}

// OneOf reports, by diagnostic and by answer, whether the text v is one of the
// words.
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
	r.Report(diag.NotInEnum, v.Place(), hint, "%s is not allowed %s; it takes %s", diag.Quote(v.Text()), what, diag.Words(words, "or"))
	return false
}

// withPart is the only word of which part is one side: user-local for local.
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

// MaxInt is the largest whole number that every reader holds exactly.
const MaxInt = 1 << 53

// List returns a field that is a list.
func (o *Object) List(key string, p Presence) doc.Value {
	v := o.Get(key, p)
	if !o.r.Is(v, doc.Array) {
		return doc.Value{}
	}
	return v
}

// Strings yields the texts of a list; other values in it are reported. It is
// small so that the compiler can take it apart and nothing is allocated.
func (r *Reader) Strings(list doc.Value) iter.Seq[doc.Value] {
	return func(yield func(doc.Value) bool) {
		for v := range list.Each() {
			if r.Is(v, doc.String) && !yield(v) {
				return
			}
		}
	}
}

// Room returns an empty list with capacity for n texts. A manifest has many short
// lists, which share their memory.
func (r *Reader) Room(n int) []string {
	used := len(r.room)
	if r.room == nil || n > cap(r.room)-used {
		used, r.room = 0, make([]string, 0, max(n, 32))
	}
	r.room = r.room[:used+n]
	return r.room[used : used : used+n]
}

// AnyTexts returns the texts of a list field, which may be empty ones.
func (o *Object) AnyTexts(key string, p Presence) []string { return o.texts(key, p, true) }

// Texts returns the texts of a list field; empty ones are reported.
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
