package validate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxWork bounds the work of a check, in units of at most about 25 ns and a few bytes of memory. One evaluation of a
// schema costs schemaWork, one comparison with a member of an object costs memberWork, and one evaluated part that is
// remembered costs seenWork. maxNesting limits the depth of nested evaluations, so that a schema that refers to itself
// cannot run endlessly.
const (
	maxWork    = 4_000_000
	schemaWork = 8
	memberWork = 4
	seenWork   = 16
	maxNesting = 2000
)

// evaluation is one check of a value.
type evaluation struct {
	ctx      context.Context
	work     int
	nesting  int
	path     []step
	problems []Problem
	err      error

	// These buffers are reused, so that most steps allocate nothing.
	value, quotient big.Rat
	keyA, keyB      []byte
	names           []string
}

// step is one step of the path to a part of a value. The index is -1 for a member of an object.
type step struct {
	name  string
	index int
}

// spend subtracts units from the remaining work. It returns false if the evaluation must end.
func (e *evaluation) spend(units int) bool {
	if e.err != nil {
		return false
	}
	before := e.work
	e.work -= units
	switch {
	case e.work < 0:
		e.err = ErrTooMuchWork
	case before>>12 != e.work>>12:
		e.err = e.ctx.Err()
	}
	return e.err == nil
}

// fail adds a problem and returns false. If the evaluation was stopped, fail adds nothing, because a part that
// was evaluated incompletely can look like a mismatch.
func (e *evaluation) fail(format string, args ...any) bool {
	if e.err == nil && len(e.problems) < maxProblems {
		var pointer jsontext.Pointer
		for _, to := range e.path {
			if to.index >= 0 {
				to.name = strconv.Itoa(to.index)
			}
			pointer = pointer.AppendToken(to.name)
		}
		e.problems = append(e.problems, Problem{string(pointer), fmt.Sprintf(format, args...)})
	}
	return false
}

// enough reports whether the evaluation can stop after a failure: problems are not reported, or the maximum is reached.
func (e *evaluation) enough(report bool) bool { return !report || len(e.problems) >= maxProblems }

// seen contains the evaluated members or items of a value, for the keywords unevaluatedProperties and unevaluatedItems.
// It is nil if no schema uses these keywords.
type seen struct {
	all   bool
	names map[string]bool
	items map[int]bool
}

func (e *evaluation) addName(s *seen, name string) {
	if s != nil && e.spend(seenWork) {
		if s.names == nil {
			s.names = map[string]bool{}
		}
		s.names[name] = true
	}
}

func (e *evaluation) addItem(s *seen, i int) {
	if s != nil && e.spend(seenWork) {
		if s.items == nil {
			s.items = map[int]bool{}
		}
		s.items[i] = true
	}
}

// add adds the members and items in other.
func (e *evaluation) add(s, other *seen) {
	if s.all = s.all || other.all; s.all {
		return
	}
	if s.names == nil && s.items == nil {
		s.names, s.items = other.names, other.items // the caller does not use other again
		return
	}
	for name := range other.names {
		e.addName(s, name)
	}
	for i := range other.items {
		e.addItem(s, i)
	}
}

// matches reports whether a value matches a schema. If report is set and the value does not match, it also records the
// problems. If outer is not nil and the value matches, it adds the evaluated parts of the value to outer.
func (e *evaluation) matches(s *jsonschema.Schema, v any, report bool, outer *seen) bool {
	if !e.spend(schemaWork) {
		return false
	}
	if e.nesting++; e.nesting > maxNesting {
		e.err = ErrTooMuchWork
		return false
	}
	defer func() { e.nesting-- }()
	if s.Bool != nil {
		return *s.Bool || report && e.fail("is not allowed here")
	}
	if s.Types != nil && !s.Types.IsEmpty() && !e.hasType(*s.Types, v) {
		return report && e.fail("must be %s, not %s", strings.Join(s.Types.ToStrings(), " or "), typeOf(v).ToStrings()[0])
	}
	if s.Const != nil && !e.equal(v, *s.Const) {
		return report && e.fail("is not the required value")
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum.Values, func(want any) bool { return e.equal(v, want) }) {
		return report && e.fail("is not one of the allowed values")
	}
	if text, ok := v.(string); ok && s.Format != nil {
		if !e.hasFormat(s.Format, text) {
			return report && e.fail("does not have the format %s", s.Format.Name)
		}
	}
	var all seen
	var parts *seen
	if outer != nil || s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil {
		parts = &all
	}
	ok := e.kind(s, v, report, parts)
	if !ok && e.enough(report) {
		return false
	}
	ok = e.inPlace(s, v, report, parts) && ok
	ok = (ok || !e.enough(report)) && e.unevaluated(s, v, report, parts) && ok
	if ok && outer != nil {
		e.add(outer, parts)
	}
	return ok && e.err == nil
}

