package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// toolReport is a tool as inspect and tools tell of it.
type toolReport struct {
	Name        string           `json:"name"`
	URI         string           `json:"uri"`
	SideEffect  agent.SideEffect `json:"side_effect"`
	Binding     string           `json:"binding"`
	Server      string           `json:"server,omitempty"`
	Host        string           `json:"host,omitempty"`
	Description string           `json:"description"`
	// Callable says whether the manifest lets it be called; Why, if not, what
	// stands against it.
	Callable bool     `json:"callable"`
	Why      string   `json:"why_not,omitempty"`
	Rails    []string `json:"rails,omitempty"`
	// InputSchema is what the manifest says of the arguments, if it does.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
}

func toolReports(a *agent.Agent) []toolReport {
	reports := make([]toolReport, 0, len(a.Tools))
	for i := range a.Tools {
		t := &a.Tools[i]
		r := toolReport{
			Name: t.Name, SideEffect: t.SideEffect, Description: t.Description, Binding: "none",
			Callable: a.Callable(t), Rails: rails(t), InputSchema: json.RawMessage(t.InputSchema),
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

// rails lists in words what holds a tool back.
func rails(t *agent.Tool) []string {
	var out []string
	p := t.Policy
	if p.HumanApproval {
		out = append(out, "asks a person")
	}
	if p.Rate != nil {
		out = append(out, "at most "+p.Rate.String())
	}
	if p.Spend != nil {
		if p.Spend.PerCall != "" {
			out = append(out, "at most "+p.Spend.PerCall+money(p.Spend.Currency)+" a call")
		}
		if p.Spend.PerDay != "" {
			out = append(out, "at most "+p.Spend.PerDay+money(p.Spend.Currency)+" a day")
		}
	}
	if p.Idempotent {
		out = append(out, "may be repeated after a crash")
	}
	return out
}

func money(currency string) string {
	if currency == "" {
		return ""
	}
	return " " + currency
}

// takes lists in words the arguments of a schema, those that are required first.
func takes(schema string) string {
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
			resolved, err := t.whole(cmd.Context(), m)
			if err != nil {
				return err
			}
			reports := toolReports(resolved.Agent())
			return t.show(map[string]any{"agent": m.Agent().ID, "digest": m.Digest(), "tools": reports}, func() {
				if len(reports) == 0 {
					t.notef("%s declares no tools", diag.Printable(m.Path))
					if len(m.Agent().Requirements) > 0 {
						t.hintf("its servers declare them, and are resolved where it runs: ambit inspect %s", diag.ShellWord(args[0]))
					}
					return
				}
				rows := make([][]string, len(reports))
				for i, r := range reports {
					name := r.URI
					if name == "" {
						name = r.Name
					}
					note := ""
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
