package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/serve/console"
)

// Facts lists what an agent may do and access. An empty list of permissions is shown as "none", because a reviewer
// must also see which permissions the agent does not have.
func Facts(a *agent.Agent, r agent.Reach) (facts []console.Fact) {
	add := adder(&facts)
	may, never := Effects(a, r)
	effects := strings.Join(may, ", ")
	if len(never) > 0 {
		effects += "  (never: " + strings.Join(never, ", ") + ")"
	}
	add("Side effects", effects)
	var hosts, programs, secrets []string
	for _, h := range r.Hosts {
		hosts = append(hosts, h.Name+"  ("+strings.Join(h.By, ", ")+")")
	}
	if r.AnyHost {
		hosts = append(hosts, "any: "+r.AnyHostReason)
	}
	for _, s := range r.Secrets {
		text := s.Name + "  → " + s.For
		if len(s.Hosts) > 0 {
			text += ", only to " + strings.Join(s.Hosts, ", ")
		}
		if !s.Required {
			text += " (optional)"
		}
		secrets = append(secrets, text)
	}
	for _, p := range r.Programs {
		text := agent.CommandLine(p.Argv) + "  (" + p.For + ")"
		if p.Digest != "" {
			text += "  " + ShortDigest(p.Digest)
		}
		programs = append(programs, text)
	}
	add("Hosts", OrNone(hosts)...)
	add("Files", OrTheirs(a, r.Paths)...)
	add("Secrets", OrTheirs(a, secrets)...)
	add("Programs", OrTheirs(a, programs)...)
	add("Settings", Settings(a)...)
	add("Agents", r.Agents...)
	for _, q := range a.Requirements {
		need := "Needs"
		if q.Optional {
			need = "Can use"
		}
		scopes := strings.Join(OrNone(q.Scopes), ", ")
		add(need, strings.TrimSpace(q.Server+" "+q.Version)+"  scopes: "+scopes)
	}
	capabilities := slices.Clone(a.Capabilities.Required)
	for _, c := range a.Capabilities.Optional {
		capabilities = append(capabilities, c+" (optional)")
	}
	add("Capabilities", capabilities...)
	add("Reached by", delivery(a.Delivery)...)
	return facts
}

// adder returns a function that appends a fact to the list. The function ignores a fact without values.
func adder(facts *[]console.Fact) func(label string, values ...string) {
	return func(label string, values ...string) {
		if len(values) > 0 {
			*facts = append(*facts, console.Fact{Label: label, Values: values})
		}
	}
}

// Limits lists the resources that one run of a program may use, and the program's budget.
func Limits(a *agent.Agent) (facts []console.Fact) {
	add := adder(&facts)
	if res := a.Resources; res != nil {
		add("One run", fmt.Sprintf("%d ms, %d MiB memory, %d MiB disk",
			res.WallClock.Milliseconds(), res.MemoryMB, res.DiskMB))
		add("Network", string(res.Network))
	}
	if s := a.Settlement; s != nil {
		budget := "no budget"
		if s.CreditsPerHour > 0 {
			budget = fmt.Sprintf("%d credits an hour", s.CreditsPerHour)
		}
		add("Cost", budget+", priority "+string(s.Priority))
	}
	return facts
}

// ShortDigest shortens a digest for display.
func ShortDigest(d string) string {
	if len(d) > 19 {
		return d[:19] + "…"
	}
	return d
}

// Settings lists the environment variables and headers that the manifest sets for servers. They can change the behavior
// of a server as much as its arguments can.
func Settings(a *agent.Agent) []string {
	var out []string
	for _, s := range a.Servers {
		for _, set := range slices.Concat(s.Env, s.Headers) {
			out = append(out, set.Name+"="+set.Value+"  (server "+s.Alias+")")
		}
	}
	return out
}

func delivery(d agent.Delivery) []string {
	var out []string
	for _, mode := range d.Modes {
		switch {
		case mode == "mcp.stdio" && d.Command != "":
			mode += ", " + agent.CommandLine(append([]string{d.Command}, d.Args...)) + " (ambit never runs this itself)"
		case mode == "mcp.remote":
			mode += ", auth " + cmp.Or(d.Auth, "as the daemon requires")
		}
		out = append(out, mode)
	}
	return out
}

// Effects returns the side effects that the agent's tools may have, and the side effects that the manifest forbids.
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
		may = append(may, "any side effect of a granted tool")
	}
	return OrNone(may), never
}

// OrNone returns the values, or "none" if there are none.
func OrNone(values []string) []string {
	if len(values) == 0 {
		return []string{"none"}
	}
	return values
}

// OrTheirs returns OrNone(values) if all required servers are resolved. If some are not resolved, the values are
// incomplete, and OrTheirs appends a note that says so.
func OrTheirs(a *agent.Agent, values []string) []string {
	if len(a.Servers) < len(a.Requirements) {
		return append(slices.Clone(values), "and whatever the required servers use")
	}
	return OrNone(values)
}

// Warnings lists what a reviewer should check first.
func Warnings(a *agent.Agent) []string {
	var out []string
	r := a.Reach()
	note := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for i := range a.Servers {
		s := &a.Servers[i]
		if s.Transport == agent.Stdio && (s.Placeholder || s.Digest == "") {
			note("server %s has no package digest, so the code that runs may differ from the reviewed code", s.Alias)
		}
		if s.Transport == agent.StreamableHTTP {
			note("server %s runs on another machine, so its code cannot be verified here", s.Alias)
		}
	}
	unapproved := 0
	for i := range a.Tools {
		t := &a.Tools[i]
		if a.Callable(t) && t.SideEffect != agent.Read && !t.Policy.HumanApproval {
			unapproved++
		}
		if d := t.Annotations.Destructive; d != nil && *d && !t.Policy.HumanApproval && a.Callable(t) {
			note("tool %s is marked destructive, but can be called without approval", t.Name)
		}
	}
	if unapproved == 1 {
		note("1 tool with side effects can be called without approval")
	} else if unapproved > 1 {
		note("%d tools with side effects can be called without approval", unapproved)
	}
	if slices.Contains(r.SideEffects, agent.Shell) {
		note("the agent can run shell commands, so it can do everything that the user who runs it can do")
	}
	if r.AnyHost {
		note("the agent can reach hosts that the manifest does not name: %s", r.AnyHostReason)
	}
	for _, s := range r.Secrets {
		if len(s.Hosts) == 0 {
			note("secret %s is given to %s, which can send the secret to any host", s.Name, s.For)
		}
	}
	for _, path := range r.Paths {
		if slices.Contains([]string{"/", "~", "~/", "$env:HOME"}, path) {
			note("the agent can use %s and everything below it", path)
		}
	}
	if a.Delivery.Auth == "none" && slices.Contains(a.Delivery.Modes, "mcp.remote") {
		note("\"auth\" is \"none\", so any client that knows the agent's address can call it")
	}
	if a.SideEffects.Restricted && len(a.SideEffects.Allowed) == 0 {
		note("no side effect is allowed, so every call will be refused")
	}
	return out
}
