// Package convert records what a conversion between manifest dialects changes. A part of the agent is lost if the
// target dialect has no field for that part. A field is added if the target dialect requires a field that the agent
// does not have.
package convert

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ambit-run/ambit/agent"
)

// ErrNothingSurvives means that no part of the agent can be converted to the target dialect.
var ErrNothingSurvives = errors.New("this agent cannot be converted to the target dialect")

// Note describes one part that was lost, or one field that was added.
type Note struct {
	What   string `json:"what"`
	Detail string `json:"detail"`
}

// Notes lists everything that one conversion lost or added.
type Notes struct {
	Lost  []Note
	Added []Note
}

// Lose adds a note that a part of the agent is missing from the result. The first argument identifies the part.
func (n *Notes) Lose(what, format string, args ...any) {
	n.Lost = append(n.Lost, Note{what, fmt.Sprintf(format, args...)})
}

// Add adds a note that the conversion filled in a required field. A person should check this field. The first argument
// is the name of the field.
func (n *Notes) Add(what, format string, args ...any) {
	n.Added = append(n.Added, Note{what, fmt.Sprintf(format, args...)})
}

// Refuse returns [ErrNothingSurvives] with a formatted reason.
func Refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNothingSurvives, fmt.Sprintf(format, args...))
}

// LoseShared records that credential slots, guardrails, resources and other parts of the agent are lost, because the
// target dialect has no fields for them. The hint describes the consequence.
func (n *Notes) LoseShared(a *agent.Agent, hint string, args ...any) {
	hint = fmt.Sprintf(hint, args...)
	for _, s := range a.Slots {
		n.Lose("credential slot "+s.Ref, "for %s; %s", strings.Join(s.Hosts, ", "), hint)
	}
	if !a.Guardrails.IsZero() {
		n.Lose("guardrails", "checks on input and output; %s", hint)
	}
	for _, t := range a.Tools {
		if t.Policy != (agent.ToolPolicy{}) {
			n.Lose("guardrails of "+t.Name, "rules on approval, rate, spending or repetition; %s", hint)
		}
	}
	if a.Resources != nil {
		n.Lose("resources", "%d ms, %d MiB memory, %d MiB disk, network %s; %s", a.Resources.WallClock.Milliseconds(),
			a.Resources.MemoryMB, a.Resources.DiskMB, a.Resources.Network, hint)
	}
	if a.Settlement != nil {
		n.Lose("settlement", "%d credits an hour, priority %s; %s", a.Settlement.CreditsPerHour, a.Settlement.Priority, hint)
	}
	for _, c := range a.Capabilities.Required {
		n.Lose("capability "+c, "callers need it; %s", hint)
	}
	for _, c := range a.Capabilities.Optional {
		n.Lose("capability "+c, "optional; %s", hint)
	}
	if a.Skills != nil {
		n.Lose("skills", "%d skills from %s; %s", len(a.Skills.List), a.Skills.SourceKey, hint)
	}
	if len(a.Delivery.Modes) > 0 {
		n.Lose("delivery", "%s", strings.Join(a.Delivery.Modes, ", "))
	}
	if a.Delivery.Auth != "" {
		n.Lose("auth", "%s; %s", a.Delivery.Auth, hint)
	}
	if len(a.Delivery.Targets) > 0 {
		n.Lose("targets", "%s", strings.Join(a.Delivery.Targets, ", "))
	}
	if a.Category != "" {
		n.Lose("category", "%q", a.Category)
	}
	if len(a.Compatibility) > 0 {
		n.Lose("compatibility", "hints for %d clients", len(a.Compatibility))
	}
}

// LoseDefinitions records that the schemas, annotations and timeout of each callable tool are lost. The hint describes
// the consequence.
func (n *Notes) LoseDefinitions(a *agent.Agent, hint string, args ...any) {
	hint = fmt.Sprintf(hint, args...)
	for i := range a.Tools {
		t := &a.Tools[i]
		var parts []string
		if t.InputSchema != "" {
			parts = append(parts, "input schema")
		}
		if t.OutputSchema != "" {
			parts = append(parts, "output schema")
		}
		if t.Annotations != (agent.Annotations{}) {
			parts = append(parts, "annotations")
		}
		if t.Timeout > 0 {
			parts = append(parts, fmt.Sprintf("timeout of %d ms", t.Timeout.Milliseconds()))
		}
		if len(parts) > 0 && a.Callable(t) {
			n.Lose("definition of "+t.Name, "%s; %s", strings.Join(parts, ", "), hint)
		}
	}
}
