package flow

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// shape is a result, split into fields and running text.
type shape struct {
	atoms  []uint64 // the keys of the fields
	values [][]byte // the fields
	texts  [][]byte // a nil text separates the objects of a list
	cut    bool     // set if the beginning of a long text is missing; the rest has no fields, because its form is unknown
}

// The limits of a field. A value beyond them is running text.
const (
	maxAtom       = 80
	maxAtomTokens = 5
	maxAtoms      = 20_000
	maxNested     = 64
)

// textNames contains the names of fields whose content is running text even if it is short.
var textNames = map[string]bool{}

func init() {
	for name := range strings.FieldsSeq(`body content contents subject title description message messages text comment comments
note notes summary review reviews location snippet bio markdown html excerpt caption headline abstract readme memo reason
instructions prompt log output stdout stderr answer reply about details detail transcript remark remarks topic label purpose
reference`) {
		textNames[name] = true
	}
}

// split splits a result. If opaque is set, one author may have written the whole result, such as a file or a page, so
// its fields are not trusted. If list is set, the result is a list of objects. If authored is set, lines and tables in
// it are running text. The caller must free the result of split.
func split(result []byte, opaque, list, authored bool) *splitter {
	s := splitters.Get().(*splitter)
	var content, structured, meta jsontext.Value
	failed := false // an error message contains no data of the user
	rawjson.Members(result, func(name string, v jsontext.Value) {
		switch {
		case name == "content" && v[0] == '[':
			content = v
		case name == "structuredContent":
			structured = v
		case name == "_meta":
			meta = v
		case name == "isError":
			failed = string(v) == "true"
		default: // for example the questions in a result that asks for input
			s.sentences(v, 0)
		}
	})
	s.opaque, s.list, s.authored = opaque || failed || distrusted(meta), list, authored
	if structured != nil {
		s.structured(structured)
	}
	rawjson.Elements(content, func(item jsontext.Value) {
		s.texts = append(s.texts, nil)
		s.content(item)
	})
	s.sentences(meta, 0)
	for _, name := range s.addressed {
		s.leaf(name, s.spoken)
	}
	if !s.hasText() && len(s.atoms) == 0 {
		s.texts = append(s.texts, result) // not an MCP result, so clients may show any part
	}
	return s
}

// structured splits structured content. If the only member is a string, structured reads the string as a document,
// because server frameworks wrap plain text in one member, and the text of many tools is JSON.
func (s *splitter) structured(content []byte) {
	only, n := []byte(nil), 0
	rawjson.Members(content, func(_ string, v jsontext.Value) { only, n = v, n+1 })
	if text, ok := s.text(only); ok && n == 1 {
		s.document(text)
		return
	}
	s.json(content, false, 0)
}

// distrusted reports whether labels in the metadata of a result mark its content as untrusted. ambit adds such a label
// to a result that contains an injection. A server can lower the trust in its own results, but cannot raise it.
func distrusted(meta jsontext.Value) bool {
	if len(meta) == 0 {
		return false
	}
	if rawjson.Lookup(meta, call.Untrusted) != nil {
		return true
	}
	for _, path := range [][]string{{"ifc", "integrity"}, {"integrity"}} {
		if label, ok := rawjson.Text(rawjson.Lookup(meta, path...)); ok && label != "trusted" && label != "high" {
			return true
		}
	}
	return string(rawjson.Lookup(meta, "untrusted")) == "true"
}

// hasText reports whether a result has running text.
func (s *shape) hasText() bool {
	return slices.ContainsFunc(s.texts, func(text []byte) bool { return len(text) > 0 })
}

type splitter struct {
	shape
	opaque bool
	// authored is set if one author wrote the text of the result.
	authored bool
	list     bool            // whether the result is a list of objects
	names    map[string]bool // names caches for each quoted name whether its content is running text
	// addressed contains the names that are addresses. spoken is set if any other name is running text.
	addressed [][]byte
	spoken    bool
	buffer    []byte // holds the unescaped values of strings
	view      view.View
}

// splitters keeps unused splitters, because their buffers can be used for the next result.
var splitters = sync.Pool{New: func() any { return &splitter{names: map[string]bool{}} }}