// kind checks the keywords for the type of the value.
func (e *evaluation) kind(s *jsonschema.Schema, v any, report bool, parts *seen) bool {
	switch v := v.(type) {
	case map[string]any:
		return e.object(s, v, report, parts)
	case []any:
		return e.array(s, v, report, parts)
	case string:
		return e.text(s, v, report)
	case json.Number:
		return e.number(s, v, report)
	}
	return true
}

// inside checks a part of the current value.
func (e *evaluation) inside(s *jsonschema.Schema, v any, at step, report bool) bool {
	e.path = append(e.path, at)
	ok := e.matches(s, v, report, nil)
	e.path = e.path[:len(e.path)-1]
	return ok
}

// each calls a callback for each member of an object until the callback returns false. If problems are reported, the
// members are sorted, so that the same value always has the same problems.
func (e *evaluation) each(object map[string]any, report bool, do func(name string, v any) bool) {
	if report {
		start := len(e.names)
		for _, name := range e.sorted(object) {
			if !do(name, object[name]) {
				break
			}
		}
		e.names = e.names[:start]
		return
	}
	if !e.spend(memberWork * len(object)) {
		return
	}
	for name, v := range object {
		if !do(name, v) {
			return
		}
	}
}

// sorted returns the sorted names of an object's members, which it adds to e.names.
func (e *evaluation) sorted(object map[string]any) []string {
	if !e.spend(len(object) * (memberWork + bits.Len(uint(len(object)))/2)) {
		return nil
	}
	start := len(e.names)
	for name := range object {
		e.names = append(e.names, name)
	}
	names := e.names[start:]
	slices.Sort(names)
	return names
}

func (e *evaluation) object(s *jsonschema.Schema, object map[string]any, report bool, parts *seen) bool {
	if !e.spend(2*len(s.Dependencies) + 2*len(s.DependentSchemas) + 2*len(s.DependentRequired)) {
		return false
	}
	ok := true
	if s.MinProperties != nil && len(object) < *s.MinProperties {
		ok = report && e.fail("has fewer than %s", count(*s.MinProperties, "member"))
	}
	if s.MaxProperties != nil && len(object) > *s.MaxProperties {
		ok = report && e.fail("has more than %s", count(*s.MaxProperties, "member"))
	}
	ok = e.needs(s.Required, object, report) && ok
	if !ok && e.enough(report) {
		return false
	}
	if len(object) == 0 {
		return ok // no other keyword applies to an empty object
	}
	var unknown []string
	if s.PropertyNames != nil || len(s.Properties) > 0 || len(s.PatternProperties) > 0 || s.AdditionalProperties != nil {
		e.each(object, report, func(name string, v any) bool {
			if s.PropertyNames != nil && !e.matches(s.PropertyNames, name, false, nil) {
				ok = report && e.fail("has a member whose name is not allowed")
			}
			ok = e.member(s, name, v, report, parts, &unknown) && ok
			return ok || !e.enough(report)
		})
	}
	if len(unknown) > 0 {
		ok = report && e.fail("has %s that the schema does not allow%s", count(len(unknown), "member"), named(unknown))
	}
	for name, other := range s.Dependencies {
		if _, has := object[name]; !has {
			continue
		}
		switch other := other.(type) {
		case []string:
			ok = e.needs(other, object, report) && ok
		case *jsonschema.Schema:
			ok = e.matches(other, object, report, parts) && ok
		}
	}
	for name, others := range s.DependentRequired {
		if _, has := object[name]; has {
			ok = e.needs(others, object, report) && ok
		}
	}
	for name, schema := range s.DependentSchemas {
		if _, has := object[name]; has {
			ok = e.matches(schema, object, report, parts) && ok
		}
	}
	return ok
}

