package agent

import (
	"slices"
	"strings"
)

// Labels describe what an agent can do to a person if a text misleads the agent.
type Labels struct {
	// Private is set if the agent can read private data: it has credentials, files or a memory.
	Private bool `json:"private"`
	// Untrusted is set if the agent reads content that other people can write.
	Untrusted bool `json:"untrusted"`
	// CanSend is set if the agent can send data to other people.
	CanSend bool `json:"can_send"`
}

// All reports whether all labels are set. If so, a person who writes a text for the agent to read can make the agent
// send private data to that person.
func (l Labels) All() bool { return l.Private && l.Untrusted && l.CanSend }

// Labels derives the labels from the agent's tools and rights. Tool annotations come from the servers, which are not
// trusted, so an annotation can set a label but never clear one. If some required servers are unknown, all labels are
// set.
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
			l.Untrusted = true // strangers may have written the text that the tool returns
		}
		open := t.Annotations.OpenWorld != nil && *t.Annotations.OpenWorld
		// A tool that writes on another machine can send data to the people who read it there.
		if t.SideEffect.Rank() > Write.Rank() || t.SideEffect == Write && (open || len(r.Hosts) > 0) {
			l.CanSend = true
		}
	}
	return l
}
