package guard

import (
	"bytes"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// A client joins the text items of a result, so a secret can be split across several items. Output.scan does not find
// such a secret, so the code in this file scans the joined text. If Output.scan found the beginning of a token at the
// end of a string, the code also joins all values, because the rest of the token can be in another value.

// edgeBytes is the number of bytes that are kept at each end of a long text. No token is longer than edgeBytes.
const edgeBytes = 4 << 10

// gap replaces the middle of a long text. No secret contains gap.
const gap = "\n\xff\n"

// piece is a part of a text item inside the joined text.
type piece struct {
	start, end int // start and end are offsets in the joined text
	base       int // the offset of the text item in the document
	from       int // the offset of the piece in the text item
	escaped    *view.View
}

// findSplit finds secrets that are split across several text items of a document. If cut is set, it also finds secrets
// that are split across other values. It returns an edit for each part of a secret.
func (o *Output) findSplit(doc []byte, cut bool) ([]edit, error) {
	if severalTexts(doc) {
		if edits, err := o.findJoined(doc, "", func(member string) bool { return member == "text" }); err != nil || len(edits) > 0 {
			return edits, err
		}
	}
	if !cut {
		return nil, nil
	}
	// Join the values with line breaks. A token can continue after a line break, but it cannot begin in the middle of a
	// word, so the values must not be joined directly.
	return o.findJoined(doc, "\n", func(string) bool { return true })
}

// findJoined finds secrets that are split across the values of certain members, joined with a separator.
func (o *Output) findJoined(doc []byte, separator string, take func(member string) bool) ([]edit, error) {
	var joined []byte
	var pieces []piece
	var w walk
	err := w.scalars(doc, func(s scalar) {
		if s.kind != '"' || s.name || !take(w.member()) {
			return
		}
		text := doc[s.start+1 : s.end-1]
		p := piece{base: s.start + 1}
		if v := new(view.View); v.JSON(text) {
			text, p.escaped = v.Text, v
		}
		if len(joined) > 0 {
			joined = append(joined, separator...)
		}
		add := func(from, to int) {
			p.from, p.start = from, len(joined)
			joined = append(joined, text[from:to]...)
			p.end = len(joined)
			pieces = append(pieces, p)
		}
		if len(text) <= 2*edgeBytes {
			add(0, len(text))
			return
		}
		add(0, edgeBytes)
		joined = append(joined, gap...)
		add(len(text)-edgeBytes, len(text))
	})
	if err != nil || len(pieces) < 2 {
		return nil, err
	}
	var edits []edit
	for _, m := range secret.Standard().Scan(joined, o.known, nil) {
		var parts []edit
		for len(pieces) > 0 && pieces[0].end <= m.Start {
			pieces = pieces[1:]
		}
		for _, p := range pieces {
			if p.start >= m.End {
				break
			}
			if a, b := max(m.Start, p.start), min(m.End, p.end); a < b {
				from, to := p.from+a-p.start, p.from+b-p.start
				if p.escaped != nil {
					from, to = p.escaped.Range(from, to)
				}
				parts = append(parts, edit{Secret, m.Rule, p.base + from, p.base + to})
			}
		}
		if len(parts) > 1 {
			edits = append(edits, parts...)
		}
	}
	return edits, nil
}

// severalTexts reports whether a document may have more than one text item. The check is fast and never misses a second
// item, but it can return true for a document with only one.
func severalTexts(doc []byte) bool {
	n := 0
	for rest := doc; ; {
		i := bytes.Index(rest, []byte(`"text"`))
		if i < 0 {
			break
		}
		rest = bytes.TrimLeft(rest[i+6:], " \t\r\n")
		if len(rest) > 0 && rest[0] == ':' {
			if n++; n > 1 {
				return true
			}
		}
	}
	// The name "text" can also contain escapes, such as \u0074 for t.
	return bytes.Contains(doc, []byte(`\u00`)) && bytes.Contains(doc, []byte(`":`))
}
