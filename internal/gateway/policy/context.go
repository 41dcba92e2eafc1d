package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/unicode/norm"
)

// JSON is converted to Cedar as follows:
//
//	string, true, false   unchanged
//	object                a record; a member that is null is left out
//	array                 a set; a null in it becomes {"null": true}
//	number                a long if it is a 64-bit integer in any spelling
//	                      (100, 100.0 and 1e2 are equal); a decimal if it has at
//	                      most four digits after the point and is in range;
//	                      otherwise a record {"number": "…"}, which a rule
//	                      cannot compare with a number
//
// A comparison with such a record is an error. A forbid rule with an error is treated as matching, and a permit rule
// with an error permits nothing.

// Mapping explains to users how JSON is converted to Cedar.
var Mapping = []string{
	"a member that is null is treated as absent; a null inside a list becomes {\"null\": true}",
	"a list becomes a set: order and duplicates are lost",
	"100, 100.0 and 1e2 are the same long",
	"a number with up to four digits after the point becomes a decimal; compare it with decimal(\"…\")",
	"a larger or more precise number becomes {\"number\": \"…\"}; " +
		"comparing it is an error; a forbid rule with an error is treated as matching",
}

// Limits on the arguments that rules read. Calls with larger arguments are refused. Without the limits, an attacker
// could send many values with the same hash, and Cedar would take quadratic time to build a set of them.
const (
	maxValues   = 10_000
	maxElements = 1_000
	maxBases    = 16
	maxFolders  = 10_000 // folders and domains in all sets together, including duplicates

	// These limits are lower than the limit on the size of a request, because checking one MiB can take a few seconds.
	maxNameBytes = 128 << 10 // the size of all names together, in bytes
	maxTextBytes = 1 << 20   // the size of all strings together, in bytes
)

// errTooMuch means that the arguments exceed maxValues, maxElements or maxFolders.
var errTooMuch = errors.New("the arguments have more values than the policy can check")

var (
	errLongNames = fmt.Errorf("the names of the arguments have more than %d bytes in all, which is more than the policy "+
		"can check; send shorter names", maxNameBytes)
	errLongTexts = fmt.Errorf("the strings in the arguments have more than %d bytes in all, which is more than the policy "+
		"can check; send less text in one call", maxTextBytes)
)

var errUnreadable = errors.New("the arguments are not valid JSON")

// member is the name of one member of an object.
type member struct {
	key   string
	words []string // words caches wordsOf(key), which is slow for long names
	// under contains the words of the nearest name that declares a path, host or database: the member's own name, or
	// the name of an enclosing object. A member with a general name inherits these words. In {"host": {"name": "…"}},
	// for example, "name" inherits "host".
	under     []string
	inherited bool
}

func newMember(name string, parent *member) *member {
	words := wordsOf(name)
	switch {
	case placeWords.any(words):
		return &member{key: name, words: words, under: words}
	case generalNames[fold(name)]:
		return &member{key: name, words: parent.under, under: parent.under, inherited: true}
	}
	return &member{key: name, words: words, under: parent.under}
}

// text is one string among the arguments.
type text struct {
	text   string
	member // the member that contains the string
	// isName is set if the string is the name of a member, not a value.
	isName bool
	// isStart is set if the string is a relative path that other relative paths can be resolved against.
	isStart bool
	// isRead is set if a rule reads the argument through context.arguments.
	isRead bool
	// pathOf lists the names under which a rule reads the argument through context.path_of.
	pathOf []string
}

// reader reads the arguments of one call and finds the paths, hosts and databases in them.
type reader struct {
	ctx   context.Context
	f     *facts
	d     *jsontext.Decoder
	texts []text
	bases []string // absolute paths that relative paths can be resolved against, at most maxBases+1
	// hasAbsolute is set if the call itself contains an absolute path. hasFolder is set if bases contains the
	// server's working folder or a folder that the call declares. startCount is the number of texts with isStart set.
	hasAbsolute, hasFolder bool
	startCount, values     int
	nameBytes, textBytes   int
	forBases               bool // set if all arguments must be read, to find base folders for paths
	top                    text // how rules read the current top-level argument
}

