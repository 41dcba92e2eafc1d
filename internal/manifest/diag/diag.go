// Package diag defines the problems in a manifest and their locations. It prints problems without revealing secrets.
//
// A [Rule] has a stable code and an explanation. Every check in every dialect belongs to a rule. A [Diagnostic]
// reports that a rule is broken at a [Place]. A [Reporter] collects the diagnostics of all checks and sorts them by
// position. A Reporter does not stop at the first problem. A [Source] is the text of the file. A Source converts byte
// offsets to lines and columns, and cuts out the [Frame] around a problem.
//
// All output of this package follows three rules:
//
//   - A span that is marked with [Source.Mask] is a secret. Every frame masks the span, even if the diagnostic is
//     about other text on the same line. [Quote] masks secret-like values in messages.
//   - Text from a manifest is data. Control characters, escape sequences and characters that reorder text are printed
//     as escapes. A terminal never interprets them.
//   - Lines and columns start at 1. Columns count Unicode code points.
package diag

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity says whether a problem makes the manifest invalid.
type Severity uint8

// The severities. An Error makes the manifest invalid. A Warning makes the manifest invalid only if Reporter.Strict is
// set.
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

// Rule is a requirement for manifests. The code of a deleted rule is never reused.
type Rule struct {
	Code     string
	Severity Severity
	// Title describes the problem in a few words.
	Title string
	// Why describes the consequence of breaking the rule.
	Why string
	// Fix says how to change the manifest. Fix is the default hint of [Reporter.Report].
	Fix string
}

// Place is a location in a source. It consists of a span of bytes and the JSON pointer of the value in that span.
type Place struct {
	Start, End int
	Pointer    string
}

// Diagnostic describes one problem, its location and its fix.
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

// NewReporter returns a reporter for a source.
func NewReporter(src *Source, strict bool) *Reporter {
	return &Reporter{Source: src, Strict: strict}
}

// Open returns a reporter for a new source with the given name and text. The reporter and the source share one
// allocation.
func Open(name, text string, strict bool) *Reporter {
	both := &struct {
		reporter Reporter
		source   Source
	}{Reporter{Strict: strict}, Source{Name: name, Text: text}}
	both.reporter.Source = &both.source
	return &both.reporter
}

// Report records that a rule is broken at a place. The hint describes the fix. The default hint is the
// rule's Fix.
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

// Full reports whether the reporter has reached its limit. Further problems are only counted, so callers need not
// format messages for them.
func (r *Reporter) Full() bool { return len(r.list) >= maxDiagnostics }

// Any returns true if the reporter has recorded a problem.
func (r *Reporter) Any() bool { return len(r.list) > 0 }

// Errors returns the number of errors, including errors beyond the reporter's limit.
func (r *Reporter) Errors() int { return r.errors }

// Finish returns all diagnostics, sorted by their position in the file.
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
