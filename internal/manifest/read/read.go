// Package read converts a tree of values to the types of a dialect, and reports every value that does not fit.
//
// The code of a dialect first opens an object with [Reader.Object]. The code then reads the known fields and calls
// [Object.Done]. Done reports every unknown member and suggests a known field with a similar name. Each getter
// reports a missing required field or a value of the wrong type, and then returns false as its last result. The rules
// of a dialect therefore see only values of the right type. Each mistake is reported only once.
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
	// Foreign maps field names of other dialects and formats to field names of this dialect.
	Foreign map[string]string
	// Unknown is the rule for unknown fields. If Unknown is nil, unknown fields are ignored. UnknownHint is the hint
	// if no known field has a similar name.
	Unknown     *diag.Rule
	UnknownHint string
	// Hints contains the hints for certain unknown fields. They take precedence over all other hints.
	Hints map[string]string

	spare []string // MakeStrings returns parts of this slice
}

// Object is an object that is being read. Object records the requested fields, and [Object.Done] reports all other
// members. Most objects fit on the stack, including the names of their fields.
type Object struct {
	r     *Reader
	v     doc.Value
	last  doc.Value // the member that Get found last
	asked uint64    // bit i is set if Get found member i; members after the first 64 have no bit
	// The names of the requested fields. The first n names are in the array, and all others are in the slice.
	first [12]string
	n     int
	more  []string
}

// Object opens a value as an object. If the value is of another type, Object records a diagnostic. The getters of the
// result then return false and record nothing.
func (r *Reader) Object(v doc.Value) *Object {
	o := &Object{r: r}
	if r.Is(v, doc.Object) {
		o.v = v
	}
	return o
}

// requestedNames returns the names of the requested fields.
func (o *Object) requestedNames() []string { return slices.Concat(o.first[:o.n], o.more) }

func (o *Object) isKnown(key string) bool {
	return slices.Contains(o.first[:o.n], key) || slices.Contains(o.more, key)
}

// Is reports whether a value has the given kind. If the value is present but of another kind, Is records a
// diagnostic.
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

