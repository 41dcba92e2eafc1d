package daemon

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/serve/console"
)

// factsOf lists what an agent may do and reach. Empty lists are shown as "none", because a missing
// permission is part of the answer.
func factsOf(a *agent.Agent) (facts []console.Fact) {
	add := func(label string, values ...string) {
		if len(values) > 0 {
			facts = append(facts, console.Fact{Label: label, Values: values})
		}
	}
	r := a.Reach()
	may, never := Effects(a, r)
	add("Side effects", may...)
	add("Never", never...)
	var hosts, programs, secrets []string
	for _, h := range r.Hosts {
		hosts = append(hosts, h.Name+" ("+strings.Join(h.By, ", ")+")")
	}
	if r.AnyHost {
		hosts = append(hosts, "any: "+r.AnyHostReason)
	}
	for _, p := range r.Programs {
		programs = append(programs, agent.CommandLine(p.Argv)+" ("+p.For+")")
	}
	for _, s := range r.Secrets {
		text := s.Name + " → " + s.For
		if len(s.Hosts) > 0 {
			text += ", only to " + strings.Join(s.Hosts, ", ")
		}
		if !s.Required {
			text += " (optional)"
		}
		secrets = append(secrets, text)
	}
	add("Hosts", OrNone(hosts)...)
	add("Files", OrTheirs(a, r.Paths)...)
	add("Programs", OrTheirs(a, programs)...)
	add("Secrets", OrTheirs(a, secrets)...)
	add("Other agents", r.Agents...)
	add("Capabilities", a.Capabilities.Required...)
	add("Also uses, if held", a.Capabilities.Optional...)
	if res := a.Resources; res != nil {
		add("One run", fmt.Sprintf("%d ms", res.WallClock.Milliseconds()), fmt.Sprintf("%d MiB memory", res.MemoryMB), fmt.Sprintf("%d MiB disk", res.DiskMB), "network "+string(res.Network))
	}
	return facts
}

// Effects returns the side effects that an agent's tools may have, and those that its manifest
// rules out.
func Effects(a *agent.Agent, r agent.Reach) (may, never []string) {
	for _, class := range agent.SideEffects {
		switch {
		case slices.Contains(r.SideEffects, class):
			may = append(may, string(class))
		case a.SideEffects.Restricted && !a.SideEffects.Allows(class):
			never = append(never, string(class))
		}
	}
	if len(a.Requirements) > 0 {
		may = append(may, "the side effects of the tools that you grant")
	}
	return OrNone(may), never
}

// OrNone replaces an empty list by "none".
func OrNone(values []string) []string {
	if len(values) == 0 {
		return []string{"none"}
	}
	return values
}

// OrTheirs is OrNone with a note if unresolved servers would add to the list.
func OrTheirs(a *agent.Agent, values []string) []string {
	if len(a.Servers) < len(a.Requirements) {
		return append(slices.Clone(values), "those of the required servers")
	}
	return OrNone(values)
}

// Warnings lists what a reviewer of an agent should check first.
func Warnings(a *agent.Agent) []string {
	var out []string
	r := a.Reach()
	note := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for i := range a.Servers {
		s := &a.Servers[i]
		if s.Transport == agent.Stdio && (s.Placeholder || s.Digest == "") {
			note("server %s: no digest pins its package; the code that runs may differ from the reviewed code", s.Alias)
		}
		if s.Transport == agent.StreamableHTTP {
			note("server %s runs on another machine; its code cannot be verified here", s.Alias)
		}
	}
	unapproved := 0
	for i := range a.Tools {
		t := &a.Tools[i]
		if a.Callable(t) && t.SideEffect != agent.Read && !t.Policy.HumanApproval {
			unapproved++
		}
		if d := t.Annotations.Destructive; d != nil && *d && !t.Policy.HumanApproval && a.Callable(t) {
			note("tool %s is marked destructive and needs no approval", t.Name)
		}
	}
	if unapproved == 1 {
		note("1 tool with side effects may be called without approval")
	} else if unapproved > 1 {
		note("%d tools with side effects may be called without approval", unapproved)
	}
	if slices.Contains(r.SideEffects, agent.Shell) {
		note("it may run shell commands, and so do anything that its user may do")
	}
	if r.AnyHost {
		note("it can reach hosts that the manifest does not name: %s", r.AnyHostReason)
	}
	for _, s := range r.Secrets {
		if len(s.Hosts) == 0 {
			note("secret %s is given to %s, which may send it anywhere", s.Name, s.For)
		}
	}
	for _, path := range r.Paths {
		if slices.Contains([]string{"/", "~", "~/", "$env:HOME"}, path) {
			note("it may use %s and everything below it", path)
		}
	}
	if a.Delivery.Auth == "none" && slices.Contains(a.Delivery.Modes, "mcp.remote") {
		note("any client that knows its address may call it: auth is none")
	}
	if a.SideEffects.Restricted && len(a.SideEffects.Allowed) == 0 {
		note("no side effect is allowed, so every call will be refused")
	}
	return out
}
