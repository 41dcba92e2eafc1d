package secret

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// Echo finds stored credentials and parts of them in the answers of a host that received the credentials. A host can
// truncate an echo, so Echo finds every part of six bytes or more. It ignores letter case. It finds parts as plain
// text, in hex, in base64 at each alignment, and behind backslash or percent escapes.
//
// The work grows linearly with the text and does not depend on the number of credentials: each byte of the text and of
// its decoded views needs three lookups.
type Echo struct {
	known *Known
	parts map[uint64]struct{}
	// filter has a bit for the hash of each part. It makes the search fast, because a part ends at very few offsets of
	// a text.
	filter [1 << 10]uint64
}

const (
	// partSize is the length of a part in bytes.
	partSize = minKnown
	// part64Size is the number of base64 characters that a part fully determines at each alignment.
	part64Size = 7
	// maxEscaped is the length of a part in the longest encoding: each byte is a percent escape, and each character of
	// the percent escape is a \u escape.
	maxEscaped = partSize * 18
)

// NewEcho returns a finder for the credentials in known and for parts of the values. If a value is a JSON object, the
// finder looks for parts of the strings inside it, at any depth. It ignores the object's member names and all values
// that are not strings. It also ignores public strings, because answers contain the same text in harmless places.
// Public strings are the type of the credential, addresses (a URL without a credential, a host name, an e-mail address)
// and identifiers (the field is named id or ends in _id or Id). A string is not public if the name of its field
// suggests a secret. The finder also ignores strings that a header cannot contain.
func NewEcho(known *Known, values []Value) *Echo {
	e := &Echo{known: known, parts: map[uint64]struct{}{}}
	for _, v := range values {
		secrets, object := nestedStrings(v.Secret, func(name, s string) bool { return !public(name, s) })
		if !object {
			secrets = []string{v.Secret}
		}
		for _, s := range secrets {
			if len(s) < partSize || strings.ContainsAny(s, "\r\n\x00") {
				continue
			}
			if from := publicPrefix(s) - partSize + 1; from > 0 && len(s)-from >= partSize {
				s = s[from:]
			}
			e.addParts(s)
		}
	}
	return e
}

// public reports whether a string in a JSON credential is public: see [NewEcho].
func public(name, s string) bool {
	if secretlike.Name(name) {
		return false
	}
	return name == "type" || identifierName.MatchString(name) || address.MatchString(s) || secretlike.PlainURL(s)
}

var (
	identifierName = regexp.MustCompile(`^(?i:id)$|_(?i:id)$|[a-z]Id$`)
	address        = regexp.MustCompile(`^([\w.+-]+@)?([a-z0-9-]+\.)+[a-z]{2,}$`)
)

// publicPrefix returns the length of a secret's public prefix, which all secrets of the same kind share: a prefix such
// as "sk_live_", the scheme of a URL, or the header of a JSON Web Token. Answers contain such prefixes in harmless
// places.
func publicPrefix(s string) (n int) {
	for _, f := range Standard().formats {
		if prefix := f.parts[0].text; len(prefix) <= len(s) && strings.EqualFold(s[:len(prefix)], prefix) {
			n = max(n, len(prefix))
		}
	}
	if scheme, _, ok := strings.Cut(s, "://"); ok {
		n = max(n, len(scheme)+len("://"))
	}
	if header, _, ok := strings.Cut(s, ".eyJ"); ok && strings.HasPrefix(header, "eyJ") {
		n = max(n, len(header)+len(".eyJ"))
	}
	return n
}

func (e *Echo) addParts(s string) {
	var w windows
	for i := range len(s) {
		if w.push(s[i]); i+1 >= partSize {
			e.add(w.plain())
		}
	}
	for shift := range 3 {
		var w windows
		for i, c := range []byte(encodeAligned(base64.RawStdEncoding, s, shift)) {
			if w.push(c); i+1 >= part64Size {
				e.add(w.base64())
			}
		}
	}
}

func (e *Echo) add(part uint64) {
	e.parts[part] = struct{}{}
	word, bit := slot(part)
	e.filter[word] |= bit
}

func (e *Echo) has(part uint64) bool {
	if word, bit := slot(part); e.filter[word]&bit == 0 {
		return false
	}
	_, ok := e.parts[part]
	return ok
}

