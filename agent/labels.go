package agent

import (
	"slices"
	"strings"
)

// Labels describe what an agent can do to a person if a text misleads it.
type Labels struct {
	// Private is set if the agent can read private data: it has credentials, files or a memory.
	Private bool `json:"private"`
	// Untrusted is set if the agent reads content that others can write.
	Untrusted bool `json:"untrusted"`
	// CanSend is set if the agent can send data to others.
	CanSend bool `json:"can_send"`
}

// All reports whether all labels are set. Then a text can make the agent send private data to its author.
func (l Labels) All() bool { return l.Private && l.Untrusted && l.CanSend }

// Labels derives the labels from what the agent can use. Annotations are the words of a server, so they can only set a
// label. If some required servers are unknown, all labels are set.
func (a *Agent) Labels() (l Labels) {
	if len(a.Servers) < len(a.Requirements) {
		return Labels{true, true, true}
	}
	r := a.Reach()
	if len(r.SideEffects) == 0 {
		return l // no tool can be called
	}
	remembers := func(action string) bool { return strings.HasPrefix(action, "memory.") }
	l.Private = len(r.Secrets) > 0 || len(r.Paths) > 0 ||
		slices.ContainsFunc(slices.Concat(a.Capabilities.Required, a.Capabilities.Optional), remembers)
	l.CanSend = r.AnyHost
	for i := range a.Tools {
		t := &a.Tools[i]
		if !a.Callable(t) {
			continue
		}
		if _, prompt := t.Binding.(Prompt); !prompt {
			l.Untrusted = true // no tool shows that others cannot write what it returns
		}
		open := t.Annotations.OpenWorld != nil && *t.Annotations.OpenWorld
		// Others can read what a tool writes on another machine.
		if t.SideEffect.Rank() > Write.Rank() || t.SideEffect == Write && (open || len(r.Hosts) > 0) {
			l.CanSend = true
		}
	}
	return l
}
