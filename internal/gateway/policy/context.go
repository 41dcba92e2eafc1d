package policy

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
)

// The conversion of JSON to Cedar:
//
//	string, true, false   the same
//	object                a record; a member that is null is not there
//	array                 a set; a null in it is {"null": true}
//	number                a long, if it is a whole number of 64 bits, however it
//	                      is spelt (100, 100.0 and 1e2 are one); a decimal, if it
//	                      has up to four digits after the point and fits; else a
//	                      record {"number": "…"}, which compares with nothing
//
// So a comparison with a number that Cedar cannot represent is an error: a forbid then
// matches and a permit does not.

// Mapping describes the conversion to a person.
var Mapping = []string{
	"null counts as absent, and is {\"null\": true} inside a list",
	"a list is a set: order and repetition are lost",
	"100, 100.0 and 1e2 are the same long",
	"a number with up to four digits after the point is a decimal, to be compared with decimal(\"…\")",
	"a larger or finer number is {\"number\": \"…\"}: comparing it is an error, which a forbid takes for a match",
}

// The bounds of the arguments that rules read; larger ones are refused. Cedar's sets take
// quadratic time if an attacker chooses values that collide.
const (
	maxValues   = 10_000
	maxElements = 1_000
	maxBases    = 16
)

// errTooMuch means that the arguments exceed the bounds.
var errTooMuch = errors.New("the arguments have more values than rules can read")

// moment has the parts of the context that do not come from the arguments.
type moment struct {
	caller, sideEffect, skill string
	time                      time.Time
	annotations               agent.Annotations
}

// facts are the data of one call from which the Cedar context is made.
type facts struct {
	view *view
	m    moment
	// arguments are the arguments that rules read.
	arguments types.RecordMap
	pathOf    map[string]*places
	paths     places
	hosts     places
	databases map[string]bool

	// respelt is set if names of arguments have the spelling of the rules, and asSent if
	// they keep their own.
	respelt, asSent bool
}