// free returns a splitter to the pool. The texts in it are not valid any more.
func (s *splitter) free() {
	if cap(s.buffer)+cap(s.view.Text) > maxKept || len(s.names) > maxNames {
		return
	}
	clear(s.texts)
	clear(s.values)
	clear(s.names)
	clear(s.addressed)
	s.addressed, s.spoken, s.cut = s.addressed[:0], false, false
	s.atoms, s.values, s.texts, s.buffer = s.atoms[:0], s.values[:0], s.texts[:0], s.buffer[:0]
	splitters.Put(s)
}

const maxNames = 1000

// text returns the value of a JSON string, which is valid until the splitter is freed.
func (s *splitter) text(raw []byte) (value []byte, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return nil, false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], true
	}
	raw = s.end(raw)
	from := len(s.buffer)
	long, err := jsontext.AppendUnquote(s.buffer, raw)
	if err != nil {
		return nil, false
	}
	s.buffer = long
	return long[from:], true
}

// end returns a JSON string, or only its end if the string is much longer than the text that the memory keeps. Without
// that, the decoded text would need as much memory as the result.
func (s *splitter) end(raw []byte) []byte {
	if len(raw) <= 4*maxText {
		return raw
	}
	tail := raw[len(raw)-maxText:]
	space := bytes.IndexByte(tail, ' ') // behind a space, no escape is divided
	if space < 0 {
		return raw
	}
	s.cut = true
	return slices.Concat([]byte{'"'}, tail[space+1:])
}

// content splits one item of a result. It covers every member, because clients may show any member to the model.
func (s *splitter) content(item []byte) {
	if item[0] != '{' {
		s.sentences(item, 0)
		return
	}
	w := rawjson.Walk(item)
	for quoted, v, ok := w.Member(); ok; quoted, v, ok = w.Member() {
		name, _ := rawjson.Text(quoted)
		text, isText := s.text(v)
		switch {
		case name == "text" && isText:
			s.document(text)
		case name == "resource" && v[0] == '{':
			s.resource(v)
		case name == "data" && isText && s.bytes(text):
		case isText && name != "type" && name != "mimeType" && name != "data":
			s.leaf(text, textNames[name])
		default:
			s.sentences(v, 0)
		}
	}
}

// resource splits a resource, which is a document that a person wrote.
func (s *splitter) resource(resource []byte) {
	rawjson.Members(resource, func(name string, v jsontext.Value) {
		text, isText := s.text(v)
		switch {
		case name == "text" && isText:
			s.texts = append(s.texts, text)
		case name == "blob" && isText && s.bytes(text):
		case name == "uri" && isText:
			s.leaf(text, false)
		default:
			s.sentences(v, 0)
		}
	})
}

// bytes decodes base64. It adds the content if it is text, and ignores pictures and sounds. It returns false if the
// input is not base64.
func (s *splitter) bytes(encoded []byte) bool {
	plain, err := base64.StdEncoding.AppendDecode(nil, encoded)
	if err == nil && utf8.Valid(plain) {
		s.texts = append(s.texts, plain)
	}
	return err == nil
}

// sentences adds every string and member name in a value to the running text, unless it is only a name, a number or an
// id. Metadata contains both kinds.
func (s *splitter) sentences(value []byte, depth int) {
	switch {
	case len(value) == 0 || value[0] != '{' && value[0] != '[' && value[0] != '"':
	case depth > maxNested:
		s.texts = append(s.texts, value)
	case value[0] == '"':
		if text, ok := s.text(value); !ok || !isWord(text) {
			s.texts = append(s.texts, text)
		}
	case value[0] == '{':
		w := rawjson.Walk(value)
		for name, v, ok := w.Member(); ok; name, v, ok = w.Member() {
			s.sentences(name, depth)
			s.sentences(v, depth+1)
		}
	default:
		w := rawjson.Walk(value)
		for v, ok := w.Element(); ok; v, ok = w.Element() {
			s.sentences(v, depth+1)
		}
	}
}

// isWord reports whether a text is only a name, a number or an id. Addresses and sentences are not.
func isWord(text []byte) bool {
	c := count(text)
	return len(text) <= maxAtom && c.at+c.spaces == 0 && c.alone <= maxAlone && !bytes.Contains(text, []byte("://")) &&
		(c.digits < minAccount || len(accounts(text)) == 0)
}

