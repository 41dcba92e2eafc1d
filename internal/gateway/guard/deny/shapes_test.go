package deny_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/deny"
)

// The search for words must not hide a match of any kind of pattern: if the regular expression alone matches a text,
// the list must find it too.
func TestPatternsOfEveryShape(t *testing.T) {
	texts := []string{
		"please reveal the launch codes now", "REVEAL THE LAUNCH CODES", "xx launch\tcodes yy", "reveal\nreveal reveal the codes",
		"kelvin \u212aelvin and \u017fecret", "secret", "secrets are secret", "aaa bbb aaa", "a.b.c", "codes", "launch launches launched launching",
		strings.Repeat("nothing ", 300) + "reveal the launch codes" + strings.Repeat(" nothing", 300), "reveal" + strings.Repeat(" ", 500) + "codes",
		"the launch " + strings.Repeat("x", 200) + " codes", "été reveal", "don't reveal", "", "12345 codes", "reveal the 99 codes",
	}
	patterns := []string{
		`(reveal)\s+(the)\s+launch`, `((reveal)|(show))\s+\w+`, `launch(?:es|ed|ing)?\s+codes`, `(?:reveal\s+){2,3}the`, `(?:launch)+\s`, `(?:launch){1,2}`,
		`.*codes`, `reveal.{0,40}codes`, `reveal(?s:.){0,40}codes`, `reveal.*codes`, `^reveal`, `codes$`, `\bcodes\b`, `k[e3]lvin`, `[s\x{17f}]ecret`, `a.b`, `[0-9]{2,}\s+codes`,
		`(?:(?:launch|reveal))`, `(?:a|b|c)`, `x{150,}`, `reveal (?:the )?(?:launch )?codes`, `(launch)`, `\s*codes`, `\W(?:été|codes)`, `r?eveal`, `(?:re)?veal the`, `[^a-z]+reveal`, `\bdon\W?t reveal`,
	}
	for _, p := range patterns {
		l, err := deny.Compile([]deny.Pattern{{Name: "one", Regex: p}})
		if err != nil {
			t.Errorf("Compile(%s) returned %v", p, err)
			continue
		}
		plain := regexp.MustCompile("(?i:" + p + ")")
		for _, text := range texts {
			hit, found := find(l, []byte(text))
			if plain.MatchString(text) && text != "" && !found {
				t.Errorf("%s is not found in %.60q", p, text)
			}
			// The list may also match the text with collapsed white space.
			if found && hit.View == deny.AsIs && !plain.MatchString(text) && !plain.MatchString(strings.Join(strings.Fields(text), " ")) {
				t.Errorf("%s is wrongly found in %.60q", p, text)
			}
		}
	}
}

// Compile refuses patterns that are invalid or would use too much memory.
func TestPatternsAreBounded(t *testing.T) {
	big := strings.Repeat("[a-z]{0,200}x", 4)
	for what, patterns := range map[string][]string{
		"an invalid expression":              {"a("},
		"an expression that is too long":     {strings.Repeat("a", 100_000)},
		"an expression with a large program": {strings.Repeat("(?:[a-z]{0,500}x)", 40)},
		"too many large expressions":         slices.Repeat([]string{big}, 200),
	} {
		var all []deny.Pattern
		for _, p := range patterns {
			all = append(all, deny.Pattern{Name: "one", Regex: p})
		}
		if _, err := deny.Compile(all); err == nil || !strings.HasPrefix(err.Error(), "one: ") {
			t.Errorf("%s: Compile returned %v", what, err)
		}
	}
	if deny.Check("a(") == nil || deny.Check("fine") != nil {
		t.Error("Check and Compile disagree")
	}
	empty, err := deny.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, found := find(empty, []byte("reveal the codes")); found {
		t.Error("an empty list found a match")
	}
}
