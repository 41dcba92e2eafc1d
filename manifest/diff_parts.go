package manifest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
)

// This file compares the parts of an agent other than its tools.

func (d *differ) servers(old, new *agent.Agent) {
	key := func(s *agent.Server) string { return s.Alias }
	eachPair(old.Servers, new.Servers, key, func(alias string, before, after *agent.Server) {
		what := "server " + alias
		switch {
		case before == nil:
			d.widen("server", "new: %s, %s", alias, where(after))
			d.access(what+" access", nil, new.Access(after))
			d.access(what+" proposal", nil, after.Proposed)
			return
		case after == nil:
			d.narrow("server", "gone: %s, %s", alias, where(before))
			return
		}
		if where(before) != where(after) {
			// Different code or a different machine now serves the same alias.
			d.widen(what, "%s → %s", where(before), where(after))
		}
		d.text(what+" version", before.Version, after.Version)
		switch {
		case before.Digest == after.Digest:
		case after.Placeholder || after.Digest == "":
			d.widen(what, "the package is no longer pinned by a digest")
		case before.Placeholder || before.Digest == "":
			d.narrow(what, "the package is now pinned by a digest")
		default:
			d.widen(what, "runs a different package: %s → %s", before.Digest, after.Digest)
		}
		d.settings(what+" env", before.Env, after.Env)
		d.settings(what+" header", before.Headers, after.Headers)
		d.access(what+" access", old.Access(before), new.Access(after))
		d.access(what+" proposal", before.Proposed, after.Proposed)
	})
}

// access compares the rights of a server in the old manifest with its rights in the new manifest. The parameter what
// names the kind of rights: rights that follow from the manifest, or rights that the author proposes.
func (d *differ) access(what string, old, new agent.Access) {
	for _, r := range new {
		if !old.Allows(r) {
			d.widen(what, "new: %s", r)
		}
	}
	for _, r := range old {
		if !new.Allows(r) {
			d.narrow(what, "gone: %s", r)
		}
	}
}

func where(s *agent.Server) string {
	if s.Transport == agent.StreamableHTTP {
		return s.Endpoint
	}
	return agent.CommandLine(append([]string{s.Command}, s.Args...))
}

func (d *differ) settings(what string, old, new []agent.Setting) {
	key := func(s *agent.Setting) string { return s.Name }
	eachPair(old, new, key, func(name string, before, after *agent.Setting) {
		switch {
		// Without the reference, the server no longer gets the secret.
		case after == nil && isSecret(before):
			d.narrow(what, "gone: %s=%s", name, before.Value)
		// Treat every other difference as giving the agent more rights, because a setting can change a program in any
		// way. Examples are NODE_OPTIONS, a proxy, and the removal of READ_ONLY=1.
		case before == nil:
			d.widen(what, "new: %s=%s", name, after.Value)
		case after == nil:
			d.widen(what, "gone: %s", name)
		case before.Value != after.Value:
			d.widen(what, "%s=%s → %s", name, before.Value, after.Value)
		}
	})
}

// isSecret reports whether the value of a setting is a secret and nothing else.
func isSecret(s *agent.Setting) bool {
	return len(s.Refs) == 1 && s.Value == "$env:"+s.Refs[0] && !slices.Contains(agent.PlainEnv, s.Refs[0])
}

// reach compares what the old and the new agent can use: hosts, secrets, other agents and paths.
func (d *differ) reach(old, new agent.Reach) {
	hosts := func(r agent.Reach) (names []string) {
		for _, h := range r.Hosts {
			names = append(names, h.Name)
		}
		return names
	}
	d.compareSets("host", hosts(old), hosts(new))
	secrets := func(r agent.Reach) (names []string) {
		for _, s := range r.Secrets {
			names = append(names, s.Name)
		}
		return names
	}
	d.compareSets("secret", secrets(old), secrets(new))
	d.compareSets("agent called", old.Agents, new.Agents)
	d.compareSets("path", old.Paths, new.Paths)
	if !old.AnyHost && new.AnyHost {
		d.widen("host", "%s", new.AnyHostReason)
	} else if old.AnyHost && !new.AnyHost {
		d.narrow("host", "the agent can now connect only to the hosts that it names")
	}
}