func (e *evaluation) needs(names []string, object map[string]any, report bool) bool {
	if !e.spend(2 * len(names)) {
		return false
	}
	var missing []string
	for _, name := range names {
		if _, has := object[name]; has {
			continue
		}
		if !report {
			return false
		}
		missing = append(missing, name)
	}
	return len(missing) == 0 || e.fail("needs %s", strings.Join(missing, ", "))
}

// named returns a colon and a list of names. It leaves out names that are not simple words, because such a name could
// be a value.
func named(names []string) string {
	const most = 5
	var words []string
	for _, name := range names {
		if word.MatchString(name) && len(words) < most {
			words = append(words, name)
		}
	}
	if len(words) == 0 {
		return ""
	}
	return ": " + strings.Join(words, ", ")
}

var word = regexp.MustCompile(`^[A-Za-z_]{1,40}$`)

// member checks a member of an object. If the schema does not allow the member, it adds the name to unknown.
func (e *evaluation) member(s *jsonschema.Schema, name string, v any, report bool, parts *seen, unknown *[]string) bool {
	ok, known := true, false
	if schema, has := s.Properties[name]; has {
		known, ok = true, e.inside(schema, v, step{name, -1}, report)
	}
	for re, schema := range s.PatternProperties {
		if e.find(re, name) {
			known = true
			ok = e.inside(schema, v, step{name, -1}, report) && ok
		}
	}
	if !known {
		switch more := s.AdditionalProperties.(type) {
		case bool:
			known = true
			if !more {
				*unknown = append(*unknown, name)
				return false
			}
		case *jsonschema.Schema:
			known, ok = true, e.inside(more, v, step{name, -1}, report)
		}
	}
	if known {
		e.addName(parts, name)
	}
	return ok
}

// find reports whether a pattern occurs in a text.
func (e *evaluation) find(re jsonschema.Regexp, text string) bool {
	p := re.(*pattern)
	if !e.spend(p.work(text)) {
		return false
	}
	if len(text)*p.size < longMatch {
		return p.MatchString(text)
	}
	found := p.MatchReader(&stoppable{ctx: e.ctx, every: checkAfter/p.size + 1, text: text})
	e.err = e.ctx.Err()
	return found && e.err == nil
}

func (e *evaluation) array(s *jsonschema.Schema, array []any, report bool, parts *seen) bool {
	if !e.spend(len(array)) {
		return false
	}
	ok := true
	if s.MinItems != nil && len(array) < *s.MinItems {
		ok = report && e.fail("has fewer than %s", count(*s.MinItems, "item"))
	}
	if s.MaxItems != nil && len(array) > *s.MaxItems {
		ok = report && e.fail("has more than %s", count(*s.MaxItems, "item"))
	}
	if s.UniqueItems && !e.unique(array) {
		ok = report && e.fail("has a duplicate item")
	}
	if !ok && e.enough(report) {
		return false
	}
	first, rest := itemSchemas(s)
	for i, item := range array {
		schema := rest
		if i < len(first) {
			schema = first[i]
		}
		if schema == nil {
			break
		}
		e.addItem(parts, i)
		ok = e.inside(schema, item, step{"", i}, report) && ok
		if !ok && e.enough(report) {
			break
		}
	}
	if s.Contains != nil {
		ok = e.contains(s, array, report, parts) && ok
	}
	return ok
}

// itemSchemas returns the schemas of the first items, and the schema of the others, which may be nil.
func itemSchemas(s *jsonschema.Schema) (first []*jsonschema.Schema, rest *jsonschema.Schema) {
	if s.DraftVersion >= 2020 {
		return s.PrefixItems, s.Items2020
	}
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		return nil, items
	case []*jsonschema.Schema:
		first = items
	}
	switch more := s.AdditionalItems.(type) {
	case *jsonschema.Schema:
		rest = more
	case bool:
		rest = &jsonschema.Schema{Bool: &more}
	}
	return first, rest
}

func (e *evaluation) contains(s *jsonschema.Schema, array []any, report bool, parts *seen) bool {
	found, least := 0, 1
	if s.MinContains != nil {
		least = *s.MinContains
	}
	for i, item := range array {
		if e.inside(s.Contains, item, step{"", i}, false) {
			found++
			if s.DraftVersion >= 2020 {
				e.addItem(parts, i)
			}
		}
	}
	switch {
	case found < least:
		return report && e.fail("has fewer than %s that match \"contains\"", count(least, "item"))
	case s.MaxContains != nil && found > *s.MaxContains:
		return report && e.fail("has more than %s that match \"contains\"", count(*s.MaxContains, "item"))
	}
	return true
}