// minAccount is the minimum number of digits in a value that may contain an account number.
const minAccount = 8

// maxAlone is the maximum number of characters of a single word in a script without spaces. A longer value may be a
// sentence.
const maxAlone = 12

// document splits a text. Only JSON, YAML, lines of names and values, and tables have fields.
func (s *splitter) document(text []byte) {
	trimmed := bytes.TrimSpace(text)
	switch {
	case s.opaque || s.cut:
		s.texts = append(s.texts, text)
	case len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') && rawjson.Valid(trimmed):
		s.json(trimmed, false, 0)
	case len(trimmed) > 0 && trimmed[0] == '{' && s.sequence(trimmed):
	case s.authored:
		s.leaf(text, bytes.ContainsAny(trimmed, " \t\n"))
	case s.list && s.afterHeading(trimmed):
	case bytes.ContainsAny(trimmed, "\n]}") && s.mappings(trimmed):
	case len(trimmed) <= maxYAML && (s.members(trimmed, s.list) || s.table(trimmed)):
	default:
		// In plain text, only a single word is a field.
		s.leaf(text, bytes.ContainsAny(trimmed, " \t\n"))
	}
}

// sequence splits a text of several JSON objects one after the other. Many tools return a list in this form. sequence
// returns false for any other text.
func (s *splitter) sequence(text []byte) bool {
	var objects []jsontext.Value
	d := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		v, err := d.ReadValue()
		if err == io.EOF {
			break
		}
		if err != nil || v.Kind() != '{' || len(objects) == maxAtoms {
			return false
		}
		objects = append(objects, v.Clone())
	}
	for _, v := range objects {
		s.texts = append(s.texts, nil)
		s.json(v, false, 0)
	}
	return true
}

// json splits a JSON value. If inText is set, the name of the value is one of textNames, so a short value is running
// text too.
func (s *splitter) json(value []byte, inText bool, depth int) {
	if depth > maxNested {
		s.texts = append(s.texts, value)
		return
	}
	switch value[0] {
	case '{':
		w := rawjson.Walk(value)
		for name, v, ok := w.Member(); ok; name, v, ok = w.Member() {
			if text, isText := s.text(v); isText && depth == 0 && s.list && string(name) == `"result"` && bytes.IndexByte(text, '\n') >= 0 {
				s.document(text) // some servers return their text beside a status, in the member "result"
				continue
			}
			s.json(v, s.named(name), depth+1)
		}
	case '[':
		w := rawjson.Walk(value)
		for v, ok := w.Element(); ok; v, ok = w.Element() {
			if v[0] == '{' {
				s.texts = append(s.texts, nil)
			}
			s.json(v, inText, depth+1)
		}
	case '"':
		if text, ok := s.text(value); ok {
			s.leaf(text, inText)
			return
		}
		s.texts = append(s.texts, value)
	case 't', 'f', 'n':
	default:
		s.leaf(value, inText)
	}
}

// named reports whether the content of a member is running text, judged by the member's quoted name. A name that is
// more than one word is itself added to the running text.
func (s *splitter) named(name []byte) bool {
	inText, known := s.names[string(name)]
	if !known {
		text, _ := rawjson.Text(name)
		if inText = isTextName(text); !s.name([]byte(text)) {
			s.names[string(name)] = inText
		}
	}
	return inText
}

// name adds the name of a member to the running text if it is more than a word. A name that is an address is treated as
// a value, as in a list of the users that share a file, unless other names are sentences.
func (s *splitter) name(name []byte) (isValue bool) {
	if isValue = !isWord(name); !isValue {
		return false
	}
	if bytes.ContainsAny(name, " \n") {
		s.texts, s.spoken = append(s.texts, name), true
		return true
	}
	s.addressed = append(s.addressed, name)
	return true
}

// leaf adds one value to the fields if it is short and inText is not set, and otherwise to the running text.
func (s *splitter) leaf(value []byte, inText bool) {
	if s.opaque || s.cut || inText || len(value) > maxAtom || len(s.atoms) >= maxAtoms {
		s.texts = append(s.texts, value)
		return
	}
	c := count(value)
	switch {
	case !c.isAtom(value):
	case c.at > 0 && c.other == 0, c.at == 0 && (c.separators == 0 || c.digits < minAccount), s.mailboxes(value):
		s.attest(value)
		return
	case !contains(value):
		s.attest(value)
		return
	default: // the whole value is a field, but an address inside it is not
		s.attest(value)
	}
	s.texts = append(s.texts, value)
}