func (d *differ) slots(old, new *agent.Agent) {
	key := func(s *agent.Slot) string { return s.Ref }
	eachPair(old.Slots, new.Slots, key, func(ref string, before, after *agent.Slot) {
		what := "credential slot " + ref
		switch {
		case before == nil:
			d.widen("credential slot", "new: %s, for %s", ref, strings.Join(after.Hosts, ", "))
			return
		case after == nil:
			d.narrow("credential slot", "gone: %s", ref)
			return
		}
		d.compareSets(what+" host", before.Hosts, after.Hosts)
		if before.Env != after.Env {
			d.widen(what, "now uses the environment variable %s instead of %s", after.Env, before.Env)
		}
		d.text(what+" type", before.Type, after.Type)
		d.compareSets(what+" scope", before.Scopes, after.Scopes)
		if before.Required != after.Required {
			d.change(what, "required %t → %t", before.Required, after.Required)
		}
	})
}

// needsGrant ends the line about a requested scope, because a request alone permits no call.
const needsGrant = "; this has an effect only if your policy grants it"

func (d *differ) requirements(old, new *agent.Agent) {
	key := func(r *agent.Requirement) string { return r.Server }
	eachPair(old.Requirements, new.Requirements, key, func(id string, before, after *agent.Requirement) {
		what := "server " + id
		switch {
		case before == nil:
			d.widen("server", "new: %s with scopes %s"+needsGrant, id, list(after.Scopes))
			d.access(what+" proposal", nil, after.Proposed)
			return
		case after == nil:
			d.narrow("server", "gone: %s", id)
			return
		}
		for _, s := range without(after.Scopes, before.Scopes) {
			d.widen(what+" scope", "new: %s"+needsGrant, s)
		}
		for _, s := range without(before.Scopes, after.Scopes) {
			d.narrow(what+" scope", "gone: %s", s)
		}
		d.access(what+" proposal", before.Proposed, after.Proposed)
		if before.Version != after.Version {
			d.widen(what, "accepts different versions: %s → %s", quoted(before.Version), quoted(after.Version))
		}
		if before.Optional != after.Optional {
			d.change(what, "optional %t → %t", before.Optional, after.Optional)
		}
	})
}