func slot(part uint64) (word, bit uint64) {
	hash := part * 0x9e3779b97f4a7c15
	return hash >> 54, 1 << (hash >> 48 & 63)
}

// windows contains the last bytes of a text as plain text, as base64 and as hex.
type windows struct {
	folded  uint64 // the last bytes
	letters uint64 // the last base64 characters
	digits  uint64 // the last hex digits

	length64, length16 int // how many of the last bytes are base64 characters, and how many are hex digits
}

func (w *windows) push(c byte) {
	w.folded = w.folded<<8 | uint64(foldPlain[c])
	if b := fold64[c]; b != 0 {
		w.letters = w.letters<<8 | uint64(b)
		w.length64++
	} else {
		w.length64 = 0
	}
	if hexes[c] {
		w.digits = w.digits<<4 | uint64(c&0xf+c>>6*9)
		w.length16++
	} else {
		w.length16 = 0
	}
}

// plain, base64 and hex return the key of the part that ends at the current byte. The key of six bytes has 48 bits. The
// key of seven base64 characters has 56 bits and an additional bit, so that it differs from all other keys.
func (w *windows) plain() uint64  { return w.folded & (1<<48 - 1) }
func (w *windows) base64() uint64 { return w.letters&(1<<56-1) | 1<<63 }

func (w *windows) hex() (part uint64) {
	for at := 40; at >= 0; at -= 8 {
		part = part<<8 | uint64(foldPlain[byte(w.digits>>at)])
	}
	return part
}

// foldPlain maps bytes to lower case, and the plus signs of a URL's query to spaces. fold64 maps base64 characters to
// lower case, and maps the characters of both base64 alphabets to the same values. It maps all other bytes to 0.
var foldPlain, fold64 = func() (plain, letters [256]byte) {
	for i := range plain {
		plain[i] = lower(byte(i))
		if base64s[i] {
			letters[i] = lower(byte(i))
		}
	}
	plain['+'], letters['-'], letters['_'] = ' ', '+', '/'
	return plain, letters
}()

// findParts appends a match to dst for each part in text.
func (e *Echo) findParts(text []byte, dst []Match) []Match {
	var w windows
	match := func(end, size int) {
		start := end - size
		if n := len(dst); n > 0 && dst[n-1].Start <= start && start < dst[n-1].End {
			dst[n-1].End = max(dst[n-1].End, end) // extend the last match instead of adding another one
			return
		}
		dst = append(dst, Match{Start: start, End: end})
	}
	for i, c := range text {
		w.push(c)
		if i+1 >= partSize && e.has(w.plain()) {
			match(i+1, partSize)
		}
		if w.length64 >= part64Size && e.has(w.base64()) {
			match(i+1, part64Size)
		}
		if w.length16 >= 2*partSize && e.has(w.hex()) {
			match(i+1, 2*partSize)
		}
	}
	return dst
}

// Find returns the positions of credentials and parts in text as pairs of offsets. The pairs are in order and do not
// overlap.
func (e *Echo) Find(text []byte) (found [][2]int) {
	matches := e.findIn(text)
	var views []*view.View
	for _, decode := range []func(*view.View, []byte) bool{(*view.View).Unescape, (*view.View).Unpercent} {
		v := new(view.View)
		if !decode(v, text) {
			continue
		}
		views, text = append(views, v), v.Text
		decoded := e.findIn(text)
		for _, v := range slices.Backward(views) {
			mapBack(v, decoded)
		}
		matches = append(matches, decoded...)
	}
	for _, m := range Merge(matches) {
		found = append(found, [2]int{m.Start, m.End})
	}
	return found
}

func (e *Echo) findIn(text []byte) []Match {
	matches := e.findParts(text, nil)
	if e.known != nil {
		matches = e.known.findValues(text, new(literal.Hits), matches)
	}
	return matches
}

// Longest returns the maximum length of an encoded credential or part.
func (e *Echo) Longest() int { return max(e.known.Longest(), maxEscaped) }

// InLine reports whether every encoding of every credential and part fits on one line.
func (e *Echo) InLine() bool { return e.known.InLine() }
