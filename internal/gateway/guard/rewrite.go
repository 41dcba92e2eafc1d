package guard

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// edit is a range of a JSON text to redact. Lists of edits are sorted and do not overlap.
type edit struct {
	kind       Kind
	rule       string
	start, end int
}

// lenient makes the parser accept duplicate keys and invalid UTF-8. Other parsers accept such text, so the guard must
// be able to check it.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// scalar is the position of a string, a number, a literal or a member name.
type scalar struct {
	start, end int
	kind       jsontext.Kind
	name       bool // set if the scalar is the name of a member
}

// frame is an array or object that contains the current position of a walk.
type frame struct {
	object bool
	index  int    // the index of the current element in the array
	member string // the name of the current member of the object, after redaction
}

// walk is the path to the current position in a document.
type walk struct {
	path []frame
}

// member returns the name of the innermost member that contains the current position.
func (w *walk) member() string {
	for i := len(w.path) - 1; i >= 0; i-- {
		if w.path[i].object {
			return w.path[i].member
		}
	}
	return ""
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer returns a JSON pointer to the current position. For the name of a member, it returns a pointer to the
// object.
func (w *walk) pointer(name bool) string {
	var b strings.Builder
	path := w.path
	if name {
		path = path[:len(path)-1]
	}
	for _, f := range path {
		b.WriteByte('/')
		if f.object {
			b.WriteString(pointerEscapes.Replace(f.member))
		} else {
			b.WriteString(strconv.Itoa(f.index))
		}
	}
	return b.String()
}

// scalars calls a callback for every scalar in a document, in order.
func (w *walk) scalars(doc []byte, do func(s scalar)) error {
	d := jsontext.NewDecoder(bytes.NewReader(doc), lenient)
	for {
		kind := d.PeekKind()
		within, n := d.StackIndex(d.StackDepth())
		name := within == '{' && n%2 == 0
		if within == '[' && kind != ']' {
			w.path[len(w.path)-1].index = int(n)
		}
		switch kind {
		case '{', '[', '}', ']':
			if _, err := d.ReadToken(); err != nil {
				return err
			}
			if kind == '{' || kind == '[' {
				w.path = append(w.path, frame{object: kind == '{'})
			} else {
				w.path = w.path[:len(w.path)-1]
			}
			continue
		}
		v, err := d.ReadValue()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s := scalar{end: int(d.InputOffset()), kind: kind, name: name}
		s.start = s.end - len(v)
		if name {
			w.path[len(w.path)-1].member = unquote(v)
		}
		do(s)
	}
}

func unquote(v []byte) string {
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil && len(b) == 0 {
		return ""
	}
	return string(b)
}

// rewrite replaces ranges of a document with placeholders. It returns the new document and a finding for each
// replacement. If the callback redactBase64 is not nil, rewrite calls it for base64 text. The callback returns the
// redacted text, or nil if it finds no secret. rewrite returns an error if the old or the new document is not valid
// JSON.
func rewrite(doc []byte, edits []edit, redactBase64 func(text []byte) []byte) ([]byte, []Finding, error) {
	var (
		findings []Finding
		w        walk
		out      = make([]byte, 0, len(doc)+64)
		done     = 0
		names    = map[string]int{}
	)
	err := w.scalars(doc, func(s scalar) {
		for len(edits) > 0 && edits[0].end <= s.start {
			edits = edits[1:]
		}
		if len(edits) == 0 || edits[0].start >= s.end || s.kind != '"' && s.kind != '0' {
			return
		}
		note := func(e edit) {
			findings = append(findings, Finding{Kind: e.kind, Rule: e.rule, Pointer: w.pointer(s.name)})
		}
		if s.kind == '0' {
			note(edits[0])
			out = append(append(out, doc[done:s.start]...), `"`+placeholder(edits[0].kind, edits[0].rule)+`"`...)
			done = s.end
			return
		}
		if m := w.member(); redactBase64 != nil && !s.name && (m == "blob" || m == "data") {
			if text := redactBase64(doc[s.start+1 : s.end-1]); text != nil {
				note(edits[0])
				out = append(append(out, doc[done:s.start+1]...), text...)
				done = s.end - 1
				return
			}
		}
		out = append(out, doc[done:s.start]...)
		done = s.start
		at := len(out)
		for _, e := range edits {
			if e.start >= s.end {
				break
			}
			a, b := max(e.start, s.start+1), min(e.end, s.end-1)
			if a >= b {
				continue
			}
			note(e)
			out = append(append(out, doc[done:a]...), placeholder(e.kind, e.rule)...)
			done = b
		}
		edited := done > s.start
		out = append(out, doc[done:s.end]...)
		done = s.end
		if edited && s.name {
			// Append a number to a redacted name that would otherwise be a duplicate.
			text := string(out[at:])
			if names[text]++; names[text] > 1 {
				out = append(strconv.AppendInt(append(out[:len(out)-1], ' '), int64(names[text]), 10), '"')
			}
			w.path[len(w.path)-1].member = unquote(out[at:])
		}
	})
	if err != nil {
		return nil, findings, err
	}
	out = append(out, doc[done:]...)
	if !valid(out) {
		return nil, findings, errors.New("the redacted text is not valid JSON")
	}
	return out, findings, nil
}

func valid(doc []byte) bool { return jsontext.Value(doc).IsValid(lenient) }
