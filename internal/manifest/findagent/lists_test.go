package findagent

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestEveryRuleHasACase(t *testing.T) {
	var tables string
	for _, file := range []string{"rules_test.go", "actions_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tables += string(text)
	}
	last := ""
	for _, r := range Rules {
		if !strings.HasPrefix(r.Code, "FA") || r.Code <= last {
			t.Errorf("the rule %s comes after %s, but the rules must be sorted FA codes", r.Code, last)
		}
		last = r.Code
		if !strings.Contains(tables, r.Code) {
			t.Errorf("no test case breaks the rule %s", r.Code)
		}
		if r.Title == "" || r.Why == "" {
			t.Errorf("the rule %s has no title or no reason", r.Code)
		}
	}
}

// TestLargeManifests parses large manifests with many problems. Parsing must take time in proportion to the size of
// the manifest. With quadratic time, most cases would exceed the time limit of the test.
func TestLargeManifests(t *testing.T) {
	const size = 1 << 17
	fill := func(part string) string {
		return strings.TrimSuffix(strings.Repeat(part+",", size/len(part)), ",")
	}
	numbered := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strings.ReplaceAll(format, "#", itoa36(i)))
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"tools":         with(`"tools":[` + numbered(`{"name":"t#","description":"d","action":{"type":"http","auth_ref":"x"}}`) + `]`),
		"slots":         with(`"credential_slots":[` + numbered(`{"ref":"r#","label":"l","allowed_hosts":["com"]}`) + `]`),
		"placeholders":  httpTool(`"method":"GET","url":"https://example.com/` + strings.Repeat("{abc}{", size/6) + `"`),
		"braces":        httpTool(`"method":"GET","url":"https://example.com/` + strings.Repeat("{", size) + `}"`),
		"properties":    tool(`"input_schema":{"type":"object","properties":{`+numbered(`"p#":{}`)+`}},"action":{"type":"prompt-template","template":"`+strings.Repeat("{pxyz}", size/6)+`"}`, ``),
		"rails":         with(`"guardrails":{"actions":{` + numbered(`"t#":{"max_amount":{}}`) + `}}`),
		"patterns":      with(`"guardrails":{"input":{"deny_patterns":[` + fill(`"a(b"`) + `],"pii_redaction":[` + fill(`"email"`) + `]}}`),
		"skills":        with(`"skills":[` + fill(`{"id":"a"}`) + `]`),
		"env":           with(`"env":[` + numbered(`{"name":"E#"}`) + `]`),
		"hosts":         with(`"allowed_hosts":[` + fill(`"*.example.com"`) + `]`),
		"one long host": with(`"allowed_hosts":["` + strings.Repeat("a.", size/2) + `"]`),
		"headers":       httpTool(`"method":"GET","url":"https://example.com","headers":{` + numbered(`"H#":"{"`) + `}`),
		"query":         httpTool(`"method":"GET","url":"https://example.com?` + strings.Repeat("token=x&", size/8) + `"`),
		"body":          httpTool(`"method":"POST","url":"https://example.com","body_template":"` + strings.Repeat("{", size) + `"`),
		"schema":        with(`"tools":[{"name":"t","description":"d","input_schema":{"type":"object","required":[` + fill(`"a"`) + `]}}]`),
	} {
		start := time.Now()
		_, _, found := load(text)
		t.Logf("%s: %v", name, time.Since(start))
		if len(found) == 0 {
			t.Errorf("%s: no problem is reported", name)
		}
	}
}

func itoa36(n int) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if n < 36 {
		return digits[n : n+1]
	}
	return itoa36(n/36) + digits[n%36:n%36+1]
}

func TestPatternSetIsBounded(t *testing.T) {
	var s patternSet
	for i := range 3 * maxGoodPatterns {
		expr := strings.Repeat("a", i+1)
		if s.has(expr) {
			t.Fatalf("the set contains pattern %d before it was added", i)
		}
		if s.add(expr); !s.has(expr) || len(s.set) > maxGoodPatterns {
			t.Fatalf("after adding pattern %d: has returns %t, and the set has %d patterns", i, s.has(expr), len(s.set))
		}
	}
}
