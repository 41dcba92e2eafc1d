package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/flow"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/supply/bundle"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

// meaning explains a code that ambit prints, such as the code of a diagnostic or refusal.
type meaning struct {
	Code     string `json:"code"`
	Kind     string `json:"kind"`
	Severity string `json:"severity,omitempty"`
	Title    string `json:"title"`
	Why      string `json:"why"`
	Fix      string `json:"fix"`
}

func meanings() []meaning {
	var all []meaning
	for _, r := range slices.Concat(manifest.Rules(), pack.Rules, guard.Rules, bundle.Rules, skill.Rules) {
		all = append(all, meaning{r.Code, "diagnostic", r.Severity.String(), r.Title, r.Why, r.Fix})
	}
	for _, m := range call.Meanings {
		all = append(all, meaning{string(m.Code), "refusal", "", m.Title, m.Why, m.Command.After(m.Fix, "")})
	}
	for _, m := range policy.Meanings {
		all = append(all, meaning{m.Code, "policy", "", m.Title, m.Why, m.Fix})
	}
	for _, m := range flow.Meanings {
		all = append(all, meaning{string(m.Reason), "data flow", "", m.Title, m.Why, m.Fix})
	}
	for _, m := range daemon.Meanings() {
		all = append(all, meaning{m.Code, "api", "", m.Title, m.Why, m.Fix})
	}
	return all
}

func newExplain(t *terminal) *cobra.Command {
	cmd := verb("explain [CODE]", atMost(1, "one code, or none"), func(_ context.Context, args []string) error {
		all := meanings()
		if len(args) == 0 {
			return t.show(map[string]any{"codes": all}, func() {
				t.table("", each(all, func(m meaning) []string {
					return []string{t.paint(bold, m.Code), t.paint(dim, cmp.Or(m.Severity, m.Kind)), m.Title}
				}))
			})
		}
		at := slices.IndexFunc(all, func(m meaning) bool { return strings.EqualFold(m.Code, args[0]) })
		if at >= 0 {
			return t.explain(all[at])
		}
		codes := each(all, func(m meaning) string { return m.Code })
		hint := cmp.Or(diag.DidYouMean(args[0], codes), "to list all codes, run: ambit explain")
		return usage(hint, "there is no code %s", diag.Quote(args[0]))
	})
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		codes := each(meanings(), func(m meaning) string { return m.Code + "\t" + m.Title })
		return codes, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func (t *terminal) explain(m meaning) error {
	return t.show(m, func() {
		t.printf("%s  %s %s\n\n", t.paint(bold, m.Code), m.Title, t.paint(dim, "("+cmp.Or(m.Severity, m.Kind)+")"))
		t.printf("%s\n", wrap(m.Why, "  ", t.width))
		if m.Fix != "" {
			t.printf("\n%s\n%s\n", t.paint(bold, "To fix it"), wrap(m.Fix, "  ", t.width))
		}
	})
}