// counts is the number of characters of each kind in a value.
type counts struct {
	at, digits, spaces int
	separators         int // spaces and other characters that separate values
	other              int // characters that cannot be part of an e-mail address
	high               int // bytes outside ASCII
	alone              int // bytes that may start a character of a script without spaces
}

const (
	isDigit = 1 << iota
	isSeparator
	isOther
	isSpace
)

var kinds = func() (t [256]byte) {
	for c := range 128 {
		switch c := byte(c); {
		case '0' <= c && c <= '9':
			t[c] = isDigit
		case bytes.IndexByte([]byte(" \t\r\n"), c) >= 0:
			t[c] = isSeparator | isOther | isSpace
		case bytes.IndexByte([]byte(",;<(|"), c) >= 0:
			t[c] = isSeparator | isOther
		case folded[c] == 0 && bytes.IndexByte([]byte("@._%+-"), c) < 0:
			t[c] = isOther
		}
	}
	return t
}()

func count(value []byte) (c counts) {
	for _, b := range value {
		switch k := kinds[b]; {
		case k&isDigit != 0:
			c.digits++
		case k != 0:
			c.other++
			c.separators += int(k / isSeparator & 1)
			c.spaces += int(k / isSpace & 1)
		case b == '@':
			c.at++
		case b >= 0xe0:
			c.alone++
			c.high++
		case b >= utf8.RuneSelf:
			c.high++
		}
	}
	return c
}

// isAtom reports whether a value is short enough for a field: one line with a few words.
func (c *counts) isAtom(value []byte) bool {
	if c.high == 0 && c.spaces < maxAtomTokens {
		return c.spaces == 0 || bytes.IndexByte(value, '\n') < 0
	}
	n := 0
	for range bytes.FieldsSeq(value) {
		n++
	}
	return n <= maxAtomTokens && c.alone <= maxAlone && bytes.IndexByte(value, '\n') < 0
}

// attest adds a value to the fields.
func (s *splitter) attest(value []byte) {
	s.atoms, s.values = append(s.atoms, keyOf(value, &s.view)), append(s.values, value)
}

// contains reports whether a value contains an address or an account number together with other text.
func contains(value []byte) bool {
	for _, part := range slices.Concat(addresses(value), accounts(value)) {
		if len(part) < len(bytes.TrimSpace(value)) {
			return true
		}
	}
	return false
}

// mailboxes adds the addresses in a mail header, such as "Ann Lee <ann@example.com>, bob@example.com", to the fields.
// It returns false if the value is no such list, or has a comment in parentheses, which the parser drops.
func (s *splitter) mailboxes(value []byte) bool {
	list, err := mail.ParseAddressList(string(value))
	if err != nil || bytes.IndexByte(value, '(') >= 0 ||
		slices.ContainsFunc(list, func(a *mail.Address) bool { return !isWord([]byte(strings.ReplaceAll(a.Name, " ", ""))) }) {
		return false
	}
	for _, a := range list {
		s.attest([]byte(a.Address))
	}
	return true
}

// isTextName reports whether a value with this name is running text.
func isTextName(name string) bool {
	if textNames[name] {
		return true
	}
	parts := nameParts(name)
	chosen := len(parts) > 0 && serviceNames[parts[len(parts)-1]]
	return slices.ContainsFunc(parts, func(part string) bool { return textNames[part] && !(chosen && !senderNames[part]) })
}

// senderNames contains words in the names of values that the sender of a message or payment chooses, as in reference_number.
var senderNames = map[string]bool{"reference": true, "message": true, "location": true}

// serviceNames contains last words of names, as in comment_id or html_url. The service chooses values with these names.
var serviceNames = map[string]bool{
	"id": true, "ids": true, "uid": true, "uuid": true, "url": true, "urls": true, "uri": true, "key": true, "number": true, "count": true, "size": true,
	"sha": true, "hash": true, "type": true, "status": true, "state": true, "at": true, "date": true, "time": true, "timestamp": true,
}
