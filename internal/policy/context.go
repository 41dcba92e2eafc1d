package policy

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
)

// How JSON becomes Cedar:
//
//	string, true, false   the same
//	object                a record; a member that is null is not there
//	array                 a set; a null in it is {"null": true}
//	number                a long, if it is a whole number of 64 bits, however it
//	                      is spelt (100, 100.0 and 1e2 are one); a decimal, if it
//	                      has up to four digits after the point and fits; else a
//	                      record {"number": "…"}, which compares with nothing
//
// So a comparison with a number that Cedar does not have is an error, which a
// forbid takes for a match and a permit for none.

// Mapping says that to a person.
var Mapping = []string{
	"null counts as absent, and is {\"null\": true} inside a list",
	"a list is a set: order and repetition are lost",
	"100, 100.0 and 1e2 are the same long",
	"a number with up to four digits after the point is a decimal, to be compared with decimal(\"…\")",
	"a larger or finer number is {\"number\": \"…\"}: comparing it is an error, which a forbid takes for a match",
}

// The bounds of what rules are shown. More is refused, where rules look at it:
// Cedar's sets take time quadratic in their size where somebody chooses values
// that collide.
const (
	maxValues   = 10_000
	maxElements = 1_000
)

// errTooMuch says that arguments are beyond what rules can be shown.
var errTooMuch = errors.New("the arguments hold more values than rules can look at")

// moment is what the context holds besides the arguments.
type moment struct {
	caller, sideEffect, skill string
	time                      time.Time
	annotations               agent.Annotations
}

// facts are what is known of one call, before any of it is made into Cedar: tests
// that Cedar need not make are made on them.
type facts struct {
	view *view
	m    moment
	// arguments are those that rules look at.
	arguments types.RecordMap
	pathOf    map[string]*places
	paths     places
	hosts     places
	databases map[string]bool

	values int
	work   int
}

// gather finds out what rules want to know of a call. An error says, without
// quoting anything, why the arguments cannot be judged.
func (r *Rules) gather(v *view, m moment, arguments []byte) (*facts, error) {
	f := &facts{view: v, m: m}
	if !v.uses.has(ofArguments) {
		return f, nil
	}
	return f, f.read(arguments)
}

// context is the context with some of its parts.
func (f *facts) context(parts part) types.Record {
	made := make(types.RecordMap, bits.OnesCount16(uint16(parts)))
	put := func(name types.String, p part, value func() types.Value) {
		if parts&p != 0 {
			made[name] = value()
		}
	}
	put("caller", partCaller, func() types.Value { return types.String(f.m.caller) })
	put("side_effect", partSideEffect, func() types.Value { return types.String(f.m.sideEffect) })
	put("time", partTime, func() types.Value { return types.NewDatetime(f.m.time) })
	put("annotations", partAnnotations, func() types.Value { return hints(f.m.annotations) })
	if f.m.skill != "" {
		put("skill", partSkill, func() types.Value { return types.String(f.m.skill) })
	}
	put("arguments", partArguments, func() types.Value { return types.NewRecord(f.arguments) })
	put("path_of", partPathOf, func() types.Value {
		all := make(types.RecordMap, len(f.pathOf))
		for name, p := range f.pathOf {
			all[types.String(name)] = p.record()
		}
		return types.NewRecord(all)
	})
	for p := partPaths; p <= partDatabases; p <<= 1 {
		if parts&p != 0 {
			made[nameOf[p]] = set(f.texts(p))
		}
	}
	return types.NewRecord(made)
}

// texts are a part that is a set of texts.
func (f *facts) texts(p part) map[string]bool {
	switch p {
	case partPaths:
		return f.paths.values
	case partPathsAny:
		return f.paths.any
	case partPathsAll:
		return f.paths.all
	case partHosts:
		return f.hosts.values
	case partHostsAny:
		return f.hosts.any
	case partHostsAll:
		return f.hosts.all
	}
	return f.databases
}

func hints(a agent.Annotations) types.Value {
	parts := types.RecordMap{}
	for _, name := range []types.String{"read_only", "destructive", "idempotent", "open_world"} {
		if v := hint(a, name); v != nil {
			parts[name] = v
		}
	}
	return types.NewRecord(parts)
}

// hint is one annotation; nil if the tool does not have it.
func hint(a agent.Annotations, name types.String) types.Value {
	var h *bool
	switch name {
	case "read_only":
		h = a.ReadOnly
	case "destructive":
		h = a.Destructive
	case "idempotent":
		h = a.Idempotent
	case "open_world":
		h = a.OpenWorld
	}
	if h == nil {
		return nil
	}
	return types.Boolean(*h)
}

func set(texts map[string]bool) types.Value {
	values := make([]types.Value, 0, len(texts))
	for text := range texts {
		values = append(values, types.String(text))
	}
	return types.NewSet(values...)
}

// decoders are kept, since making one costs more than reading most arguments.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

func (f *facts) read(arguments []byte) error {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	d := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(d)
	d.Reset(bytes.NewBuffer(arguments)) // which it reads without a copy
	uses := &f.view.uses
	f.arguments, f.pathOf, f.databases = types.RecordMap{}, map[string]*places{}, map[string]bool{}
	deep := uses.has(somePaths | someHosts | partDatabases) // there, texts are looked at at any depth
	if open, err := d.ReadToken(); err != nil || open.Kind() != '{' {
		return errors.New("the arguments are not a JSON object")
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return errUnreadable
		}
		key := name.String()
		if !uses.argument(key) && !uses.path(key) && !deep {
			if err := d.SkipValue(); err != nil {
				return errUnreadable
			}
			continue
		}
		if err := f.name("", key); err != nil {
			return err
		}
		var texts []string
		value, err := f.value(d, key, &texts)
		if err != nil {
			return err
		}
		if value != nil && uses.argument(key) {
			f.arguments[types.String(key)] = value
		}
		if len(texts) > 0 && uses.path(key) {
			p := new(places)
			for _, text := range texts {
				if err := p.addPaths(f.spelt(text)); err != nil {
					return fmt.Errorf("the argument %s cannot be read as a path: %w", quote(key), err)
				}
			}
			f.pathOf[key] = p
		}
	}
	return nil
}

