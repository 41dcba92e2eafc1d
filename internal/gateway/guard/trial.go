package guard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/guard/deny"
	"github.com/ambit-run/ambit/internal/gateway/guard/pii"
)

// Action is what a guardrail does with a text.
type Action string

// The actions, from the mildest to the strictest.
const (
	Pass     Action = "pass"
	Mark     Action = "mark"
	Masked   Action = "redact"
	Withhold Action = "withhold" // the agent does not get the result
	Refuse   Action = "refuse"   // the call is not made
)

// Trial is a finding in a text that is only being tested. Start and End are offsets in this text.
type Trial struct {
	Finding
	Action Action
	// Why explains in one sentence why the text matched, or what the action depends on.
	Why string
}

// phrases maps the name of each built-in pattern to a description of the text that it matches.
var phrases = map[string]string{
	"override_instructions": "orders a model to drop its earlier instructions",
	"reveal_prompt":         "asks a model for its prompt",
	"unrestricted_persona":  "gives a model a role without rules",
	"control_tokens":        "contains a control token of a chat template",
	"hidden_orders":         "gives a model new orders, or orders it to hide something from the user",
}

// Try returns what each guardrail finds in a text, sorted by position, and what the guardrail does about it. It also
// returns findings that the given guardrails let pass. The text is the value of an argument, or of a result if result
// is set.
func Try(ctx context.Context, rails Rails, text []byte, result bool) ([]Trial, error) {
	var all []Trial
	for _, f := range Scan(text) {
		why := "it has the form of a credential"
		if strings.HasPrefix(f.Rule, "generic-") || f.Rule == "table-column" {
			why = "the name before it, such as password or api_key, marks it as a credential"
		}
		t := Trial{f, Pass, why + "; the tool receives it, but the journal shows a placeholder"}
		if result {
			t.Action, t.Why = Masked, why
			if rails.OnLeak == agent.LeakBlock {
				t.Action = Withhold
			}
		}
		all = append(all, t)
	}
	finder, err := pii.New(pii.Categories)
	if err != nil {
		return nil, err
	}
	for _, p := range finder.Find(text, nil, nil) {
		t := Trial{Finding{Kind: PII, Rule: p.Category, Start: p.Start, End: p.End}, Pass, ""}
		switch {
		case result && rails.OnResult != agent.ResultRedact:
			t.Why = "it looks like personal data, but on_result is not \"redact\""
		case slices.Contains(rails.Input.PII, p.Category):
			t.Action, t.Why = Masked, "it looks like personal data, and pii_redaction lists its category"
		default:
			t.Why = "it looks like personal data, but pii_redaction does not list its category"
		}
		all = append(all, t)
	}
	list, err := builtin()
	if err == nil {
		all, err = tryPatterns(ctx, all, list, text, func(h deny.Hit) Trial {
			t := Trial{Finding{Kind: Pattern}, Pass, "it " + phrases[h.Pattern]}
			if result {
				t.Kind = Injection
				t.Action = map[agent.OnInjection]Action{
					"": Pass, agent.InjectionMark: Mark, agent.InjectionRedact: Masked, agent.InjectionDeny: Withhold,
				}[rails.OnInjection]
			} else if rails.Input.DenyDefaults {
				t.Action = Refuse
			}
			return t
		})
	}
	if err != nil {
		return nil, err
	}
	own := rails.Input
	own.DenyDefaults, own.PII = false, nil
	in, err := NewInput(own)
	if err != nil {
		return nil, err
	}
	if in.deny != nil {
		all, err = tryPatterns(ctx, all, in.deny, text, func(h deny.Hit) Trial {
			if result {
				return Trial{Finding{Kind: Pattern}, Pass, "it matches a deny pattern, which applies to arguments only"}
			}
			return Trial{Finding{Kind: Pattern}, Refuse, "it matches a deny pattern"}
		})
	}
	slices.SortStableFunc(all, func(a, b Trial) int { return cmp.Compare(a.Start, b.Start) })
	return all, err
}

// tryPatterns appends the matches of a list of patterns. The callback returns what happens to a match.
func tryPatterns(
	ctx context.Context, all []Trial, list *deny.List, text []byte, trial func(deny.Hit) Trial,
) ([]Trial, error) {
	hits, err := list.FindAll(ctx, text)
	for _, h := range hits {
		t := trial(h)
		t.Rule, t.View, t.Start, t.End = h.Pattern, h.View, h.Start, h.End
		if h.View != "" {
			t.Why += fmt.Sprintf(" when read as %s text", h.View)
		}
		all = append(all, t)
	}
	return all, err
}
