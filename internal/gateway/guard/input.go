package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard/deny"
	"github.com/ambit-run/ambit/internal/gateway/guard/pii"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// InputRules contains the guardrails for arguments. The zero value checks nothing.
type InputRules struct {
	// Deny lists regular expressions. A call is refused if one of them matches a name, string or number in the arguments.
	Deny []string
	// DenyDefaults adds the built-in patterns to Deny.
	DenyDefaults bool
	// PII lists the categories of personal data to redact.
	PII []string
}

// Input checks the arguments of calls.
type Input struct {
	deny  *deny.List
	pii   *pii.Finder
	views sync.Pool
}

// NewInput compiles the rules. The error lists every invalid deny pattern.
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

// TooLong returns a refusal if the arguments have more bytes than the limit. A limit of 0 means no limit.
func TooLong(size int, limit int64) *call.Refusal {
	if limit <= 0 || int64(size) <= limit {
		return nil
	}
	return call.Refuse(StageIn, call.InputTooLong, "the arguments have %d bytes; at most %d are allowed", size, limit)
}

// scratch contains buffers that checks reuse.
type scratch struct {
	view  view.View
	spans []pii.Span
	edits []edit
	stack [][]byte
}

// maxEdits is the maximum number of pieces of personal data that are redacted in one document.
const maxEdits = 100_000

// Check returns the arguments with personal data redacted. It returns a refusal if a member name, string or number
// matches a denied pattern, or if the check takes too much work. If there is nothing to redact, Check returns the same
// slice. Check stops if ctx is cancelled.
func (in *Input) Check(
	ctx context.Context, arguments jsontext.Value,
) (out jsontext.Value, findings []Finding, refusal *call.Refusal) {
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
		found, place := in.scanDocument(ctx, s, out, round == 0)
		if place.err != nil {
			return nil, findings, unchecked(place.err)
		}
		if place.refused {
			f := Finding{Kind: Pattern, Rule: place.hit.Pattern, View: place.hit.View, Pointer: pointerAt(out, place.at)}
			as := ""
			if f.View != "" {
				as = " when read as " + f.View + " text"
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
				"the arguments contain personal data that could not be redacted: %v", err)
		}
		out = next
	}
	return nil, findings, call.Refuse(StageIn, call.InputInvalid,
		"the arguments contain personal data that could not be redacted completely")
}

// errEdits is the error for a document with more than maxEdits pieces of personal data.
var errEdits = fmt.Errorf("they contain more than %d pieces of personal data", maxEdits)

// unchecked returns the refusal for arguments whose check stopped early.
func unchecked(err error) *call.Refusal {
	hint := "send less text in one call"
	switch {
	case errors.Is(err, deny.ErrWork):
		hint += ", or use deny patterns with fewer repetitions"
	case !errors.Is(err, errEdits):
		return call.Refuse(StageIn, call.TimedOut, "the call was cancelled before its arguments were checked")
	}
	r := call.Refuse(StageIn, call.InputTooLong, "the arguments could not be checked: %v", err)
	r.Hint = hint
	return r
}

// outcome contains the denied pattern or the hidden character that was found in one pass over the arguments.
type outcome struct {
	refused bool
	hit     deny.Hit
	trick   string
	at      int
	// err is the reason why the pass stopped early. It is nil if the pass is complete.
	err error
}

// scanDocument checks all strings and numbers of a document in one pass. It returns an edit for each piece of personal
// data. If checkDeny is set, it also looks for denied patterns and hidden characters.
func (in *Input) scanDocument(
	ctx context.Context, s *scratch, doc []byte, checkDeny bool,
) (edits []edit, o outcome) {
	work := deny.MaxWork
	s.edits = s.edits[:0]
	s.visitValues(doc, func(start, end int, name bool, key []byte) bool {
		text, viewed := doc[start:end], false
		if bytes.IndexByte(text, '\\') >= 0 && s.view.JSON(text) {
			text, viewed = s.view.Text, true
		}
		if checkDeny && in.deny != nil {
			hit, ok, err := in.deny.Find(ctx, text, &work)
			if ok || err != nil {
				o = outcome{refused: ok, hit: hit, at: start, err: err}
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
		if o.err = ctx.Err(); o.err != nil {
			return false
		}
		if name {
			key = nil
		}
		s.spans = in.pii.Find(text, key, s.spans[:0])
		for _, p := range s.spans {
			if viewed {
				p.Start, p.End = s.view.Range(p.Start, p.End)
			}
			if s.edits = append(s.edits, edit{PII, p.Category, start + p.Start, start + p.End}); len(s.edits) > maxEdits {
				o.err = errEdits
				return false
			}
		}
		return true
	})
	return s.edits, o
}

// visitValues calls the callback for every string and number in a document, until the callback returns false. The
// offsets of a string exclude the quotes. The callback's third argument reports whether the string is a member name,
// and the fourth is the name of the member that contains the value. visitValues accepts invalid JSON, because rewrite
// and the later stages reject it.
func (s *scratch) visitValues(doc []byte, do func(start, end int, name bool, key []byte) bool) {
	s.stack = s.stack[:0]
	var key []byte
	for i := 0; i < len(doc); {
		switch c := doc[i]; {
		case c == '"':
			end := rawjson.StringEnd(doc, i+1)
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
			for end < len(doc) && (doc[end] == '.' || doc[end] == '-' || doc[end] == '+' || doc[end]|0x20 == 'e' ||
				'0' <= doc[end] && doc[end] <= '9') {
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

// pointerAt returns the JSON pointer to the scalar at the given offset in doc.
func pointerAt(doc []byte, at int) (pointer string) {
	var w walk
	_ = w.scalars(doc, func(s scalar) {
		if s.start <= at && at <= s.end && pointer == "" {
			pointer = w.pointer(s.name)
		}
	})
	return string(Redact([]byte(pointer))) // member names can contain secrets
}