// read reads the arguments of a call. It checks spellings at the end, when it knows all folders against which relative
// paths can be resolved.
func (f *facts) read(ctx context.Context, arguments []byte) error {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	r := &reader{ctx: ctx, f: f, d: jsontext.NewDecoder(bytes.NewBuffer(arguments))} // a Buffer is not copied
	r.forBases = f.view.uses.readsPaths()
	f.paths.count, f.hosts.count = &f.folders, &f.folders
	f.pathOf, f.databases = map[string]*places{}, map[string]bool{}
	if open, err := r.d.ReadToken(); err != nil || open.Kind() != '{' {
		return errors.New("the arguments are not a JSON object")
	}
	members, err := r.object(nil)
	if err != nil {
		return err
	}
	f.arguments = members
	if f.view.base != "" {
		r.hasFolder = true
		r.addBase(f.view.base)
	}
	r.findBases()
	for i := range r.texts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.judge(&r.texts[i]); err != nil {
			return err
		}
	}
	return nil
}

// findBases finds the paths that relative paths can be resolved against. A tool can use any absolute path as its base
// folder. A string with a space is treated as prose and skipped, unless the argument name declares a path.
func (r *reader) findBases() {
	var starts []string
	for i := range r.texts {
		t := &r.texts[i]
		s := plainSlashes.Replace(strings.Trim(t.text, quoteMarks+" \t\r\n"))
		if fileURL.MatchString(s) {
			s = "/" + s[strings.IndexByte(s, ':')+1:]
		}
		folder, isPath := baseWords.any(t.words), pathWords.any(t.words)
		prose := !folder && !isPath && !perhapsPaths.any(t.words) && strings.ContainsAny(s, " \t\n")
		switch {
		case t.isName || s == "" || prose || startsURL(s) && s[0] != '/':
		case s[0] == '/' || isDrive(s) && strings.HasPrefix(s[2:], "/"):
			r.hasAbsolute, r.hasFolder = true, r.hasFolder || folder
			for _, form := range forms(s) {
				r.addBase(path.Clean(form))
			}
		case folder && path.Clean(s) != ".":
			starts = append(starts, s)
			if t.isStart = isPath || strings.ContainsAny(s, "/.~$"); t.isStart { // "main" in {"base": "main"} is not a folder
				r.startCount++
			}
		}
	}
	for _, start := range starts {
		for _, base := range r.bases {
			r.addBase(path.Join(base, start))
		}
	}
}

func (r *reader) addBase(base string) {
	if len(r.bases) <= maxBases && !slices.Contains(r.bases, base) {
		r.bases = append(r.bases, base)
	}
}

