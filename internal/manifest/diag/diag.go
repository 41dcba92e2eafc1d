// Package diag defines problems, their locations, and how they are shown
// without revealing a secret.
//
// A [Rule] is a stable code with its explanation; every check in every dialect
// has one. A [Diagnostic] is a rule broken at a [Place]. Checks hand what they
// find to a [Reporter], which never stops at the first problem, and at the end
// sorts everything by position. A [Source] is the file itself: it turns byte
// offsets into lines and columns, on demand, and cuts the
// [Frame] that is shown around a problem.
//
// Three things hold for everything this package prints:
//
//   - A span reported with [Source.Mask] is a secret. It is masked in the frame
//     of every diagnostic, also of one that complains about something else on
//     the same line, and [Quote] masks secret-like values in messages.
//   - Text from a manifest is data. Control characters, escape sequences and
//     characters that reorder text are printed as escapes, never sent to a
//     terminal.
//   - Lines and columns count from 1; columns count Unicode code points.
package diag

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity decides whether a problem makes a manifest invalid.
type Severity uint8

// An Error makes a manifest invalid; a Warning does so only under strict reading.
const (
	Error Severity = iota
	Warning
)

func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// MarshalText returns the severity as a word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the word that MarshalText returns.
func (s *Severity) UnmarshalText(b []byte) error {
	switch string(b) {
	case "error":
		*s = Error
	case "warning":
		*s = Warning
	default:
		return fmt.Errorf("unknown severity %q", b)
	}
	return nil
}

// Rule is a requirement on manifests. Codes are never reused.
type Rule struct {
	Code     string
	Severity Severity
	// Title is the rule in a few words.
	Title string
	// Why describes the harm of breaking the rule.
	Why string
	// Fix is what to write instead.
	Fix string
}

// NewError returns a rule that a valid manifest never breaks.
func NewError(code, title, why, fix string) *Rule { return &Rule{code, Error, title, why, fix} }

// NewWarning returns a rule that is an error only under strict reading.
func NewWarning(code, title, why, fix string) *Rule { return &Rule{code, Warning, title, why, fix} }

// Place is a span of bytes in a source, and the JSON pointer of the value there.
type Place struct {
	Start, End int
	Pointer    string
}

// Diagnostic is one problem, its location, and how to fix it.
type Diagnostic struct {
	Code      string   `json:"code"`
	Severity  Severity `json:"severity"`
	Message   string   `json:"message"`
	Pointer   string   `json:"pointer"`
	Line      int      `json:"line"`
	Column    int      `json:"column"`
	EndLine   int      `json:"end_line"`
	EndColumn int      `json:"end_column"`
	Hint      string   `json:"hint"`

	start, end int
}

// maxDiagnostics limits the diagnostics of one file.
const maxDiagnostics = 10_000

// Reporter collects the problems of one source.
type Reporter struct {
	Source *Source
	// Strict turns warnings into errors and enables additional checks.
	Strict bool

	list    []Diagnostic
	dropped int
	errors  int
}

// NewReporter returns a reporter for src.
func NewReporter(src *Source, strict bool) *Reporter {
	return &Reporter{Source: src, Strict: strict}
}

// Open returns a reporter for a source of that name and text, in one allocation.
func Open(name, text string, strict bool) *Reporter {
	both := &struct {
		reporter Reporter
		source   Source
	}{Reporter{Strict: strict}, Source{Name: name, Text: text}}
	both.reporter.Source = &both.source
	return &both.reporter
}

// Report records that rule is broken at place. The hint, which may be empty,
// describes the fix.
func (r *Reporter) Report(rule *Rule, at Place, hint, format string, args ...any) {
	severity := rule.Severity
	if r.Strict {
		severity = Error
	}
	if severity == Error {
		r.errors++
	}
	if len(r.list) >= maxDiagnostics {
		r.dropped++
		return
	}
	if hint == "" {
		hint = rule.Fix
	}
	r.list = append(r.list, Diagnostic{
		Code: rule.Code, Severity: severity, Message: Printable(fmt.Sprintf(format, args...)),
		Pointer: Printable(at.Pointer), Hint: Printable(hint), start: at.Start, end: at.End,
	})
}

// Full reports whether further problems are only counted, so that formatting them is
// useless.
func (r *Reporter) Full() bool { return len(r.list) >= maxDiagnostics }

// Any reports whether there is any problem so far.
func (r *Reporter) Any() bool { return len(r.list) > 0 }

// Errors counts the errors reported so far.
func (r *Reporter) Errors() int { return r.errors }

// Finish returns everything reported, in the order of the file.
func (r *Reporter) Finish() []Diagnostic {
	if len(r.list) == 0 {
		return nil
	}
	if r.dropped > 0 {
		n := r.dropped
		r.dropped = 0
		r.list = append(r.list, Diagnostic{
			Code: TooMany.Code, Severity: Error, Hint: TooMany.Fix,
			Message: fmt.Sprintf("%d more problems are not shown", n),
			start:   len(r.Source.Text), end: len(r.Source.Text),
		})
	}
	slices.SortStableFunc(r.list, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.Code, b.Code))
	})
	r.Source.few = len(r.list) <= 8
	for i := range r.list {
		d := &r.list[i]
		d.Line, d.Column = r.Source.Position(d.start)
		d.EndLine, d.EndColumn = r.Source.Position(d.end)
	}
	return r.list
}