// typeHint returns a hint for converting a value to another kind, if the conversion is obvious.
func typeHint(v doc.Value, k doc.Kind) string {
	switch have := v.Kind(); {
	case have == doc.Null && v.Key() != "":
		return "set a value, or remove the field if it is optional"
	case k == doc.String && (have == doc.Number || have == doc.Bool || have == doc.Date):
		return "put the value in double quotes"
	case k == doc.Number && have == doc.String && isNumber(v.Text()), k == doc.Bool && have == doc.String &&
		(v.Text() == "true" || v.Text() == "false"):
		return "write the value without quotes"
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

// Ok reports whether the opened value is an object.
func (o *Object) Ok() bool { return o.v.Ok() }

// Value returns the object as a value. The value is absent if Ok returns false.
func (o *Object) Value() doc.Value { return o.v }

// Get returns a member of any type, and records its key as known. Callers must request each key only once, and must use
// Value to look at a member again.
func (o *Object) Get(key string, p Presence) doc.Value {
	if o.n < len(o.first) {
		o.first[o.n] = key
		o.n++
	} else {
		o.more = append(o.more, key)
	}
	var v doc.Value
	if !o.allRequested() {
		v = o.v.GetAfter(o.last, key)
	}
	switch {
	case v.Ok():
		o.last = v
		o.asked |= 1 << v.Index()
	case p == Required && o.v.Ok():
		o.reportMissing(key)
	}
	return v
}

// allRequested reports whether Get has found every member. For an object with more than 64 members, the result is
// always false, because the bit set is too small.
func (o *Object) allRequested() bool { return bits.OnesCount64(o.asked) == o.v.Len() }

// reportMissing reports that a field is missing. If an unknown member has a similar name, the hint asks whether that
// member is the missing field.
func (o *Object) reportMissing(key string) {
	hint := "add " + diag.Quote(key)
	looked := 0
	for m := range o.v.Each() {
		if o.isKnown(m.Key()) {
			continue
		}
		if looked++; looked > 64 {
			break // with so many unknown members, a typing mistake is unlikely
		}
		if diag.Closest(m.Key(), []string{key}) != "" || o.r.Foreign[m.Key()] == key {
			hint = "is " + diag.Quote(m.Key()) + " meant to be " + diag.Quote(key) + "?"
			break
		}
	}
	o.r.Report(diag.Missing, o.v.MissingPlace(key), hint, "%s is required", diag.Quote(key))
}

// String returns the value of a string field.
func (o *Object) String(key string, p Presence) (string, bool) {
	v := o.Get(key, p)
	return v.Text(), o.r.Is(v, doc.String)
}

// Text returns the value of a string field. An empty string is reported.
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

// Enum returns the value of a string field. A value that is not one of the given words is reported.
func (o *Object) Enum(key string, p Presence, words []string) (string, bool) {
	v := o.Get(key, p)
	if !o.r.Is(v, doc.String) || !o.r.OneOf(v, words) {
		return "", false
	}
	return v.Text(), true
}

// OneOf reports whether a string value is one of the given words. If not, OneOf records a diagnostic.
func (r *Reader) OneOf(v doc.Value, words []string) bool {
	if slices.Contains(words, v.Text()) {
		return true
	}
	hint := diag.DidYouMean(v.Text(), words)
	if word := withPart(words, v.Text()); hint == "" && word != "" {
		hint = "did you mean " + diag.Quote(word) + "?"
	}
	if hint == "" {
		hint = "use " + diag.Words(words, "or")
	}
	what := "here"
	if v.Key() != "" {
		what = "for " + diag.Quote(v.Key())
	}
	r.Report(diag.NotInEnum, v.Place(), hint, "%s is not allowed %s; use %s", diag.Quote(v.Text()), what,
		diag.Words(words, "or"))
	return false
}

// withPart splits each word at the first "-", "." or "_", and returns the word that has the given part as one half. For
// example, it finds "user-local" for "local". If no word or more than one word matches, withPart returns "".
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

// Bool returns the value of a boolean field.
func (o *Object) Bool(key string, p Presence) (value, ok bool) {
	v := o.Get(key, p)
	return v.Text() == "true", o.r.Is(v, doc.Bool)
}

// Int returns the value of a whole-number field. A value outside the given range is reported.
func (o *Object) Int(key string, p Presence, lowest, highest int64) (int64, bool) {
	v := o.Get(key, p)
	if !o.r.Is(v, doc.Number) {
		return 0, false
	}
	n, ok := v.Int()
	if !ok {
		o.r.Report(diag.OutOfRange, v.Place(), "", "%s must be a whole number", diag.Quote(key))
		return 0, false
	}
	if n < lowest || n > highest {
		o.r.Report(diag.OutOfRange, v.Place(), "", "%s must be from %d to %d", diag.Quote(key), lowest, highest)
		return 0, false
	}
	return n, true
}

// MaxInt is the largest integer that every JSON parser represents exactly.
const MaxInt = 1 << 53

// List returns a list field. The result is absent if the field is missing or not a list.
func (o *Object) List(key string, p Presence) doc.Value {
	v := o.Get(key, p)
	if !o.r.Is(v, doc.Array) {
		return doc.Value{}
	}
	return v
}

// Strings yields the strings of a list and reports all other items. The function is small enough for the compiler to
// inline, which avoids an allocation.
func (r *Reader) Strings(list doc.Value) iter.Seq[doc.Value] {
	return func(yield func(doc.Value) bool) {
		for v := range list.Each() {
			if r.Is(v, doc.String) && !yield(v) {
				return
			}
		}
	}
}

// MakeStrings returns an empty slice with capacity for n strings. Small slices share one allocation.
func (r *Reader) MakeStrings(n int) []string {
	used := len(r.spare)
	if r.spare == nil || n > cap(r.spare)-used {
		used, r.spare = 0, make([]string, 0, max(n, 32))
	}
	r.spare = r.spare[:used+n]
	return r.spare[used : used : used+n]
}

// Distinct returns the valid strings of a list without duplicates. Every duplicate is reported.
func (r *Reader) Distinct(list doc.Value, valid func(doc.Value) bool) []string {
	if list.Len() == 0 {
		return nil
	}
	texts := r.MakeStrings(list.Len())
	var seen Seen
	for v := range r.Strings(list) {
		switch {
		case !valid(v):
		case !seen.Add(v.Text()):
			r.Report(diag.Repeated, v.Place(), "", "%s is already in the list", diag.Quote(v.Text()))
		default:
			texts = append(texts, v.Text())
		}
	}
	return texts
}

// AnyTexts returns the strings of a list field, including empty strings.
func (o *Object) AnyTexts(key string, p Presence) []string { return o.texts(key, p, true) }

// Texts returns the strings of a list field. Empty strings are reported.
func (o *Object) Texts(key string, p Presence) []string { return o.texts(key, p, false) }

func (o *Object) texts(key string, p Presence, mayBeEmpty bool) []string {
	list := o.List(key, p)
	if list.Len() == 0 {
		return nil
	}
	texts := o.r.MakeStrings(list.Len())
	for v := range o.r.Strings(list) {
		if v.Text() == "" && !mayBeEmpty {
			o.r.Report(diag.EmptyText, v.Place(), "", "an entry of %s is empty", diag.Quote(key))
			continue
		}
		texts = append(texts, v.Text())
	}
	return texts
}

// Done reports every member that no getter requested.
func (o *Object) Done() {
	if o.allRequested() {
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

// unknownHint returns the hint for an unknown field. It uses the first of these that exists:
//   - the field's entry in Hints
//   - the known field that has this name in another dialect or format
//   - a known field with a similar name
//   - UnknownHint
func (o *Object) unknownHint(key string) string {
	if hint := o.r.Hints[key]; hint != "" {
		return hint
	}
	if ours := o.r.Foreign[key]; ours != "" && o.isKnown(ours) {
		return "in this dialect, the field is named " + diag.Quote(ours)
	}
	return cmp.Or(diag.DidYouMean(key, o.requestedNames()), o.r.UnknownHint)
}
