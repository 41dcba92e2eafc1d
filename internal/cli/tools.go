package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// toolReport is a tool in the output of inspect and tools.
type toolReport struct {
	Name        string           `json:"name"`
	URI         string           `json:"uri"`
	SideEffect  agent.SideEffect `json:"side_effect"`
	Binding     string           `json:"binding"`
	Server      string           `json:"server,omitempty"`
	Host        string           `json:"host,omitempty"`
	Description string           `json:"description"`
	// Callable reports whether the manifest allows calls; Why explains why not.
	Callable bool     `json:"callable"`
	Why      string   `json:"why_not,omitempty"`
	Limits   []string `json:"rails,omitempty"`
	// InputSchema is the schema of the arguments, if the manifest has one.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
}

func toolReports(a *agent.Agent) []toolReport {
	reports := make([]toolReport, 0, len(a.Tools))
	for i := range a.Tools {
		t := &a.Tools[i]
		r := toolReport{
			Name: t.Name, SideEffect: t.SideEffect, Description: t.Description, Binding: "none",
			Callable: a.Callable(t), Limits: toolLimits(t), InputSchema: json.RawMessage(t.InputSchema),
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
			r.Why = "it has no action: described, not served"
		case r.Binding == "native":
			r.Why = "native tools cannot be called yet"
		default:
			r.Why = "its side effect " + string(t.SideEffect) + " is not allowed"
		}
		reports = append(reports, r)
	}
	return reports
}

// toolLimits describes the conditions on calls of a tool.
func toolLimits(t *agent.Tool) []string {
	var out []string
	if t.Policy.HumanApproval {
		out = append(out, "asks a person")
	}
	out = append(out, limitsOf(t)...)
	if t.Policy.Idempotent {
		out = append(out, "may be repeated after a crash")
	}
	return out
}

// limitsOf describes the rate and spending limits of a tool.
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

// argumentList describes the arguments of a schema, required ones first.
func argumentList(schema string) string {
	var s struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if json.Unmarshal([]byte(schema), &s) != nil || len(s.Properties) == 0 {
		return "what its schema says"
	}
	const most = 8
	names := slices.SortedFunc(maps.Keys(s.Properties), func(a, b string) int {
		if first := slices.Contains(s.Required, a); first != slices.Contains(s.Required, b) {
			if first {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
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
	cmd := &cobra.Command{
		Use:     "tools PATH",
		GroupID: groupReview,
		Short:   "List an agent's tools with their URIs",
		Example: "  ambit tools agents/default.json\n  ambit tools agents/default.json --json | jq -r '.tools[].uri'",
		Args:    exactly(1, "one manifest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := t.load(args[0], dialect)
			if err != nil {
				return err
			}
			resolved, err := t.resolveAndWarn(cmd.Context(), m)
			if err != nil {
				return err
			}
			reports := toolReports(resolved.Agent())
			return t.show(map[string]any{"agent": m.Agent().ID, "digest": m.Digest(), "tools": reports}, func() {
				if len(reports) == 0 {
					t.notef("%s declares no tools", diag.Printable(m.Path))
					if len(m.Agent().Requirements) > 0 {
						t.hintf("its servers declare them: ambit inspect %s", diag.ShellWord(args[0]))
					}
					return
				}
				rows := make([][]string, len(reports))
				for i, r := range reports {
					name, note := cmp.Or(r.URI, r.Name), ""
					if !r.Callable {
						note = t.paint(dim, "not callable: "+r.Why)
					}
					rows[i] = []string{t.paint(classStyle(r.SideEffect), string(r.SideEffect)), diag.Printable(name), note}
				}
				t.table("", rows)
			})
		},
	}
	dialectFlag(cmd, &dialect)
	return cmd
}

func classStyle(s agent.SideEffect) style {
	switch s {
	case agent.Read:
		return green
	case agent.Write, agent.Network:
		return yellow
	default:
		return red
	}
}
