package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/ambit-run/ambit/agent"
)

// Change is a difference between two agents.
type Change struct {
	What   string `json:"what"`
	Detail string `json:"detail"`
}

// Delta is the difference between two versions of an agent. It helps a person to decide whether to approve the new
// version.
type Delta struct {
	// Widened lists changes that give the agent more rights, such as new actions, more hosts or higher spending limits.
	Widened []Change
	// Narrowed lists changes that give the agent fewer rights.
	Narrowed []Change
	// Changed lists all other differences.
	Changed []Change
}

// Diff compares two versions of an agent. If the effect of a change is unclear, the change is listed in Widened.
func Diff(old, new *agent.Agent) Delta {
	var d differ
	d.text("dialect", string(old.Dialect), string(new.Dialect))
	d.text("id", old.ID, new.ID)
	d.text("name", old.Name, new.Name)
	d.text("description", old.Description, new.Description)
	d.text("version", old.Version, new.Version)
	if old.Kind != new.Kind {
		d.widen("kind", "%s → %s", old.Kind, new.Kind)
	}
	d.text("prompt", old.Prompt, new.Prompt)
	d.text("example prompts", strings.Join(old.Examples, "\n"), strings.Join(new.Examples, "\n"))
	d.text("category", old.Category, new.Category)
	d.sideEffects(old, new)
	d.tools(old, new)
	d.servers(old, new)
	d.reach(old.Reach(), new.Reach())
	d.slots(old, new)
	d.requirements(old, new)
	d.compareSets("capability", old.Capabilities.Required, new.Capabilities.Required)
	d.compareSets("optional capability", old.Capabilities.Optional, new.Capabilities.Optional)
	d.program(old, new)
	d.resources(old, new)
	d.settlement(old, new)
	d.guardrails(old.Guardrails, new.Guardrails)
	d.delivery(old.Delivery, new.Delivery)
	d.skills(old, new)
	return d.Delta
}

type differ struct{ Delta }

func (d *differ) widen(what, format string, args ...any) {
	d.Widened = append(d.Widened, Change{what, fmt.Sprintf(format, args...)})
}

func (d *differ) narrow(what, format string, args ...any) {
	d.Narrowed = append(d.Narrowed, Change{what, fmt.Sprintf(format, args...)})
}

func (d *differ) change(what, format string, args ...any) {
	d.Changed = append(d.Changed, Change{what, fmt.Sprintf(format, args...)})
}

func (d *differ) text(what, old, new string) {
	switch {
	case old == new:
	case new == "" && len(old) > 60:
		d.change(what, "removed (%d characters)", len([]rune(old)))
	case old == "" && len(new) > 60:
		d.change(what, "added (%d characters)", len([]rune(new)))
	case len(old)+len(new) > 120 || strings.ContainsAny(old+new, "\n"):
		d.change(what, "rewritten (%d → %d characters)", len([]rune(old)), len([]rune(new)))
	default:
		d.change(what, "%s → %s", quoted(old), quoted(new))
	}
}

func quoted(s string) string {
	if s == "" {
		return "nothing"
	}
	return fmt.Sprintf("%q", s)
}

// compareSets compares two sets of permissions. A new permission gives the agent more rights, and a removed permission
// gives it fewer.
func (d *differ) compareSets(what string, old, new []string) {
	for _, s := range without(new, old) {
		d.widen(what, "new: %s", s)
	}
	for _, s := range without(old, new) {
		d.narrow(what, "gone: %s", s)
	}
}

// compareChecks compares two sets of checks. A removed check gives the agent more rights, and a new check gives it
// fewer.
func (d *differ) compareChecks(what string, old, new []string) {
	for _, s := range without(old, new) {
		d.widen(what, "no longer: %s", s)
	}
	for _, s := range without(new, old) {
		d.narrow(what, "new: %s", s)
	}
}

