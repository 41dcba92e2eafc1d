package guard

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard/deny"
	"github.com/ambit-run/ambit/internal/gateway/guard/pii"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// InputRules are the guardrails of arguments. The zero rules check nothing.
type InputRules struct {
	// Deny are expressions that no name, string or number may match.
	Deny []string
	// DenyDefaults adds the built-in patterns.
	DenyDefaults bool
	// PII are the categories of personal data to redact.
	PII []string
}

// Input checks arguments.
type Input struct {
	deny  *deny.List
	pii   *pii.Finder
	views sync.Pool
}

// NewInput compiles rules. The error reports every problem.
func NewInput(rules InputRules) (*Input, error) {
	in := &Input{}
	var patterns []deny.Pattern
	for i, p := range rules.Deny {
		patterns = append(patterns, deny.Pattern{Name: fmt.Sprintf("deny_patterns[%d]", i), Regex: p})
	}
	if rules.DenyDefaults {
		patterns = append(patterns, deny.Defaults()...)
	}
	var err error
	if len(patterns) > 0 {
		if in.deny, err = deny.Compile(patterns); err != nil {
			return nil, err
		}
	}
	if len(rules.PII) > 0 {
		if in.pii, err = pii.New(rules.PII); err != nil {
			return nil, err
		}
	}
	in.views.New = func() any { return new(scratch) }
	return in, nil
}

// TooLong refuses arguments of more than limit bytes, before they are parsed; 0 means no
// limit.
func TooLong(size int, limit int64) *call.Refusal {
	if limit <= 0 || int64(size) <= limit {
		return nil
	}
	return call.Refuse(StageIn, call.InputTooLong, "the arguments have %d bytes; at most %d are allowed", size, limit)
}

// scratch has the reusable buffers of a check.
type scratch struct {
	view  view.View
	spans []pii.Span
	edits []edit
	stack [][]byte
}

// Check checks every name, string and number of arguments. A match of a denied pattern is
// a refusal. Personal data is replaced by its category, and nothing else changes: clean
// arguments are returned as the same slice.
func (in *Input) Check(arguments jsontext.Value) (out jsontext.Value, findings []Finding, refusal *call.Refusal) {
	defer func() {
		if r := recover(); r != nil {
			out, refusal = nil, call.Refuse(StageIn, call.InputInvalid, "the arguments could not be checked")
		}
	}()
	if in.deny == nil && in.pii == nil {
		return arguments, nil, nil
	}
	s := in.views.Get().(*scratch)
	defer in.views.Put(s)
	out = arguments
	for round := range 4 {
		found, place := in.read(s, out, round == 0)
		if place.refused {
			f := Finding{Kind: Pattern, Rule: place.hit.Pattern, View: place.hit.View, Pointer: pointerAt(out, place.at)}
			as := ""
			if f.View != "" {
				as = " when read " + f.View
			}
			return nil, append(findings, f), call.Refuse(StageIn, call.DeniedPattern,
				"the arguments match a denied pattern (%s) at %q%s", f.Rule, f.Pointer, as)
		}
		if round == 0 && place.trick != "" {
			findings = append(findings, Finding{Kind: Hidden, Rule: place.trick, Pointer: pointerAt(out, place.at)})
		}
		if len(found) == 0 {
			return out, findings, nil
		}
		next, noted, err := rewrite(out, found, nil)
		findings = append(findings, noted...)
		if err != nil {
			return nil, findings, call.Refuse(StageIn, call.InputInvalid,
				"the arguments contain personal data and could not be redacted: %v", err)
		}
		out = next
	}
	return nil, findings, call.Refuse(StageIn, call.InputInvalid,
		"the arguments contain personal data that redaction does not remove")
}

// outcome is the result of a pass over the arguments, besides the redactions.
type outcome struct {
	refused bool
	hit     deny.Hit
	trick   string
	at      int
}

// read checks the scalars of a document in one pass.
func (in *Input) read(s *scratch, doc []byte, patterns bool) (edits []edit, o outcome) {
	s.edits = s.edits[:0]
	s.each(doc, func(start, end int, name bool, key []byte) bool {
		text, viewed := doc[start:end], false
		if bytes.IndexByte(text, '\\') >= 0 && s.view.JSON(text) {
			text, viewed = s.view.Text, true
		}
		if patterns && in.deny != nil {
			if hit, ok := in.deny.Find(text); ok {
				o = outcome{refused: true, hit: hit, at: start}
				return false
			}
			if o.trick == "" {
				if o.trick = view.Tricks(text); o.trick != "" {
					o.at = start
				}
			}
		}
		if in.pii == nil {
			return true
		}
		if name {
			key = nil
		}
		s.spans = in.pii.Find(text, key, s.spans[:0])
		for _, p := range s.spans {
			if viewed {
				p.Start, p.End = s.view.Range(p.Start, p.End)
			}
			s.edits = append(s.edits, edit{PII, p.Category, start + p.Start, start + p.End})
		}
		return true
	})
	return s.edits, o
}

// each calls do for every string, without its quotes, and every number of a document,
// with the name of its member. It does not validate: other code refuses invalid JSON, and
// rewriting it fails.
func (s *scratch) each(doc []byte, do func(start, end int, name bool, key []byte) bool) {
	s.stack = s.stack[:0]
	var key []byte
	for i := 0; i < len(doc); {
		switch c := doc[i]; {
		case c == '"':
			end := stringEnd(doc, i+1)
			next := end + 1
			for next < len(doc) && (doc[next] == ' ' || doc[next] == '\n' || doc[next] == '\t' || doc[next] == '\r') {
				next++
			}
			name := next < len(doc) && doc[next] == ':'
			if name {
				key = doc[i+1 : end]
			}
			if !do(i+1, end, name, key) {
				return
			}
			i = next
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(doc) && (doc[end] == '.' || doc[end] == '-' || doc[end] == '+' || doc[end]|0x20 == 'e' || '0' <= doc[end] && doc[end] <= '9') {
				end++
			}
			if !do(i, end, false, key) {
				return
			}
			i = end
		case c == '{' || c == '[':
			s.stack = append(s.stack, key)
			i++
		case c == '}' || c == ']':
			if n := len(s.stack); n > 0 {
				key, s.stack = s.stack[n-1], s.stack[:n-1]
			}
			i++
		default:
			i++
		}
	}
}

// stringEnd returns the end of the string that begins at from.
func stringEnd(doc []byte, from int) int {
	for at := from; ; {
		n := bytes.IndexByte(doc[at:], '"')
		if n < 0 {
			return len(doc)
		}
		at += n
		slashes := 0
		for i := at - 1; i >= from && doc[i] == '\\'; i-- {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
		at++
	}
}

// pointerAt returns the JSON pointer to the scalar at an offset.
func pointerAt(doc []byte, at int) (pointer string) {
	var w walk
	_ = w.scalars(doc, func(s scalar) {
		if s.start <= at && at <= s.end && pointer == "" {
			pointer = w.pointer(s.name)
		}
	})
	return string(Redact([]byte(pointer))) // member names may contain secrets
}
