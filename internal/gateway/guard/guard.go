// Package guard checks the content of calls.
//
// [Input] checks the arguments of a call before the tool gets them. It refuses a call that matches a denied pattern,
// and it redacts personal data. [Output] checks a result before the agent sees it. It redacts secrets or withholds the
// whole result. [Injections] looks for prompt injection in results. [Schema] validates arguments and results. [Merge]
// combines the guardrails of the operator and the manifest.
//
// The result of a check depends only on the guardrails and the checked bytes. The package promises:
//   - Only redacted values change. All other bytes stay as they were. If nothing is redacted, a check returns the
//     same slice.
//   - A finding names a rule and a position, as a JSON pointer. A finding never contains the value that was found.
//   - If a check itself fails, the call is refused. No content can switch off a check.
//   - Redaction is idempotent: redacted text contains nothing that would be redacted again.
//
// A deny list matches phrases, not intentions. It cannot prove that text is harmless.
//
// Tables and regular expressions are loaded on first use, not at startup.
package guard

import (
	"github.com/ambit-run/ambit/internal/gateway/guard/deny"
	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// Kind is the kind of a finding.
type Kind string

// The kinds of findings.
const (
	Secret  Kind = "secret"
	PII     Kind = "pii"
	Pattern Kind = "pattern"
	Hidden  Kind = "hidden"
	// Injection is a passage in a result that matches a built-in pattern.
	Injection Kind = "injection"
)

// Finding describes one match of a rule in a text. It never contains the text that matched.
type Finding struct {
	Kind Kind `json:"kind"`
	// Rule is the kind of secret, the category of personal data, the name of the denied pattern, or the kind of
	// hidden character.
	Rule string `json:"rule"`
	// Pointer is a JSON pointer to the value. [Scan] does not set it.
	Pointer string `json:"pointer,omitempty"`
	// View is the form of the text in which the pattern matched, such as "decoded". It is empty for the original text.
	View string `json:"view,omitempty"`
	// Start and End are offsets in the text that was passed to [Scan]. Only Scan sets them.
	Start int `json:"-"`
	End   int `json:"-"`
}

// Scan returns the secrets in text. If the scan fails, a single finding covers the whole text.
func Scan(text []byte) (findings []Finding) {
	defer func() {
		if recover() != nil {
			findings = unscanned(text)
		}
	}()
	matches := secret.Standard().Scan(text, nil, nil)
	if len(matches) == 0 {
		return nil
	}
	findings = make([]Finding, 0, len(matches))
	for _, m := range matches {
		findings = append(findings, Finding{Kind: Secret, Rule: m.Rule, Start: m.Start, End: m.End})
	}
	return findings
}

func unscanned(text []byte) []Finding {
	return []Finding{{Kind: Secret, Rule: secret.RuleUnscanned, End: len(text)}}
}

// Redact replaces each secret in text with a placeholder. If text has no secrets, Redact returns text itself.
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

// placeholder returns the string that replaces a redacted value.
func placeholder(kind Kind, rule string) string {
	switch kind {
	case Secret:
		return "[secret:" + rule + "]"
	case Injection:
		return deny.Marker(rule)
	}
	return "[" + rule + "]"
}