func list(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

func (d *differ) program(old, new *agent.Agent) {
	before, after := old.Program, new.Program
	switch {
	case before == nil && after == nil:
	case before == nil:
		d.widen("program", "new: runs %s", describe(after))
	case after == nil:
		d.narrow("program", "gone: %s", describe(before))
	default:
		if describe(before) != describe(after) || before.Contract != after.Contract {
			d.widen("program", "runs a different program: %s → %s", describe(before), describe(after))
		}
		if b, a := isolationRank[before.Isolation], isolationRank[after.Isolation]; b > a {
			d.widen("program isolation", "a weaker sandbox is enough: %s → %s", before.Isolation, orNone(after.Isolation))
		} else if b < a {
			d.narrow("program isolation", "needs a stronger sandbox: %s → %s", orNone(before.Isolation), after.Isolation)
		}
		d.text("program ui", before.UI, after.UI)
		if !slices.Equal(before.Env, after.Env) {
			d.change("program env", "the expected settings have changed")
		}
	}
}

var isolationRank = map[agent.Isolation]int{agent.StandardIsolation: 1, agent.StrongIsolation: 2}

func orNone(i agent.Isolation) agent.Isolation { return cmp.Or(i, "none required") }

func describe(p *agent.Program) string {
	parts := slices.DeleteFunc([]string{string(p.Runtime), p.Entry, p.Command}, func(s string) bool { return s == "" })
	text := agent.CommandLine(append(parts, p.Args...))
	if p.Export != "" {
		text += " (" + p.Export + ")"
	}
	return text
}

var networkRank = map[agent.NetworkAccess]int{agent.NetworkOff: 0, agent.NetworkHTTPS: 1, agent.NetworkFull: 2}

func (d *differ) resources(old, new *agent.Agent) {
	before, after := old.Resources, new.Resources
	switch {
	case before == nil && after == nil:
		return
	case after == nil:
		d.widen("resources", "no longer limited")
		return
	case before == nil:
		d.narrow("resources", "now limited")
		return
	}
	compareLimits(d, "cpu_ms_per_task", before.WallClock.Milliseconds(), after.WallClock.Milliseconds())
	compareLimits(d, "memory_mb", before.MemoryMB, after.MemoryMB)
	compareLimits(d, "disk_mb", before.DiskMB, after.DiskMB)
	switch b, a := networkRank[before.Network], networkRank[after.Network]; {
	case a > b:
		d.widen("network", "%s → %s", before.Network, after.Network)
	case a < b:
		d.narrow("network", "%s → %s", before.Network, after.Network)
	}
}

var priorityRank = map[agent.Priority]int{agent.PriorityLow: 0, agent.PriorityNormal: 1, agent.PriorityHigh: 2}

func (d *differ) settlement(old, new *agent.Agent) {
	before, after := old.Settlement, new.Settlement
	if before == nil || after == nil {
		if before != after {
			d.change("settlement", "%s → %s", present(before != nil), present(after != nil))
		}
		return
	}
	d.compareCapped("budget_credits_per_hour", before.CreditsPerHour, after.CreditsPerHour)
	switch b, a := priorityRank[before.Priority], priorityRank[after.Priority]; {
	case a > b:
		d.widen("priority", "%s → %s", before.Priority, after.Priority)
	case a < b:
		d.narrow("priority", "%s → %s", before.Priority, after.Priority)
	}
}

func present(b bool) string {
	if b {
		return "declared"
	}
	return "none"
}

func (d *differ) guardrails(old, new agent.Guardrails) {
	d.compareCapped("guardrail max_length", old.MaxLength, new.MaxLength)
	d.compareChecks("guardrail deny_patterns", old.DenyPatterns, new.DenyPatterns)
	d.compareChecks("guardrail pii_redaction", old.PII, new.PII)
	switch {
	case old.OutputSchema == new.OutputSchema:
	case new.OutputSchema == "":
		d.widen("guardrail output schema", "results are no longer checked")
	case old.OutputSchema == "":
		d.narrow("guardrail output schema", "results are now checked")
	default:
		d.widen("guardrail output schema", "the schema has changed and may accept different results")
	}
	if old.OnLeak != new.OnLeak {
		if old.OnLeak == agent.LeakBlock {
			d.widen("guardrail on_leak", "a result with a secret is no longer withheld")
		} else if new.OnLeak == agent.LeakBlock {
			d.narrow("guardrail on_leak", "a result with a secret is now withheld")
		}
	}
	switch {
	case old.OnResult == new.OnResult:
	case new.OnResult == "":
		d.widen("guardrail on_result", "personal data in results is no longer redacted")
	default:
		d.narrow("guardrail on_result", "personal data in results is now redacted")
	}
	if rank := func(g agent.Guardrails) int {
		return max(0, slices.Index(agent.InjectionActions, string(g.OnInjection)))
	}; rank(new) < rank(old) {
		d.widen("guardrail on_injection", "a result with an injection is treated less strictly")
	} else if rank(new) > rank(old) {
		d.narrow("guardrail on_injection", "a result with an injection is treated more strictly")
	}
}

var authRank = map[string]int{"": 0, "none": 0, "api-key": 1, "oauth-device": 2}

func (d *differ) delivery(old, new agent.Delivery) {
	switch b, a := authRank[old.Auth], authRank[new.Auth]; {
	case a < b:
		d.widen("auth", "%s → %s", quoted(old.Auth), quoted(new.Auth))
	case a > b:
		d.narrow("auth", "%s → %s", quoted(old.Auth), quoted(new.Auth))
	}
	d.text("exec", old.Exec, new.Exec)
	d.text("delivery", strings.Join(old.Modes, ", "), strings.Join(new.Modes, ", "))
	d.text("targets", strings.Join(old.Targets, ", "), strings.Join(new.Targets, ", "))
	before, after := agent.CommandLine(append([]string{old.Command},
		old.Args...)), agent.CommandLine(append([]string{new.Command}, new.Args...))
	if before != after {
		// ambit never runs this command, but a client may run it.
		d.widen("delivery command", "%s → %s", quoted(before), quoted(after))
	}
	if old.URL != new.URL {
		d.widen("delivery url", "%s → %s", quoted(old.URL), quoted(new.URL))
	}
}

func (d *differ) skills(old, new *agent.Agent) {
	before, after := skillIDs(old.Skills), skillIDs(new.Skills)
	// Skills are only text for the model. They do not change what the agent is allowed to do.
	for _, s := range without(after, before) {
		d.change("skill", "new: %s", s)
	}
	for _, s := range without(before, after) {
		d.change("skill", "gone: %s", s)
	}
	if old.Skills != nil && new.Skills != nil {
		if old.Skills.SourceKey != new.Skills.SourceKey {
			d.widen("skills source", "%s → %s", quoted(old.Skills.SourceKey), quoted(new.Skills.SourceKey))
		}
		d.text("router skill", old.Skills.Router, new.Skills.Router)
	}
}

func skillIDs(s *agent.Skills) []string {
	if s == nil {
		return nil
	}
	var ids []string
	for _, skill := range s.List {
		ids = append(ids, skill.ID)
	}
	return ids
}