func without(list, other []string) []string {
	seen := make(map[string]bool, len(other))
	for _, s := range other {
		seen[s] = true
	}
	var out []string
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// compareLimits compares two limits. A higher limit gives the agent more rights.
func compareLimits[T cmp.Ordered](d *differ, what string, old, new T) {
	switch {
	case new > old:
		d.widen(what, "%v → %v", old, new)
	case new < old:
		d.narrow(what, "%v → %v", old, new)
	}
}

// compareCapped compares two limits, where 0 means that there is no limit.
func (d *differ) compareCapped(what string, old, new int64) {
	switch {
	case old == new:
	case new == 0:
		d.widen(what, "%d → no limit", old)
	case old == 0:
		d.narrow(what, "no limit → %d", new)
	default:
		compareLimits(d, what, old, new)
	}
}

func (d *differ) sideEffects(old, new *agent.Agent) {
	classes := func(a *agent.Agent) []string {
		if !a.SideEffects.Restricted {
			return words(a.Reach().SideEffects)
		}
		return words(a.SideEffects.Allowed)
	}
	if old.SideEffects.Restricted || new.SideEffects.Restricted {
		d.compareSets("side effect", classes(old), classes(new))
	}
}

func words[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// toolKey returns a key that identifies a tool within an agent. The key stays the same when the tool's version
// changes.
func toolKey(t *agent.Tool) string {
	switch b := t.Binding.(type) {
	case agent.OnServer:
		return b.Alias + "/" + t.Name
	case agent.Native:
		return "native " + b.Namespace + "/" + t.Name
	}
	return t.Name
}

func byKey[T any](list []T, key func(*T) string) (map[string]*T, []string) {
	m := make(map[string]*T, len(list))
	var keys []string
	for i := range list {
		k := key(&list[i])
		if m[k] == nil {
			keys = append(keys, k)
		}
		m[k] = &list[i]
	}
	return m, keys
}

// eachPair calls f once for every key in the two lists, with the old and the new element. An element is nil if its list
// does not contain the key.
func eachPair[T any](old, new []T, key func(*T) string, f func(key string, old, new *T)) {
	before, oldKeys := byKey(old, key)
	after, newKeys := byKey(new, key)
	for _, k := range oldKeys {
		f(k, before[k], after[k])
	}
	for _, k := range newKeys {
		if before[k] == nil {
			f(k, nil, after[k])
		}
	}
}

func (d *differ) tools(old, new *agent.Agent) {
	eachPair(old.Tools, new.Tools, toolKey, func(name string, before, after *agent.Tool) {
		switch {
		case before == nil && new.Callable(after):
			d.widen("tool", "new: %s (%s)", name, after.SideEffect)
		case before == nil:
			d.change("tool", "new, but not callable: %s (%s)", name, after.SideEffect)
		case after == nil:
			d.narrow("tool", "gone: %s (%s)", name, before.SideEffect)
		default:
			d.tool(name, before, after, old.Callable(before), new.Callable(after))
		}
	})
}

func (d *differ) tool(name string, old, new *agent.Tool, could, can bool) {
	what := "tool " + name
	switch {
	case can && !could:
		d.widen(what, "can now be called")
	case could && !can:
		d.narrow(what, "can no longer be called")
	}
	switch {
	case new.SideEffect.Rank() > old.SideEffect.Rank():
		d.widen(what, "side effect %s → %s", old.SideEffect, new.SideEffect)
	case new.SideEffect != old.SideEffect && runsProgram(old) && runsProgram(new):
		// The sandbox enforces the class of a program, so the program itself can do less.
		d.narrow(what, "side effect %s → %s", old.SideEffect, new.SideEffect)
	case new.SideEffect != old.SideEffect:
		// Policy rules for the old class no longer apply, even if the tool itself is the same.
		d.widen(what, "side effect %s → %s, so the policy rules for %s no longer apply to this tool", old.SideEffect,
			new.SideEffect, old.SideEffect)
	}
	d.text(what+" description", old.Description, new.Description)
	if old.InputSchema != new.InputSchema {
		d.widen(what+" input schema", "the schema has changed and may accept different arguments")
	}
	d.text(what+" output schema", old.OutputSchema, new.OutputSchema)
	d.compareCapped(what+" timeout_ms", old.Timeout.Milliseconds(), new.Timeout.Milliseconds())
	d.binding(what, old.Binding, new.Binding)
	d.policy(what, old.Policy, new.Policy)
	d.annotations(what, old.Annotations, new.Annotations)
}

// runsProgram reports whether a tool runs the agent's own program.
func runsProgram(t *agent.Tool) bool {
	_, ok := t.Binding.(agent.RunProgram)
	return ok
}

// annotations compares a tool's hints about its own behaviour. Removing a hint about a danger gives the agent more
// rights, because policy rules that refuse tools with this hint no longer apply.
func (d *differ) annotations(what string, old, new agent.Annotations) {
	isSet := func(b *bool) bool { return b != nil && *b }
	if isSet(old.Destructive) && !isSet(new.Destructive) {
		d.widen(what, "is no longer marked as destructive")
	}
	if isSet(old.OpenWorld) && !isSet(new.OpenWorld) {
		d.widen(what, "is no longer marked as using external services")
	}
	if !isSet(old.Idempotent) && isSet(new.Idempotent) {
		d.change(what, "is now marked as safe to repeat")
	}
}

func (d *differ) binding(what string, old, new agent.Binding) {
	if old == nil || new == nil {
		if old != new {
			d.change(what, "action %s → %s", bindingKind(old), bindingKind(new))
		}
		return
	}
	before, sameKind := old.(agent.HTTP)
	after, http := new.(agent.HTTP)
	switch {
	case bindingKind(old) != bindingKind(new):
		d.widen(what, "has a different kind of action: %s → %s", bindingKind(old), bindingKind(new))
	case sameKind && http:
		// The effect of a different method, URL, body or header is unknown, so the change is listed in Widened.
		if before.Method != after.Method || before.URL != after.URL {
			d.widen(what, "sends a different request: %s %s → %s %s", before.Method, before.URL, after.Method, after.URL)
		}
		if before.Body != after.Body || !maps.Equal(before.Headers, after.Headers) {
			d.widen(what, "sends a different body or headers")
		}
		if before.AuthRef != after.AuthRef {
			if after.AuthRef != "" {
				d.widen(what, "now uses the credential %s", after.AuthRef)
			} else {
				d.narrow(what, "no longer uses the credential %s", before.AuthRef)
			}
		}
	case old == new:
	case bindingKind(old) == "prompt-template":
		d.change(what, "has a different template")
	default:
		d.widen(what, "has a different action: %+v → %+v", old, new)
	}
}

func bindingKind(b agent.Binding) string {
	if b == nil {
		return "none"
	}
	return b.Kind()
}

func (d *differ) policy(what string, old, new agent.ToolPolicy) {
	if old.HumanApproval != new.HumanApproval {
		if old.HumanApproval {
			d.widen(what, "no longer needs human approval")
		} else {
			d.narrow(what, "now needs human approval")
		}
	}
	if old.Idempotent != new.Idempotent {
		if new.Idempotent {
			d.widen(what, "its calls can now be repeated after a crash")
		} else {
			d.narrow(what, "its calls can no longer be repeated after a crash")
		}
	}
	switch before, after := old.Rate, new.Rate; {
	case before == nil && after == nil || before != nil && after != nil && *before == *after:
	case after == nil:
		d.widen(what, "rate limit %s → none", before)
	case before == nil:
		d.narrow(what, "rate limit none → %s", after)
	case after.AtMost(*before):
		d.narrow(what, "rate limit %s → %s", before, after)
	default:
		d.widen(what, "rate limit %s → %s", before, after)
	}
	d.spend(what, old.Spend, new.Spend)
}

func (d *differ) spend(what string, old, new *agent.Cap) {
	before, after := cmp.Or(old, &agent.Cap{}), cmp.Or(new, &agent.Cap{})
	if before.Currency != after.Currency && old != nil && new != nil {
		d.widen(what, "currency %s → %s", quoted(before.Currency), quoted(after.Currency))
	}
	for _, c := range []struct{ name, old, new string }{
		{"spending per call", before.PerCall, after.PerCall},
		{"spending per day", before.PerDay, after.PerDay},
	} {
		shown := func(s string) string { return cmp.Or(s, "no cap") }
		switch {
		case agent.AmountAtMost(c.new, c.old) && agent.AmountAtMost(c.old, c.new):
		case agent.AmountAtMost(c.new, c.old):
			d.narrow(what, "%s %s → %s", c.name, shown(c.old), shown(c.new))
		default:
			d.widen(what, "%s %s → %s", c.name, shown(c.old), shown(c.new))
		}
	}
}
