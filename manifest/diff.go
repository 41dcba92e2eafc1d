package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/ambit-run/ambit/agent"
)

// Change is one difference between two agents.
type Change struct {
	What   string `json:"what"`
	Detail string `json:"detail"`
}

// Delta is the difference between two versions of an agent, as seen by the person who
// approved the old one.
type Delta struct {
	// Widened lists what only the new version may do, reach or spend.
	Widened []Change
	// Narrowed lists what only the old version could.
	Narrowed []Change
	// Changed lists differences that neither widen nor narrow.
	Changed []Change
}

// Diff compares two agents. A change that may give the agent more counts as widened.
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
	d.set("capability", old.Capabilities.Required, new.Capabilities.Required)
	d.set("optional capability", old.Capabilities.Optional, new.Capabilities.Optional)
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

// set compares two lists as sets: more is wider.
func (d *differ) set(what string, old, new []string) {
	for _, s := range without(new, old) {
		d.widen(what, "new: %s", s)
	}
	for _, s := range without(old, new) {
		d.narrow(what, "gone: %s", s)
	}
}

// checks compares two lists of checks as sets: fewer is wider.
func (d *differ) checks(what string, old, new []string) {
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

// number compares two limits: larger is wider.
func number[T cmp.Ordered](d *differ, what string, old, new T) {
	switch {
	case new > old:
		d.widen(what, "%v → %v", old, new)
	case new < old:
		d.narrow(what, "%v → %v", old, new)
	}
}

// capped compares two limits, for which 0 means no limit.
func (d *differ) capped(what string, old, new int64) {
	switch {
	case old == new:
	case new == 0:
		d.widen(what, "%d → no limit", old)
	case old == 0:
		d.narrow(what, "no limit → %d", new)
	default:
		number(d, what, old, new)
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
		d.set("side effect", classes(old), classes(new))
	}
}

func words[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// toolKey names a tool within an agent, whatever its version.
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

// pairs calls f for every key of either list, with nil if one list lacks it.
func pairs[T any](old, new []T, key func(*T) string, f func(key string, old, new *T)) {
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
	pairs(old.Tools, new.Tools, toolKey, func(name string, before, after *agent.Tool) {
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
		d.widen(what, "may be called now")
	case could && !can:
		d.narrow(what, "may no longer be called")
	}
	switch {
	case new.SideEffect.Rank() > old.SideEffect.Rank():
		d.widen(what, "side effect %s → %s", old.SideEffect, new.SideEffect)
	case new.SideEffect != old.SideEffect:
		// The tool is the same, but fewer rules apply to it.
		d.widen(what, "relabelled %s → %s: rules on %s no longer apply to it", old.SideEffect, new.SideEffect, old.SideEffect)
	}
	d.text(what+" description", old.Description, new.Description)
	if old.InputSchema != new.InputSchema {
		d.widen(what+" input schema", "rewritten: other arguments may pass")
	}
	d.text(what+" output schema", old.OutputSchema, new.OutputSchema)
	d.capped(what+" timeout_ms", old.Timeout.Milliseconds(), new.Timeout.Milliseconds())
	d.binding(what, old.Binding, new.Binding)
	d.policy(what, old.Policy, new.Policy)
	d.annotations(what, old.Annotations, new.Annotations)
}

// annotations compares a tool's hints about itself. Without a hint of danger the tool
// passes where it was refused before.
func (d *differ) annotations(what string, old, new agent.Annotations) {
	says := func(b *bool) bool { return b != nil && *b }
	if says(old.Destructive) && !says(new.Destructive) {
		d.widen(what, "is no longer marked destructive")
	}
	if says(old.OpenWorld) && !says(new.OpenWorld) {
		d.widen(what, "is no longer marked as reaching outside")
	}
	if !says(old.Idempotent) && says(new.Idempotent) {
		d.change(what, "is now marked as repeatable")
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
		d.widen(what, "has another binding: %s → %s", bindingKind(old), bindingKind(new))
	case sameKind && http:
		// Another request can have any effect on the service.
		if before.Method != after.Method || before.URL != after.URL {
			d.widen(what, "sends another request: %s %s → %s %s", before.Method, before.URL, after.Method, after.URL)
		}
		if before.Body != after.Body || !maps.Equal(before.Headers, after.Headers) {
			d.widen(what, "sends another body or other headers")
		}
		if before.AuthRef != after.AuthRef {
			if after.AuthRef != "" {
				d.widen(what, "is given the credential %s", after.AuthRef)
			} else {
				d.narrow(what, "is no longer given the credential %s", before.AuthRef)
			}
		}
	case old == new:
	case bindingKind(old) == "prompt-template":
		d.change(what, "its template has changed")
	default:
		d.widen(what, "does something else: %+v → %+v", old, new)
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
			d.widen(what, "no longer needs a person's approval")
		} else {
			d.narrow(what, "now needs a person's approval")
		}
	}
	if old.Idempotent != new.Idempotent {
		if new.Idempotent {
			d.widen(what, "may now be repeated after a crash")
		} else {
			d.narrow(what, "may no longer be repeated after a crash")
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
