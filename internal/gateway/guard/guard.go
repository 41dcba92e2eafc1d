// Package guard checks the content of calls.
//
// [Input] checks the arguments before they are used: a denied pattern refuses the call,
// and personal data is redacted. [Output] checks the result before the agent sees it:
// secrets are redacted, or the whole result is withheld. [Schema] validates arguments
// and results, and [Merge] combines the guardrails of the operator and the manifest.
//
// The package has no state and knows no tools, dialects or files: a check is a function
// of its rules and the bytes. It promises:
//   - Only redacted strings change. All other bytes stay as they were, and a clean text
//     is returned as the same slice.
//   - A finding names the rule and the position, as a JSON pointer. It never contains the
//     value that was found.
//   - A check that fails is a refusal, and no content can switch a check off.
//   - Redaction is idempotent: a redacted text contains nothing to redact.
//
// A deny list is precise and cheap, but no proof: it knows phrases, not intentions.
//
// Tables and expressions are loaded on first use, never at start.
package guard

import (
	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// Kind is the kind of a finding.
type Kind string

// The kinds.
const (
	Secret  Kind = "secret"
	PII     Kind = "pii"
	Pattern Kind = "pattern"
	Hidden  Kind = "hidden"
)

// Finding is a secret, personal data or a denied pattern in a text. It never contains
// the text itself.
type Finding struct {
	Kind Kind `json:"kind"`
	// Rule names the secret, the category or the pattern.
	Rule string `json:"rule"`
	// Pointer is the position, as a JSON pointer. It is empty for a text that is not JSON.
	Pointer string `json:"pointer,omitempty"`
	// View is the reading of the text that shows it; empty if it shows as written.
	View string `json:"view,omitempty"`
	// Start and End are offsets in a text passed to [Scan].
	Start int `json:"-"`
	End   int `json:"-"`
}

// Scan finds the secrets in a text, for callers that redact it themselves. A text that
// cannot be scanned is one finding from start to end.
func Scan(text []byte) (findings []Finding) {
	defer func() {
		if recover() != nil {
			findings = unscanned(text)
		}
	}()
	e, err := secret.Standard()
	if err != nil {
		return unscanned(text)
	}
	matches, err := e.Scan(text, nil, nil)
	if err != nil {
		return unscanned(text)
	}
	for _, m := range matches {
		findings = append(findings, Finding{Kind: Secret, Rule: m.Rule, Start: m.Start, End: m.End})
	}
	return findings
}

func unscanned(text []byte) []Finding {
	return []Finding{{Kind: Secret, Rule: "unscanned", End: len(text)}}
}

// Redact returns text without its secrets. A text without secrets is the same slice.
func Redact(text []byte) []byte {
	findings := Scan(text)
	if len(findings) == 0 {
		return text
	}
	out, done := make([]byte, 0, len(text)), 0
	for _, f := range findings {
		out = append(append(out, text[done:f.Start]...), placeholder(Secret, f.Rule)...)
		done = f.End
	}
	return append(out, text[done:]...)
}

// placeholder replaces a redacted value.
func placeholder(kind Kind, rule string) string {
	if kind == Secret {
		return "[secret:" + rule + "]"
	}
	return "[" + rule + "]"
}