var errUnreadable = errors.New("the arguments are not valid JSON")

// value reads one value; nil stands for null. Texts are all in it, at any depth.
func (f *facts) value(d *jsontext.Decoder, key string, texts *[]string) (types.Value, error) {
	if f.values++; f.values > maxValues {
		return nil, errTooMuch
	}
	t, err := d.ReadToken()
	if err != nil {
		return nil, errUnreadable
	}
	switch t.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return types.Boolean(t.Bool()), nil
	case '"':
		text := t.String()
		if texts != nil {
			*texts = append(*texts, text)
		}
		return types.String(text), f.text(key, text)
	case '0':
		n := number(t.String())
		if whole, ok := n.(types.Long); ok {
			return n, f.number(key, int64(whole))
		}
		return n, nil
	case '[':
		var elements []types.Value
		for d.PeekKind() != ']' {
			one, err := f.value(d, key, texts)
			if err != nil {
				return nil, err
			}
			if one == nil {
				one = nullElement
			}
			if elements = append(elements, one); len(elements) > maxElements {
				return nil, errTooMuch
			}
		}
		_, err := d.ReadToken()
		return types.NewSet(elements...), err
	}
	members := types.RecordMap{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, errUnreadable
		}
		inner := name.String()
		if err := f.name(key, inner); err != nil {
			return nil, err
		}
		if texts != nil && strings.ContainsAny(inner, `/\~`) {
			*texts = append(*texts, inner)
		}
		one, err := f.value(d, inner, texts)
		if err != nil {
			return nil, err
		}
		if one != nil {
			members[types.String(inner)] = one
		}
	}
	_, err = d.ReadToken()
	return types.NewRecord(members), err
}

var nullElement = types.NewRecord(types.RecordMap{"null": types.True})

func (f *facts) spelt(text string) *spelt {
	return &spelt{text: text, base: f.view.base, work: &f.work}
}

// text takes a string for the companions.
func (f *facts) text(key, text string) error {
	uses := &f.view.uses
	words, t := wordsOf(key), f.spelt(text)
	if uses.has(somePaths) {
		var err error
		if pathWords.any(words) {
			err = f.paths.addPaths(t)
		} else {
			err = f.paths.addLooks(t)
		}
		if err != nil {
			return fmt.Errorf("the argument %s cannot be read as a path: %w", quote(key), err)
		}
	}
	if uses.has(someHosts) && (hostWords.any(words) || looksLikeURL(t)) {
		if err := f.hosts.addHost(t); err != nil {
			return fmt.Errorf("the argument %s cannot be read as a host: %w", quote(key), err)
		}
	}
	if uses.has(partDatabases) {
		if err := noteDatabases(f.databases, words, text); err != nil {
			return err
		}
	}
	return nil
}

// number takes a whole number for the companions.
func (f *facts) number(key string, n int64) error {
	uses := &f.view.uses
	if !uses.has(someHosts | partDatabases) {
		return nil
	}
	words := wordsOf(key)
	if uses.has(someHosts) && hostWords.any(words) {
		f.hosts.addNumber(n)
	}
	// db_timeout names none.
	if uses.has(partDatabases) && len(words) == 1 && baseWords.any(words) {
		return noteDatabases(f.databases, words, strconv.FormatInt(n, 10))
	}
	return nil
}

// name takes the name of a member, which some tools give paths and addresses as:
// {"files": {"/etc/passwd": "…"}}.
func (f *facts) name(of, name string) error {
	if !strings.ContainsAny(name, `/\%:~.`) {
		return nil // as most are
	}
	uses := &f.view.uses
	t := f.spelt(name)
	if uses.has(somePaths) {
		var err error
		if strings.ContainsAny(name, `/\`) && pathWords.any(wordsOf(of)) {
			err = f.paths.addPath(t)
		} else {
			err = f.paths.addLooks(t)
		}
		if err != nil {
			return fmt.Errorf("the name of an argument cannot be read as a path: %w", err)
		}
	}
	if uses.has(someHosts) && looksLikeURL(t) {
		if err := f.hosts.addHost(t); err != nil {
			return fmt.Errorf("the name of an argument cannot be read as a host: %w", err)
		}
	}
	return nil
}

// number is a JSON number in Cedar. The digits are bounded before they are
// multiplied out: 1e999999999 is a short text and a long number.
func number(lexeme string) types.Value {
	odd := types.NewRecord(types.RecordMap{"number": types.String(lexeme)})
	if len(lexeme) > 64 {
		return odd
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(lexeme), "e")
	if len(strings.TrimLeft(exponent, "+-0")) > 2 && strings.Trim(mantissa, "-0.") != "" {
		return odd
	}
	if strings.Trim(mantissa, "-0.") == "" {
		return types.Long(0)
	}
	exact, ok := new(big.Rat).SetString(lexeme)
	if !ok {
		return odd
	}
	if exact.IsInt() {
		if !exact.Num().IsInt64() {
			return odd
		}
		return types.Long(exact.Num().Int64())
	}
	scaled := new(big.Rat).Mul(exact, big.NewRat(10_000, 1))
	if !scaled.IsInt() || !scaled.Num().IsInt64() {
		return odd
	}
	d, err := types.NewDecimal(scaled.Num().Int64(), -4)
	if err != nil {
		return odd
	}
	return d
}
