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

// edit is a range of a JSON text to redact. Edits are in order and do not overlap.
type edit struct {
	kind       Kind
	rule       string
	start, end int
}

// lenient accepts duplicate keys and invalid UTF-8, because the guard must check every
// text that another parser may accept.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// scalar is a string, a number, a literal or the name of a member.
type scalar struct {
	start, end int
	kind       jsontext.Kind
	name       bool // it is the name of a member
}

// frame is one level of the position of a walk.
type frame struct {
	object bool
	index  int    // of the value in a list
	member string // the name of the member, after redaction
}

// walk goes through the scalars of a document.
type walk struct {
	path []frame
}

// member returns the name of the innermost member at the position.
func (w *walk) member() string {
	for i := len(w.path) - 1; i >= 0; i-- {
		if w.path[i].object {
			return w.path[i].member
		}
	}
	return ""
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer returns the JSON pointer to the position, without the name that is being read.
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

// scalars calls do for every scalar of a document, in order.
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

// unquote decodes a JSON string.
func unquote(v []byte) string {
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil && len(b) == 0 {
		return ""
	}
	return string(b)
}

// rewrite makes the edits in a document and returns them as findings. The result is JSON.
// blob, if set, redacts inside of base64, and returns nil if it cannot.
func rewrite(doc []byte, edits []edit, blob func(text []byte) []byte) ([]byte, []Finding, error) {
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
		if m := w.member(); blob != nil && !s.name && (m == "blob" || m == "data") {
			if text := blob(doc[s.start+1 : s.end-1]); text != nil {
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
			a, b := max(e.start, s.start+1), min(e.end, s.end-1)
			if e.start >= s.end || a >= b {
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
			// Two redacted names must stay different.
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
		return nil, findings, errors.New("the redacted text is not JSON")
	}
	return out, findings, nil
}

func valid(doc []byte) bool { return jsontext.Value(doc).IsValid(lenient) }
