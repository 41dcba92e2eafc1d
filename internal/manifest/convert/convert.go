// Package convert records the losses and additions of a conversion between dialects:
// parts that the target dialect cannot express, and fields that it requires and that
// were filled in.
package convert

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ambit-run/ambit/agent"
)

// ErrNothingSurvives reports that the target dialect can express nothing that the
// agent does.
var ErrNothingSurvives = errors.New("that dialect can express nothing that the agent does")

// Note is one loss or addition.
type Note struct {
	What   string `json:"what"`
	Detail string `json:"detail"`
}

// Notes are all losses and additions of one conversion.
type Notes struct {
	Lost  []Note
	Added []Note
}

// Lose records that what is missing from the result.
func (n *Notes) Lose(what, format string, args ...any) {
	n.Lost = append(n.Lost, Note{what, fmt.Sprintf(format, args...)})
}

// Add records that what was filled in and should be checked by a person.
func (n *Notes) Add(what, format string, args ...any) {
	n.Added = append(n.Added, Note{what, fmt.Sprintf(format, args...)})
}

// Refuse returns the error of a conversion with an empty result.
func Refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNothingSurvives, fmt.Sprintf(format, args...))
}

// LoseShared records parts of an agent that only some dialects can express, and the
// target dialect cannot. The hint describes the consequence.
func (n *Notes) LoseShared(a *agent.Agent, hint string, args ...any) {
	hint = fmt.Sprintf(hint, args...)
	for _, s := range a.Slots {
		n.Lose("credential slot "+s.Ref, "bound to %v; %s", s.Hosts, hint)
	}
	if !a.Guardrails.IsZero() {
		n.Lose("guardrails", "guardrails on input and output; %s", hint)
	}
	for _, t := range a.Tools {
		if t.Policy != (agent.ToolPolicy{}) {
			n.Lose("guardrails of "+t.Name, "approval, rate, spending or repetition; %s", hint)
		}
	}
	if a.Resources != nil {
		n.Lose("resources", "%d ms, %d MiB memory, %d MiB disk, network %s; %s", a.Resources.WallClock.Milliseconds(), a.Resources.MemoryMB, a.Resources.DiskMB, a.Resources.Network, hint)
	}
	if a.Settlement != nil {
		n.Lose("settlement", "%d credits an hour, priority %s; %s", a.Settlement.CreditsPerHour, a.Settlement.Priority, hint)
	}
	for _, c := range a.Capabilities.Required {
		n.Lose("capability "+c, "required of callers; %s", hint)
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
		n.Lose("targets", "%v", a.Delivery.Targets)
	}
	if a.Category != "" {
		n.Lose("category", "%q", a.Category)
	}
	if len(a.Compatibility) > 0 {
		n.Lose("compatibility", "hints for %d clients", len(a.Compatibility))
	}
}

// LoseDefinitions records the parts of callable tools other than name, description and
// class. The hint describes the consequence.
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
