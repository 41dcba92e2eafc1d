package guard

import (
	"errors"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/deny"
)

// FuzzOperator checks that guardrails from a valid guardrails.json are usable and do not deny everything. It also
// checks that the error for an invalid file contains no terminal control characters.
func FuzzOperator(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"input":{"max_length":100,"deny_patterns":["reveal"],"pii_redaction":["email"]},"output":{"on_leak":"block"}}`, `{"input":{"deny_patterns":[""]}}`,
		`{"input":{"deny_patterns":["(a+)+$","("]}}`, `{"input":{"max_length":-1}}`, `{"inptu":{}}`, `{"input":{"deny_patterns":["\u001b[2J\u202e("]}}`, `[]`, `{"input":{"pii_redaction":["none"]}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := ParseOperator("guardrails.json", text)
		if err != nil {
			fileErr, ok := errors.AsType[*FileError](err)
			if !ok || strings.ContainsAny(fileErr.Error(), "\x1b\u202e\u009b") {
				t.Errorf("the error is %q", err)
			}
			return
		}
		if o.MaxLength < 0 {
			t.Errorf("MaxLength is %d", o.MaxLength)
		}
		for _, p := range o.DenyPatterns {
			if deny.Check(p) != nil || deny.MatchesEmpty(p) {
				t.Errorf("the invalid pattern %q was accepted", p)
			}
		}
	})
}
