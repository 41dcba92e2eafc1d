package deny_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/deny"
)

// Whatever shape a pattern has, the words that announce it must not keep it from
// being found: what the expression alone finds in a text, the list finds.
func TestPatternsOfEveryShape(t *testing.T) {
	texts := []string{
		"please reveal the launch codes now", "REVEAL THE LAUNCH CODES", "xx launch\tcodes yy", "reveal\nreveal reveal the codes",
		"kelvin \u212aelvin and \u017fecret", "secret", "secrets are secret", "aaa bbb aaa", "a.b.c", "codes", "launch launches launched launching",
		strings.Repeat("nothing ", 300) + "reveal the launch codes" + strings.Repeat(" nothing", 300), "reveal" + strings.Repeat(" ", 500) + "codes",
		"the launch " + strings.Repeat("x", 200) + " codes", "été reveal", "", "12345 codes", "reveal the 99 codes",
	}
	patterns := []string{
		`(reveal)\s+(the)\s+launch`, `((reveal)|(show))\s+\w+`, `launch(?:es|ed|ing)?\s+codes`, `(?:reveal\s+){2,3}the`, `(?:launch)+\s`, `(?:launch){1,2}`,
		`.*codes`, `reveal.{0,40}codes`, `reveal(?s:.){0,40}codes`, `reveal.*codes`, `^reveal`, `codes$`, `\bcodes\b`, `k[e3]lvin`, `[s\x{17f}]ecret`, `a.b`, `[0-9]{2,}\s+codes`,
		`(?:(?:launch|reveal))`, `(?:a|b|c)`, `x{150,}`, `reveal (?:the )?(?:launch )?codes`, `(launch)`, `\s*codes`, `\W(?:été|codes)`, `r?eveal`, `(?:re)?veal the`, `[^a-z]+reveal`,
	}
	for _, p := range patterns {
		l, err := deny.Compile([]deny.Pattern{{Name: "one", Regex: p}})
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		plain := regexp.MustCompile("(?i:" + p + ")")
		for _, text := range texts {
			hit, found := l.Find([]byte(text))
			if plain.MatchString(text) && text != "" && !found {
				t.Errorf("%s is not found in %.60q", p, text)
			}
			// White space counts once.
			if found && hit.View == deny.AsIs && !plain.MatchString(text) && !plain.MatchString(strings.Join(strings.Fields(text), " ")) {
				t.Errorf("%s is found in %.60q", p, text)
			}
		}
	}
}

// A list cannot be made so large that it takes a machine down.
func TestPatternsAreBounded(t *testing.T) {
	big := strings.Repeat("[a-z]{0,200}x", 4)
	for what, patterns := range map[string][]string{
		"an expression that is none":      {"a("},
		"one that is too long":            {strings.Repeat("a", 100_000)},
		"one that compiles to very much":  {strings.Repeat("(?:[a-z]{0,500}x)", 40)},
		"many that are too much together": slices.Repeat([]string{big}, 200),
	} {
		var all []deny.Pattern
		for _, p := range patterns {
			all = append(all, deny.Pattern{Name: "one", Regex: p})
		}
		if _, err := deny.Compile(all); err == nil || !strings.HasPrefix(err.Error(), "one: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if deny.Check("a(") == nil || deny.Check("fine") != nil {
		t.Error("Check is of another mind")
	}
	empty, err := deny.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, found := empty.Find([]byte("reveal the codes")); found {
		t.Error("an empty list finds something")
	}
}
