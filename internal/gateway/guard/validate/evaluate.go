package validate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxWork bounds the work of a check. One unit takes about 25 ns, and the evaluation of a schema takes schemaWork units.
// maxNesting bounds the schemas that are evaluated inside each other. It also ends a schema that refers to itself without
// end.
const (
	maxWork    = 4_000_000
	schemaWork = 8
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
}

// step leads from a value to one of its parts. The index is -1 for a member of an object.
type step struct {
	name  string
	index int
}

// spend counts work. It reports false if the evaluation must end.
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

// fail adds a problem, if problems are reported, and returns false.
func (e *evaluation) fail(report bool, format string, args ...any) bool {
	if report && len(e.problems) < maxProblems {
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

// enough reports whether the evaluation of a value's other parts can be skipped after a failure.
func (e *evaluation) enough(report bool) bool { return !report || len(e.problems) >= maxProblems }

// seen contains the members or items of a value that a schema has evaluated, for unevaluatedProperties and
// unevaluatedItems. It is nil if no schema asks for it.
type seen struct {
	all   bool
	names map[string]bool
	items map[int]bool
}

func (s *seen) addName(name string) {
	if s != nil {
		s.names[name] = true
	}
}

func (s *seen) addItem(i int) {
	if s != nil {
		s.items[i] = true
	}
}

func (s *seen) addAll() {
	if s != nil {
		s.all = true
	}
}

func newSeen() *seen { return &seen{names: map[string]bool{}, items: map[int]bool{}} }

// matches reports whether a value matches a schema. If report is true, it also adds the problems. It adds the evaluated
// parts of the value to outer, if outer is not nil and the value matches.
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
		return *s.Bool || e.fail(report, "is not allowed here")
	}
	if s.Types != nil && !s.Types.IsEmpty() && !e.hasType(*s.Types, v) {
		return e.fail(report, "must be %s, not %s", strings.Join(s.Types.ToStrings(), " or "), typeOf(v).ToStrings()[0])
	}
	if s.Const != nil && !e.equal(v, *s.Const) {
		return e.fail(report, "is not the required value")
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum.Values, func(want any) bool { return e.equal(v, want) }) {
		return e.fail(report, "is not one of the allowed values")
	}
	if text, ok := v.(string); ok && s.Format != nil {
		if !e.spend(len(text)) || s.Format.Validate(v) != nil {
			return e.fail(report, "does not have the format %s", s.Format.Name)
		}
	}
	var parts *seen
	if outer != nil || s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil {
		parts = newSeen()
	}
	ok := e.kind(s, v, report, parts)
	if !ok && e.enough(report) {
		return false
	}
	ok = e.inPlace(s, v, report, parts) && ok
	ok = (ok || !e.enough(report)) && e.unevaluated(s, v, report, parts) && ok
	if ok && outer != nil {
		if !e.spend(len(parts.names) + len(parts.items)) {
			return false
		}
		outer.all = outer.all || parts.all
		maps.Copy(outer.names, parts.names)
		maps.Copy(outer.items, parts.items)
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

// names returns the names of an object's members. They are sorted if problems are reported, so that the same value always
// has the same problems.
func names(object map[string]any, report bool) iter.Seq[string] {
	if report {
		return slices.Values(slices.Sorted(maps.Keys(object)))
	}
	return maps.Keys(object)
}

func (e *evaluation) object(s *jsonschema.Schema, object map[string]any, report bool, parts *seen) bool {
	if !e.spend(len(object) + len(s.Required) + len(s.Dependencies) + len(s.DependentSchemas) + len(s.DependentRequired)) {
		return false
	}
	ok := true
	if s.MinProperties != nil && len(object) < *s.MinProperties {
		ok = e.fail(report, "has fewer than %s", count(*s.MinProperties, "member"))
	}
	if s.MaxProperties != nil && len(object) > *s.MaxProperties {
		ok = e.fail(report, "has more than %s", count(*s.MaxProperties, "member"))
	}
	ok = e.needs(s.Required, object, report) && ok
	if !ok && e.enough(report) {
		return false
	}
	if len(object) == 0 {
		return ok // no other keyword applies
	}
	unknown := 0
	for name := range names(object, report) {
		if s.PropertyNames != nil && !e.matches(s.PropertyNames, name, false, nil) {
			ok = e.fail(report, "has a member whose name is not allowed")
		}
		ok = e.member(s, name, object[name], report, parts, &unknown) && ok
		if !ok && e.enough(report) {
			break
		}
	}
	if unknown > 0 {
		ok = e.fail(report, "has %s that the schema does not allow", count(unknown, "member"))
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
	var missing []string
	for _, name := range names {
		if _, has := object[name]; !has {
			missing = append(missing, name)
		}
	}
	return len(missing) == 0 || e.fail(report, "needs %s", strings.Join(missing, ", "))
}

// member checks a member of an object. If the schema does not allow the member, it increments unknown.
func (e *evaluation) member(s *jsonschema.Schema, name string, v any, report bool, parts *seen, unknown *int) bool {
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
				*unknown++
				return false
			}
		case *jsonschema.Schema:
			known, ok = true, e.inside(more, v, step{name, -1}, report)
		}
	}
	if known {
		parts.addName(name)
	}
	return ok
}