// object reads the members of an object up to the closing brace. The parent is the member that contains the object, or
// nil for the arguments themselves. If rules spell a member's name differently, the member is stored under the spelling
// in the rules.
func (r *reader) object(parent *member) (types.RecordMap, error) {
	members, top := types.RecordMap{}, parent == nil
	if top {
		parent = &member{}
	}
	uses := &r.f.view.uses
	seen := map[string]bool{}
	for r.d.PeekKind() != '}' {
		token, err := r.d.ReadToken()
		if err != nil {
			return nil, errUnreadable
		}
		name := token.String()
		if r.nameBytes += len(name); r.nameBytes > maxNameBytes {
			return nil, errLongNames
		}
		folded, m := fold(name), newMember(name, parent)
		spellings := uses.members[folded]
		if seen[folded] && (len(spellings) > 0 || len(uses.pathOf[folded]) > 0 || placeWords.any(m.words)) {
			return nil, fmt.Errorf("an object contains the argument %s in two spellings; send only one of them", quote(name))
		}
		seen[folded] = true
		if top {
			r.top = text{
				isRead: uses.wholeArguments || len(uses.arguments[folded]) > 0,
				pathOf: r.f.namesInRules(name, uses.pathOf[folded]),
			}
			if uses.wholePathOf && len(r.top.pathOf) == 0 {
				r.top.pathOf = []string{name}
			}
			if !r.isNeeded() {
				if err := r.d.SkipValue(); err != nil {
					return nil, errUnreadable
				}
				continue
			}
		}
		// A name can itself be a path or a database, as in {"files": {"/etc/passwd": "…"}} or {"databases": {"prod": {}}}.
		if strings.ContainsAny(name, `/\%:~.`) || databaseWords.any(parent.words) {
			r.note(text{text: name, member: *parent, isName: true})
		}
		value, err := r.value(m)
		if err != nil {
			return nil, err
		}
		if value == nil || top && !r.top.isRead {
			continue
		}
		for _, spelling := range r.f.namesInRules(name, spellings) {
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

// namesInRules returns the names under which rules see a member. These are the spellings in the rules. If asSent is
// set, the only result is the name that the client sent.
func (f *facts) namesInRules(name string, spellings []string) []string {
	if len(spellings) == 0 || len(spellings) == 1 && spellings[0] == name {
		return spellings
	}
	if !f.asSent {
		f.renamed = true
		return spellings
	}
	return []string{name}
}

// isNeeded reports whether rules can depend on the current top-level argument.
func (r *reader) isNeeded() bool {
	return r.top.isRead || len(r.top.pathOf) > 0 || r.f.view.uses.has(placeParts) || r.forBases
}

func (r *reader) note(t text) {
	t.isRead, t.pathOf = r.top.isRead, r.top.pathOf
	r.texts = append(r.texts, t)
}

// value reads one JSON value. It returns nil for null.
func (r *reader) value(m *member) (types.Value, error) {
	if r.values++; r.values > maxValues {
		return nil, errTooMuch
	}
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	t, err := r.d.ReadToken()
	if err != nil {
		return nil, errUnreadable
	}
	if kind := t.Kind(); kind != '"' && kind != 'n' && r.top.isRead && r.f.view.uses.single[fold(m.key)] {
		return nil, &flawError{notOneText, "the argument " + quote(m.key)}
	}
	switch t.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return types.Boolean(t.Bool()), nil
	case '"':
		s := t.String()
		if r.textBytes += len(s); r.textBytes > maxTextBytes {
			return nil, errLongTexts
		}
		r.note(text{text: s, member: *m})
		return types.String(s), nil
	case '0':
		n := convertNumber(t.String())
		if whole, ok := n.(types.Long); ok {
			return n, r.checkNumber(m, int64(whole))
		}
		return n, nil
	case '[':
		var elements []types.Value
		for r.d.PeekKind() != ']' {
			one, err := r.value(m)
			if err != nil {
				return nil, err
			}
			if one == nil {
				one = nullElement
			}
			_, isPlace := r.f.view.uses.asPlace[fold(m.key)]
			if _, nested := one.(types.Set); nested && isPlace && r.top.isRead {
				return nil, &flawError{notOneText, "an element of the argument " + quote(m.key)}
			}
			if elements = append(elements, one); len(elements) > maxElements {
				return nil, errTooMuch
			}
		}
		_, err := r.d.ReadToken()
		return types.NewSet(elements...), err
	}
	members, err := r.object(m)
	return types.NewRecord(members), err
}

var nullElement = types.NewRecord(types.RecordMap{"null": types.True})

// checkNumber checks an integer in the arguments. If the argument name declares a host, integers that can be an address
// are refused. Old resolvers accept integers as IPv4 addresses, and treat 0 as this machine. Integers from 1 to 1<<24-1
// are not usable addresses and are allowed.
func (r *reader) checkNumber(m *member, n int64) error {
	uses, words := &r.f.view.uses, m.words
	if (uses.has(partHosts) || r.top.isRead) && !m.inherited && (hostWords.any(words) || perhapsHosts.any(words)) &&
		(n == 0 || n >= 1<<24 && n < 1<<32) {
		return &flawError{oddAddress, "the argument " + quote(m.key)}
	}
	// Only a name that is in databaseWords as a whole declares a database. A number in db_timeout, for example, is not
	// a database name.
	if uses.has(partDatabases) && databaseWords[fold(m.key)] {
		r.f.addDatabase(strconv.FormatInt(n, 10))
	}
	return nil
}

// judge checks a string that can be a path, host or database. It returns an error if the spelling is not canonical.
// Otherwise it records the paths, hosts and databases in the string.
func (r *reader) judge(t *text) error {
	uses, words := &r.f.view.uses, t.words
	found := r.checkPath(t, words)
	if found.what == "" {
		found = r.checkHost(t, words)
	}
	if found.what == "" && uses.has(partDatabases) && (!t.isName || databaseWords.any(words)) {
		found = r.f.addDatabases(words, t.text)
	}
	switch {
	case r.f.folders > maxFolders || len(r.f.databases) > maxElements:
		return errTooMuch
	case found.what == "":
		return nil
	case t.isName:
		return &flawError{found, "the name of an argument"}
	}
	return &flawError{found, "the argument " + quote(t.key)}
}

// checkPath checks and records a string if it can be a path. The argument's name, the rules or the form of the string
// decide whether it can be a path.
func (r *reader) checkPath(t *text, words []string) flaw {
	uses, s := &r.f.view.uses, t.text
	if t.inherited && !strings.ContainsAny(s, `/\`) { // the string is only a name, as in {"file": {"name": "report"}}
		words = nil
	}
	perhaps := perhapsPaths.any(words) && !pathWords.any(words)
	named := pathWords.any(words) || perhapsPaths.any(words)
	isURL, place := uses.asPlace[fold(t.key)]
	compared := t.isRead && !t.isName && (place || named)
	over := (len(t.pathOf) > 0 || named && uses.has(partPaths)) && (!t.isName || strings.ContainsAny(s, `/\~`))
	switch {
	case !compared && !over && !uses.has(partPaths):
		return flaw{}
	case !compared && !over:
		return r.f.paths.addLooks(s, r.bases)
	}
	if compared && uses.beyondASCII && !norm.NFC.IsNormalString(s) {
		return flaw{"has characters that Unicode composes (NFC)", "send the text in NFC"}
	}
	into := []*places{&r.f.paths}
	for _, name := range t.pathOf {
		if r.f.pathOf[name] == nil {
			r.f.pathOf[name] = &places{count: &r.f.folders}
		}
		into = append(into, r.f.pathOf[name])
	}
	each := func(take func(p *places)) {
		for _, p := range into {
			take(p)
		}
	}
	if startsURL(s) && !fileURL.MatchString(s) && !strings.HasPrefix(s, "//") {
		each(func(p *places) {
			p.addUnknown()
			p.addOtherURL(s)
		})
		_, f := urlFlaw(s, compared)
		return f
	}
	var f flaw
	if compared && isURL && fileURL.MatchString(s) {
		each(func(p *places) { f = p.addFileURL(s) })
		return f
	}
	if f := pathFlaw(s); f.what != "" {
		return f
	}
	relative := s != "" && s[0] != '/' && !isDrive(s)
	single := perhaps && len(t.pathOf) == 0 && !strings.Contains(s, "/")
	switch {
	case relative && compared && r.hasAbsolute, relative && over && !r.hasFolder && !single,
		relative && (r.startCount > 1 || r.startCount == 1 && !t.isStart):
		return relativePath
	case relative && over && strings.ContainsAny(s, ",;|"):
		return flaw{"is a relative path that contains a list separator", "send a list of absolute paths"}
	case s == "":
		each((*places).addUnknown)
		return flaw{}
	}
	each(func(p *places) { f = p.addPath(s, r.bases) })
	return f
}

// checkHost checks and records a string if it can be a URL or host. The argument's name or the form of the string
// decides whether it can be a URL or host.
func (r *reader) checkHost(t *text, words []string) flaw {
	uses, s := &r.f.view.uses, t.text
	strict := hostWords.any(words) && !t.inherited
	perhaps := !strict && (hostWords.any(words) || perhapsHosts.any(words))
	named := perhaps && !t.isName || strict && (!t.isName || strings.ContainsAny(s, ".:/"))
	hosts := uses.has(partHosts)
	switch {
	case !hosts && !(t.isRead && named):
		return flaw{}
	case !named:
		return r.f.hosts.addURLByLooks(s)
	}
	single := !strings.ContainsAny(s, `.:/\[%@`)
	switch {
	case perhaps && isProse(s):
		r.f.hosts.addUnknown() // the string can be a postal address
		return flaw{}
	case strings.TrimSpace(s) != s || strings.ContainsFunc(s, unicode.IsControl):
		return flaw{"has a space around it or a control character", "leave that character out"}
	case perhaps && single && isASCII(s):
		r.f.hosts.addHost(strings.ToLower(s))
		return flaw{}
	case fileURL.MatchString(s):
		r.f.hosts.addUnknown()
		return new(places).addFileURL(s)
	case s == "" || s[0] == '/' && !strings.HasPrefix(s, "//"):
		r.f.hosts.addUnknown()
		return pathFlaw(s)
	case opaqueURL.MatchString(s) && !startsURL(s):
		r.f.hosts.addUnknown() // mailto:, data: and similar URLs have no host
		return disguiseFlaw(s, true)
	}
	host, f := hostFlaw(s, "")
	if startsURL(s) {
		host, f = urlFlaw(s, t.isRead)
	} else if t.isRead && f.what == "" && host != s {
		f = flaw{"has a port or brackets", "send the host alone"}
	}
	if f.what == "" {
		r.f.hosts.addHost(host)
	}
	return f
}

// opaqueURL matches a URL whose scheme has no host, such as mailto. After other schemes, as in url:evil.com, some
// programs expect a host.
var opaqueURL = regexp.MustCompile(`^(?:mailto|data|tel|urn|about):[^0-9/]`)

// isProse reports whether a string has several words and none of them is a URL or a host. A word without a dot or colon
// is not treated as a host. An abbreviation such as P.O. is not treated as a host either.
func isProse(s string) bool {
	words := strings.Fields(s)
	return len(words) > 1 && !slices.ContainsFunc(words, func(word string) bool {
		word = strings.ToLower(strings.Trim(word, quoteMarks+"()[],;."))
		name, _ := cutAny(word, "/?#")
		host, f := hostFlaw(name, "")
		_, err := netip.ParseAddr(host)
		return startsURL(word) || f.what == "" && strings.ContainsAny(name, ".:") &&
			(err == nil || len(host) == 1 || host[len(host)-2] != '.')
	})
}

// convertNumber converts a JSON number to Cedar. It checks the length and the exponent first, because a short string
// such as 1e999999999 can stand for a huge number.
func convertNumber(lexeme string) types.Value {
	odd := types.NewRecord(types.RecordMap{"number": types.String(lexeme)})
	if len(lexeme) > 64 {
		return odd
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(lexeme), "e")
	switch {
	case strings.Trim(mantissa, "-0.") == "":
		return types.Long(0)
	case len(strings.TrimLeft(exponent, "+-0")) > 2:
		return odd
	}
	exact, _ := new(big.Rat).SetString(lexeme) // SetString accepts every JSON number
	if exact.IsInt() && exact.Num().IsInt64() {
		return types.Long(exact.Num().Int64())
	}
	scaled := new(big.Rat).Mul(exact, big.NewRat(10_000, 1))
	if exact.IsInt() || !scaled.IsInt() || !scaled.Num().IsInt64() {
		return odd
	}
	d, err := types.NewDecimal(scaled.Num().Int64(), -4)
	if err != nil {
		return odd
	}
	return d
}