// gather collects the data that rules read of a call. An error gives the reason why the
// arguments cannot be judged, without quoting a value.
func (v *view) gather(m moment, arguments []byte, asSent bool) (*facts, error) {
	f := &facts{view: v, m: m, asSent: asSent}
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

// decoders are pooled, because making one costs more than reading most arguments.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

var errUnreadable = errors.New("the arguments are not valid JSON")

// text is one text among the arguments.
type text struct {
	text string
	key  string // the name of its member
	// name is set if the text is itself the name of a member.
	name bool
	// read is set if a rule reads the argument as it was sent. pathOf are the spellings
	// under which a rule reads it as a path.
	read   bool
	pathOf []string
}

// reader reads the arguments of one call.
type reader struct {
	f     *facts
	d     *jsontext.Decoder
	texts []text
	bases []string // absolute folders that relative paths may start from
	// siblings is set if an argument names such a folder.
	siblings bool
	values   int
	top      text // how rules read the argument that is being read
}

// read reads the arguments. Spelling is judged at the end, when all folders are known
// that relative paths may start from.
func (f *facts) read(arguments []byte) error {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	d := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(d)
	d.Reset(bytes.NewBuffer(arguments)) // the decoder reads a buffer without a copy
	r := &reader{f: f, d: d}
	f.pathOf, f.databases = map[string]*places{}, map[string]bool{}
	if open, err := d.ReadToken(); err != nil || open.Kind() != '{' {
		return errors.New("the arguments are not a JSON object")
	}
	members, err := r.object("")
	if err != nil {
		return err
	}
	f.arguments, r.siblings = members, len(r.bases) > 0
	if base := f.view.base; base != "" {
		r.bases = append(r.bases, base)
	}
	for i := range r.texts {
		if err := r.judge(&r.texts[i]); err != nil {
			return err
		}
	}
	return nil
}

// object reads the members of an object up to its end. Members whose names rules use
// get the spelling of the rules.
func (r *reader) object(of string) (types.RecordMap, error) {
	members, top := types.RecordMap{}, of == "" && r.values == 0
	uses := &r.f.view.uses
	seen := map[string]bool{}
	for r.d.PeekKind() != '}' {
		token, err := r.d.ReadToken()
		if err != nil {
			return nil, errUnreadable
		}
		name := token.String()
		folded := fold(name)
		spellings := uses.members[folded]
		if seen[folded] && (len(spellings) > 0 || len(uses.pathOf[folded]) > 0 || baseWords[folded]) {
			return nil, fmt.Errorf("the argument %s has two spellings in one object; send one of them", quote(name))
		}
		seen[folded] = true
		if top {
			r.top = text{read: uses.wholeArguments || len(uses.arguments[folded]) > 0, pathOf: r.f.spelt(name, uses.pathOf[folded])}
			if uses.wholePathOf && len(r.top.pathOf) == 0 {
				r.top.pathOf = []string{name}
			}
			if !r.wanted(name) {
				if err := r.d.SkipValue(); err != nil {
					return nil, errUnreadable
				}
				continue
			}
			r.values = 1
		}
		if strings.ContainsAny(name, `/\%:~.`) { // as in {"files": {"/etc/passwd": "…"}}
			r.note(text{text: name, key: of, name: true})
		}
		value, err := r.value(name)
		if err != nil {
			return nil, err
		}
		if value == nil || top && !r.top.read {
			continue
		}
		for _, spelling := range r.f.spelt(name, spellings) {
			members[types.String(spelling)] = value
		}
		if len(spellings) == 0 {
			members[types.String(name)] = value
		}
	}
	if _, err := r.d.ReadToken(); err != nil {
		return nil, errUnreadable
	}
	return members, nil
}

// spelt returns the spellings under which rules see a member: those that they use,
// or, where names count as they were sent, that one alone.
func (f *facts) spelt(name string, spellings []string) []string {
	if len(spellings) == 0 || len(spellings) == 1 && spellings[0] == name {
		return spellings
	}
	if !f.asSent {
		f.respelt = true
		return spellings
	}
	return []string{name}
}

// wanted reports whether anything in a top-level argument matters.
func (r *reader) wanted(name string) bool {
	uses := &r.f.view.uses
	return r.top.read || len(r.top.pathOf) > 0 || uses.has(somePaths|someHosts|partDatabases) || baseWords.any(wordsOf(name))
}

func (r *reader) note(t text) {
	t.read, t.pathOf = r.top.read, r.top.pathOf
	r.texts = append(r.texts, t)
}

// value reads one value; nil stands for null.
func (r *reader) value(key string) (types.Value, error) {
	if r.values++; r.values > maxValues {
		return nil, errTooMuch
	}
	t, err := r.d.ReadToken()
	if err != nil {
		return nil, errUnreadable
	}
	switch t.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return types.Boolean(t.Bool()), nil
	case '"':
		s := t.String()
		r.note(text{text: s, key: key})
		if strings.HasPrefix(s, "/") && baseWords.any(wordsOf(key)) && len(r.bases) < maxBases {
			r.bases = append(r.bases, s)
		}
		return types.String(s), nil
	case '0':
		n := number(t.String())
		if whole, ok := n.(types.Long); ok {
			return n, r.number(key, int64(whole))
		}
		return n, nil
	case '[':
		var elements []types.Value
		for r.d.PeekKind() != ']' {
			one, err := r.value(key)
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
		_, err := r.d.ReadToken()
		return types.NewSet(elements...), err
	}
	members, err := r.object(key)
	return types.NewRecord(members), err
}

var nullElement = types.NewRecord(types.RecordMap{"null": types.True})

// number judges a whole number. Old resolvers read one as an address: 0 is this
// machine, and numbers below 1.0.0.0 lead nowhere.
func (r *reader) number(key string, n int64) error {
	uses, words := &r.f.view.uses, wordsOf(key)
	if (uses.has(someHosts) || r.top.read) && (hostWords.any(words) || perhapsHosts.any(words)) && (n == 0 || n >= 1<<24 && n < 1<<32) {
		return &flawError{oddAddress, "the argument " + quote(key)}
	}
	// db_timeout names no database.
	if uses.has(partDatabases) && len(words) == 1 && databaseWords.any(words) {
		r.f.addDatabase(strconv.FormatInt(n, 10))
	}
	return nil
}

// judge refuses a text that rules read as a place and that is not canonical, and
// takes the places that it names.
func (r *reader) judge(t *text) error {
	uses, words := &r.f.view.uses, wordsOf(t.key)
	found := r.path(t, words)
	if found.what == "" {
		found = r.host(t, words)
	}
	if found.what == "" && uses.has(partDatabases) && !t.name {
		if found = r.f.addDatabases(words, t.text); len(r.f.databases) > maxElements {
			return errTooMuch
		}
	}
	switch {
	case found.what == "":
		return nil
	case t.name:
		return &flawError{found, "the name of an argument"}
	}
	return &flawError{found, "the argument " + quote(t.key)}
}

// path judges a text as a path where a name or a rule declares it one, or its looks do.
func (r *reader) path(t *text, words []string) flaw {
	uses, s := &r.f.view.uses, t.text
	perhaps := perhapsPaths.any(words) && !pathWords.any(words)
	named := pathWords.any(words) || perhapsPaths.any(words)
	isURL, place := uses.asPlace[fold(t.key)]
	compared := t.read && !t.name && (place || named)
	over := (len(t.pathOf) > 0 || named && uses.has(somePaths)) && (!t.name || strings.ContainsAny(s, `/\~`))
	switch {
	case !compared && !over && !uses.has(somePaths):
		return flaw{}
	case !compared && !over:
		return r.f.paths.addLooks(s, r.bases)
	}
	into := make([]*places, 0, 1+len(t.pathOf))
	if uses.has(somePaths) {
		into = append(into, &r.f.paths)
	}
	for _, name := range t.pathOf {
		if r.f.pathOf[name] == nil {
			r.f.pathOf[name] = new(places)
		}
		into = append(into, r.f.pathOf[name])
	}
	each := func(take func(p *places)) {
		for _, p := range into {
			take(p)
		}
	}
	if urlStart.MatchString(s) && !fileURL.MatchString(s) && !strings.HasPrefix(s, "//") {
		each((*places).unknown)
		_, f := urlFlaw(s, compared)
		return f
	}
	if compared && isURL && fileURL.MatchString(s) {
		return new(places).addFileURL(s)
	}
	if f := pathFlaw(s); f.what != "" {
		return f
	}
	relative := s != "" && s[0] != '/' && !isDrive(s)
	single := perhaps && len(t.pathOf) == 0 && !strings.Contains(s, "/")
	switch {
	case relative && compared && r.siblings, relative && over && len(r.bases) == 0 && !single:
		return relativePath
	case relative && over && strings.ContainsAny(s, ",;|"):
		return flaw{"is a relative path with a separator of lists", "send a list of absolute paths"}
	case s == "":
		each((*places).unknown)
	default:
		each(func(p *places) { p.addPath(s, r.bases) })
	}
	return flaw{}
}

// host judges a text as a URL or host where a name declares it one, or its looks do.
func (r *reader) host(t *text, words []string) flaw {
	uses, s := &r.f.view.uses, t.text
	perhaps := perhapsHosts.any(words) && !hostWords.any(words)
	named := !t.name && (hostWords.any(words) || perhaps)
	hosts := uses.has(someHosts)
	switch {
	case !hosts && !(t.read && named):
		return flaw{}
	case !named:
		return r.f.hosts.addURLByLooks(s)
	}
	single := !strings.ContainsAny(s, `.:/\[%@`)
	switch {
	case perhaps && strings.ContainsAny(s, " \n") && !urlStart.MatchString(s):
		r.f.hosts.unknown() // a postal address
		return flaw{}
	case perhaps && single && isASCII(s):
		r.f.hosts.addHost(strings.ToLower(s))
		return flaw{}
	case fileURL.MatchString(s):
		r.f.hosts.unknown()
		return new(places).addFileURL(s)
	case s == "" || s[0] == '/' && !strings.HasPrefix(s, "//"):
		r.f.hosts.unknown()
		return pathFlaw(s)
	}
	var host string
	var f flaw
	if opaque := opaqueURL.MatchString(s); opaque || urlStart.MatchString(s) {
		if opaque && !urlStart.MatchString(s) {
			r.f.hosts.unknown() // mailto:, data: and the like lead to no host
			return disguise(s, true)
		}
		host, f = urlFlaw(s, t.read)
	} else {
		host, f = hostFlaw(s, "")
		if t.read && f.what == "" && host != s {
			f = flaw{"has a port or brackets", "send the host alone"}
		}
	}
	if f.what == "" {
		r.f.hosts.addHost(host)
	}
	return f
}

// opaqueURL is a URL without a host.
var opaqueURL = regexp.MustCompile(`^[a-zA-Z][a-zA-Z+-]+:[^0-9/]`)

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