// find reports whether a pattern occurs in a text.
func (e *evaluation) find(re jsonschema.Regexp, text string) bool {
	p := re.(*pattern)
	if !e.spend(1 + len(text)*p.size/8) {
		return false
	}
	if len(text)*p.size < longMatch {
		return p.MatchString(text)
	}
	found := p.MatchReader(&stoppable{ctx: e.ctx, text: text})
	e.err = e.ctx.Err()
	return found && e.err == nil
}

func (e *evaluation) array(s *jsonschema.Schema, array []any, report bool, parts *seen) bool {
	if !e.spend(len(array)) {
		return false
	}
	ok := true
	if s.MinItems != nil && len(array) < *s.MinItems {
		ok = e.fail(report, "has fewer than %s", count(*s.MinItems, "item"))
	}
	if s.MaxItems != nil && len(array) > *s.MaxItems {
		ok = e.fail(report, "has more than %s", count(*s.MaxItems, "item"))
	}
	if s.UniqueItems && !e.unique(array) {
		ok = e.fail(report, "has a duplicate item")
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
		parts.addItem(i)
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
				parts.addItem(i)
			}
		}
	}
	switch {
	case found < least:
		return e.fail(report, "has fewer than %s of the required form", count(least, "item"))
	case s.MaxContains != nil && found > *s.MaxContains:
		return e.fail(report, "has more than %s of the limited form", count(*s.MaxContains, "item"))
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
			ok = e.fail(report, "is shorter than %s", count(*s.MinLength, "character"))
		}
		if s.MaxLength != nil && n > *s.MaxLength {
			ok = e.fail(report, "is longer than %s", count(*s.MaxLength, "character"))
		}
	}
	if s.Pattern != nil && !e.find(s.Pattern, text) {
		ok = e.fail(report, "does not match the pattern %q", s.Pattern.String())
	}
	return ok
}

func (e *evaluation) number(s *jsonschema.Schema, n json.Number, report bool) bool {
	if s.Minimum == nil && s.Maximum == nil && s.ExclusiveMinimum == nil && s.ExclusiveMaximum == nil && s.MultipleOf == nil {
		return true
	}
	r, ok := e.rat(n)
	if !ok {
		return false
	}
	if s.Minimum != nil && r.Cmp(s.Minimum) < 0 {
		ok = e.fail(report, "is less than %s", s.Minimum.RatString())
	}
	if s.Maximum != nil && r.Cmp(s.Maximum) > 0 {
		ok = e.fail(report, "is more than %s", s.Maximum.RatString())
	}
	if s.ExclusiveMinimum != nil && r.Cmp(s.ExclusiveMinimum) <= 0 {
		ok = e.fail(report, "is not more than %s", s.ExclusiveMinimum.RatString())
	}
	if s.ExclusiveMaximum != nil && r.Cmp(s.ExclusiveMaximum) >= 0 {
		ok = e.fail(report, "is not less than %s", s.ExclusiveMaximum.RatString())
	}
	if s.MultipleOf != nil && !new(big.Rat).Quo(r, s.MultipleOf).IsInt() {
		ok = e.fail(report, "is not a multiple of %s", s.MultipleOf.RatString())
	}
	return ok
}

// rat returns the value of a number. It fails if the evaluation must end.
func (e *evaluation) rat(n json.Number) (*big.Rat, bool) {
	digits := len(n)
	if _, exponent, ok := strings.Cut(strings.ToLower(string(n)), "e"); ok {
		size, _ := strconv.Atoi(exponent)
		digits += max(size, -size)
	}
	if !e.spend(8 + digits) {
		return nil, false
	}
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return new(big.Rat).SetInt64(i), true
	}
	return new(big.Rat).SetString(string(n))
}

// inPlace checks the schemas that apply to the same value.
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
		ok = e.fail(report, "matches a schema that it must not match")
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
			ok = e.fail(report, "matches none of the allowed alternatives")
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
			ok = e.fail(report, "does not match exactly one of the allowed alternatives")
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

// dynamic checks a dynamic reference. Inside one resource, it means the same as $ref. compile rejects schemas with more
// resources, except a reference to the schema of JSON Schema itself, which consists of several.
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

var errMetaSchema = errors.New("the schema refers to the schema of JSON Schema")

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
		for name := range names(v, report) {
			ok = (parts.names[name] || e.inside(s.UnevaluatedProperties, v[name], step{name, -1}, report)) && ok
			if !ok && e.enough(report) {
				break
			}
		}
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
	parts.addAll()
	return ok
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
