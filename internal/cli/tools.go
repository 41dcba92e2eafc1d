package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// toolReport describes a tool in the output of "ambit inspect" and "ambit tools".
type toolReport struct {
	Name        string           `json:"name"`
	URI         string           `json:"uri"`
	SideEffect  agent.SideEffect `json:"side_effect"`
	Binding     string           `json:"binding"`
	Server      string           `json:"server,omitempty"`
	Host        string           `json:"host,omitempty"`
	Description string           `json:"description"`
	// Callable is set if the manifest and the policy allow calls to the tool. Otherwise Why contains the reason.
	Callable bool     `json:"callable"`
	Why      string   `json:"why_not,omitempty"`
	Limits   []string `json:"rails,omitempty"`
	// InputSchema is the schema of the arguments. It is empty if the manifest contains no schema.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
}

// toolReports describes the tools of an agent. The parameter hidden reports for each tool whether the policy denies
// every call. It is nil if the policy denies no tool.
func toolReports(a *agent.Agent, hidden []bool) []toolReport {
	reports := each(a.Tools, func(t agent.Tool) toolReport {
		r := toolReport{
			Name: t.Name, SideEffect: t.SideEffect, Description: t.Description, Binding: "none",
			Callable: a.Callable(&t), Limits: toolLimits(&t), InputSchema: json.RawMessage(t.InputSchema),
		}
		if t.URI != nil {
			r.URI = t.URI.String()
		}
		if t.Binding != nil {
			r.Binding = t.Binding.Kind()
		}
		switch b := t.Binding.(type) {
		case agent.OnServer:
			r.Server = b.Alias
		case agent.HTTP:
			r.Host = b.Host
		}
		switch {
		case r.Callable:
		case t.Binding == nil:
			r.Why = "the manifest describes the tool, but declares no action for it"
		case r.Binding == "native":
			r.Why = "native tools cannot be called yet"
		default:
			r.Why = "the side-effect class " + string(t.SideEffect) + " is not allowed"
		}
		return r
	})
	for i, denied := range hidden {
		if denied && reports[i].Callable {
			reports[i].Callable, reports[i].Why = false, "the policy denies every call"
		}
	}
	return reports
}

// operated returns a copy of an agent in which a tool needs approval if the operator requires it. The copy is only for
// descriptions of the agent, because the gateway applies the operator's guardrails itself.
func operated(a *agent.Agent, name string, operator guard.Operator) *agent.Agent {
	out := *a
	out.Tools = slices.Clone(a.Tools)
	for i := range out.Tools {
		t := &out.Tools[i]
		t.Policy.HumanApproval = t.Policy.HumanApproval || operator.Approval.Asks(name, t)
	}
	return &out
}

// hiddenFrom reports for each tool of an agent whether the policy denies every call of the local user. It returns nil
// for a GPARS agent, because the report of the agent's scopes shows which calls the policy allows.
func (t *terminal) hiddenFrom(a *agent.Agent, name string) []bool {
	if a.Dialect == agent.GPARS {
		return nil
	}
	return t.rules(t.home).Hidden(a, name, &call.Call{Principal: identity.LocalName()})
}

const needsApproval = "needs a person's approval"

// toolLimits describes the conditions for calls to a tool.
func toolLimits(t *agent.Tool) []string {
	var out []string
	if t.Policy.HumanApproval {
		out = append(out, needsApproval)
	}
	out = append(out, limitsOf(t)...)
	if t.Policy.Idempotent {
		out = append(out, "ambit may repeat a call after a crash")
	}
	return out
}

// limitsOf describes the rate limit and the spending limits of a tool.
func limitsOf(t *agent.Tool) []string {
	var limits []string
	if t.Policy.Rate != nil {
		limits = append(limits, "at most "+t.Policy.Rate.String())
	}
	if s := t.Policy.Spend; s != nil {
		for _, c := range [][2]string{{s.PerCall, "a call"}, {s.PerDay, "a day"}} {
			if c[0] != "" {
				limits = append(limits, strings.Join(strings.Fields("at most "+c[0]+" "+s.Currency+" "+c[1]), " "))
			}
		}
	}
	return limits
}

// argumentList describes the arguments that a schema allows. Required arguments come first.
func argumentList(schema string) string {
	var s struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if json.Unmarshal([]byte(schema), &s) != nil || len(s.Properties) == 0 {
		return "the arguments in its schema"
	}
	const most = 8
	optional := func(name string) int { return btoi(!slices.Contains(s.Required, name)) }
	names := slices.SortedFunc(maps.Keys(s.Properties), func(a, b string) int {
		return cmp.Or(optional(a)-optional(b), strings.Compare(a, b))
	})
	words := make([]string, 0, most+1)
	for _, name := range names[:min(len(names), most)] {
		var notes []string
		if kind, ok := s.Properties[name].Type.(string); ok {
			notes = append(notes, kind)
		}
		if slices.Contains(s.Required, name) {
			notes = append(notes, "required")
		}
		if len(notes) > 0 {
			name += " (" + strings.Join(notes, ", ") + ")"
		}
		words = append(words, name)
	}
	if more := len(names) - most; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return clip(diag.Words(words, "and"), 400)
}

func newTools(t *terminal) *cobra.Command {
	var dialect string
	var dev development
	cmd := verb("tools PATH", exactly(1, "one manifest"), func(ctx context.Context, args []string) error {
		t.announce(egress.Switches{LoopbackHTTP: dev.loopbackHTTP})
		m, err := t.loadFor(dev, args[0], dialect)
		if err != nil {
			return err
		}
		resolved, err := t.resolveAndWarn(ctx, m)
		if err != nil {
			return err
		}
		for _, f := range resolved.Found() {
			if f.Problem != nil {
				t.warnf("%s is unavailable, so its tools are not listed: %s", diag.Printable(f.Requirement.Server),
					diag.Printable(f.Problem.Error()))
			}
		}
		operator, err := operatorGuardrails(t.home)
		if err != nil {
			return err
		}
		name := registeredName(t.home, m)
		a := operated(resolved.Agent(), name, operator)
		reports := toolReports(a, t.hiddenFrom(a, name))
		return t.show(map[string]any{"agent": m.Agent().ID, "digest": m.Digest(), "tools": reports}, func() {
			if len(reports) == 0 {
				t.notef("%s declares no tools", diag.Printable(m.Path))
				if len(m.Agent().Requirements) > 0 {
					t.hintf("the tools come from the required servers; to see them, run: ambit inspect %s", diag.ShellWord(args[0]))
				}
				return
			}
			t.table("", each(reports, func(r toolReport) []string {
				name, note := cmp.Or(r.URI, r.Name), ""
				switch {
				case !r.Callable:
					note = t.paint(dim, "not callable: "+r.Why)
				case slices.Contains(r.Limits, needsApproval):
					note = t.paint(dim, needsApproval)
				}
				return []string{t.paint(classStyle(r.SideEffect), string(r.SideEffect)), diag.Printable(name), note}
			}))
		})
	})
	dev.manifestFlag(cmd.Flags())
	dialectFlag(cmd, &dialect)
	return cmd
}

func classStyle(s agent.SideEffect) style {
	return cmp.Or(map[agent.SideEffect]style{agent.Read: green, agent.Write: yellow, agent.Network: yellow}[s], red)
}
