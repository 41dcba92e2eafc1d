package policy

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
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

// makeContext makes the parts of the context that rules look at. An error says,
// without quoting anything, why the arguments cannot be judged.
func makeContext(u *uses, m moment, arguments []byte) (types.Record, error) {
	parts := make(types.RecordMap, len(u.part))
	put := func(name types.String, value func() types.Value) {
		if u.has(string(name)) {
			parts[name] = value()
		}
	}
	put("caller", func() types.Value { return types.String(m.caller) })
	put("side_effect", func() types.Value { return types.String(m.sideEffect) })
	put("time", func() types.Value { return types.NewDatetime(m.time) })
	put("annotations", func() types.Value { return hints(m.annotations) })
	if m.skill != "" {
		put("skill", func() types.Value { return types.String(m.skill) })
	}
	look := &looking{uses: u, paths: u.has("paths") || u.has("paths_any_under") || u.has("paths_all_under")}
	look.hosts = u.has("hosts") || u.has("hosts_any_under") || u.has("hosts_all_under")
	look.databases = u.has("databases")
	if u.has("arguments") || u.has("path_of") || look.paths || look.hosts || look.databases {
		if err := look.read(arguments); err != nil {
			return types.Record{}, err
		}
		put("arguments", func() types.Value { return types.NewRecord(look.arguments) })
		put("path_of", func() types.Value { return types.NewRecord(look.pathOf) })
		put("paths", func() types.Value { return set(look.allPaths.values) })
		put("paths_any_under", func() types.Value { return set(look.allPaths.any) })
		put("paths_all_under", func() types.Value { return set(look.allPaths.all) })
		put("hosts", func() types.Value { return set(look.allHosts.values) })
		put("hosts_any_under", func() types.Value { return set(look.allHosts.any) })
		put("hosts_all_under", func() types.Value { return set(look.allHosts.all) })
		put("databases", func() types.Value { return set(look.named) })
	}
	return types.NewRecord(parts), nil
}

func hints(a agent.Annotations) types.Value {
	parts := types.RecordMap{}
	for name, hint := range map[types.String]*bool{
		"read_only": a.ReadOnly, "destructive": a.Destructive, "idempotent": a.Idempotent, "open_world": a.OpenWorld,
	} {
		if hint != nil {
			parts[name] = types.Boolean(*hint)
		}
	}
	return types.NewRecord(parts)
}

func set(texts map[string]bool) types.Value {
	values := make([]types.Value, 0, len(texts))
	for text := range texts {
		values = append(values, types.String(text))
	}
	return types.NewSet(values...)
}

// looking reads arguments once, for everything that rules want of them.
type looking struct {
	uses                    *uses
	paths, hosts, databases bool

	values    int
	work      int
	arguments types.RecordMap
	pathOf    types.RecordMap
	allPaths  places
	allHosts  places
	named     map[string]bool
}

// companions reports whether strings are looked at at any depth.
func (l *looking) companions() bool { return l.paths || l.hosts || l.databases }

// decoders are kept, since making one costs more than reading most arguments.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

func (l *looking) read(arguments []byte) error {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	d := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(d)
	d.Reset(bytes.NewBuffer(arguments)) // which it reads without a copy
	l.arguments, l.pathOf, l.named = types.RecordMap{}, types.RecordMap{}, map[string]bool{}
	if open, err := d.ReadToken(); err != nil || open.Kind() != '{' {
		return errors.New("the arguments are not a JSON object")
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return errUnreadable
		}
		key := name.String()
		if !l.uses.argument(key) && !l.uses.path(key) && !l.companions() {
			if err := d.SkipValue(); err != nil {
				return errUnreadable
			}
			continue
		}
		var texts []string
		value, err := l.value(d, key, &texts)
		if err != nil {
			return err
		}
		if value != nil && l.uses.argument(key) {
			l.arguments[types.String(key)] = value
		}
		if len(texts) > 0 && l.uses.path(key) {
			var p places
			for _, text := range texts {
				if err := p.addPath(text, &l.work); err != nil {
					return fmt.Errorf("the argument %s cannot be read as a path: %w", quote(key), err)
				}
			}
			l.pathOf[types.String(key)] = p.record()
		}
	}
	return nil
}

var errUnreadable = errors.New("the arguments are not valid JSON")

// value reads one value; nil stands for null. Texts are those directly in it, or
// in a list of it.
func (l *looking) value(d *jsontext.Decoder, key string, texts *[]string) (types.Value, error) {
	if l.values++; l.values > maxValues {
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
		return types.String(text), l.text(key, text)
	case '0':
		return number(t.String()), nil
	case '[':
		var elements []types.Value
		for d.PeekKind() != ']' {
			one, err := l.value(d, key, texts)
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
		one, err := l.value(d, inner, nil)
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

// text takes a string for the companions.
func (l *looking) text(key, text string) error {
	words := wordsOf(key)
	if l.paths && (pathWords.any(words) || looksLikePath(text, &l.work)) {
		if err := l.allPaths.addPath(text, &l.work); err != nil {
			return fmt.Errorf("the argument %s cannot be read as a path: %w", quote(key), err)
		}
	}
	if l.hosts && (hostWords.any(words) || looksLikeURL(text, &l.work)) {
		if err := l.allHosts.addHost(text, &l.work); err != nil {
			return fmt.Errorf("the argument %s cannot be read as a host: %w", quote(key), err)
		}
	}
	if l.databases {
		noteDatabases(l.named, words, text)
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
