// Package guard answers one question about a call: is its content acceptable?
//
// Two checks stand at the door. [Input] reads the arguments before anything is
// done with them: deny patterns refuse, personal data is redacted. [Output] reads
// the result before the agent sees it: secrets are redacted, or the whole result
// is withheld. [Schema] says whether either has the shape it should have, and
// [Merge] makes one set of rails of the operator's and the manifest's.
//
// The package is a library without state: it knows no tools, no dialects and no
// files, and a check is a function of its rules and the bytes.
//
// What it promises:
//   - What is not redacted is not touched. Bytes outside of redacted strings are
//     the ones that came, and a clean text is the same slice.
//   - A finding says what was found and where, as a JSON pointer. It never holds
//     what was found.
//   - A check that fails is a refusal. There is no way to switch one off from
//     inside the content.
//   - Redaction happens once: what was redacted has nothing left to redact.
//
// A deny list is precise and cheap and never a proof: it knows phrases, not
// intentions.
//
// Tables and expressions are loaded when first used, never at start.
package guard

import (
	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// Kind is what sort of thing was found.
type Kind string

// The kinds.
const (
	Secret  Kind = "secret"
	PII     Kind = "pii"
	Pattern Kind = "pattern"
	Hidden  Kind = "hidden"
)

// Finding is something in a text that should not pass as it is. It never holds
// the text itself.
type Finding struct {
	Kind Kind `json:"kind"`
	// Rule names the secret, the category or the pattern.
	Rule string `json:"rule"`
	// Pointer is the place, as a JSON pointer. It is empty for a text.
	Pointer string `json:"pointer,omitempty"`
	// View says how the text had to be read to see it, where not as written.
	View string `json:"view,omitempty"`
	// Start and End are bytes of a text given to [Scan].
	Start int `json:"-"`
	End   int `json:"-"`
}

// Scan finds the secrets of a text, for callers that redact it themselves. A
// text that cannot be scanned is one finding from its start to its end.
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

// Redact is text without its secrets. A text without any is the same slice.
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

// placeholder is what stands where something was redacted.
func placeholder(kind Kind, rule string) string {
	if kind == Secret {
		return "[secret:" + rule + "]"
	}
	return "[" + rule + "]"
}