func (e *evaluation) text(s *jsonschema.Schema, text string, report bool) bool {
	ok := true
	if s.MinLength != nil || s.MaxLength != nil {
		if !e.spend(len(text) / 8) {
			return false
		}
		n := utf8.RuneCountInString(text)
		if s.MinLength != nil && n < *s.MinLength {
			ok = report && e.fail("is shorter than %s", count(*s.MinLength, "character"))
		}
		if s.MaxLength != nil && n > *s.MaxLength {
			ok = report && e.fail("is longer than %s", count(*s.MaxLength, "character"))
		}
	}
	if s.Pattern != nil && !e.find(s.Pattern, text) {
		ok = report && e.fail("does not match the pattern %q", s.Pattern.String())
	}
	return ok
}

// inPlace checks the subschemas that apply to the value itself and not to its parts, such as those in allOf.
func (e *evaluation) inPlace(s *jsonschema.Schema, v any, report bool, parts *seen) bool {
	ok := s.Ref == nil || e.matches(s.Ref, v, report, parts)
	if s.RecursiveRef != nil || s.DynamicRef != nil {
		ok = e.dynamic(s, v, report, parts) && ok
	}
	for _, schema := range s.AllOf {
		if !ok && e.enough(report) {
			return false
		}
		ok = e.matches(schema, v, report, parts) && ok
	}
	if s.Not != nil && e.matches(s.Not, v, false, nil) {
		ok = report && e.fail("matches a schema that it must not match")
	}
	if len(s.AnyOf) > 0 {
		any := false
		for _, schema := range s.AnyOf {
			if e.matches(schema, v, false, parts) {
				if any = true; parts == nil {
					break
				}
			}
		}
		if !any {
			ok = report && e.fail("matches none of the allowed alternatives")
		}
	}
	if len(s.OneOf) > 0 {
		matched := 0
		for _, schema := range s.OneOf {
			if e.matches(schema, v, false, parts) {
				if matched++; matched == 2 {
					break
				}
			}
		}
		if matched != 1 {
			ok = report && e.fail("does not match exactly one of the allowed alternatives")
		}
	}
	if s.If != nil {
		branch := s.Else
		if e.matches(s.If, v, false, parts) {
			branch = s.Then
		}
		if branch != nil {
			ok = e.matches(branch, v, report, parts) && ok
		}
	}
	return ok
}

// dynamic checks a dynamic reference. In a schema with a single resource, a dynamic reference means the same as $ref.
// The function compile rejects schemas with several resources. The only exception is a reference to a meta-schema of
// JSON Schema.
func (e *evaluation) dynamic(s *jsonschema.Schema, v any, report bool, parts *seen) bool {
	if !strings.HasPrefix(s.Location, home) {
		e.err = errMetaSchema
		return false
	}
	if s.RecursiveRef != nil && !e.matches(s.RecursiveRef, v, report, parts) {
		return false
	}
	return s.DynamicRef == nil || e.matches(s.DynamicRef.Ref, v, report, parts)
}

var errMetaSchema = errors.New("the schema refers to a meta-schema of JSON Schema")

// unevaluated checks the parts of a value that no other keyword has evaluated.
func (e *evaluation) unevaluated(s *jsonschema.Schema, v any, report bool, parts *seen) bool {
	if parts == nil || parts.all {
		return true
	}
	ok := true
	switch v := v.(type) {
	case map[string]any:
		if s.UnevaluatedProperties == nil {
			return true
		}
		e.each(v, report, func(name string, part any) bool {
			ok = (parts.names[name] || e.inside(s.UnevaluatedProperties, part, step{name, -1}, report)) && ok
			return ok || !e.enough(report)
		})
	case []any:
		if s.UnevaluatedItems == nil {
			return true
		}
		for i, item := range v {
			ok = (parts.items[i] || e.inside(s.UnevaluatedItems, item, step{"", i}, report)) && ok
			if !ok && e.enough(report) {
				break
			}
		}
	default:
		return true
	}
	parts.all = true
	return ok
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
