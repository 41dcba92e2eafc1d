// Package gate answers one question about a call: may it happen?
//
// It looks only at what was declared and granted, never at the content of the
// arguments; that is the guard's work. It does not stop at the first no: every
// rule gives its reason, so that a person who asks why sees all of them, and
// the journal keeps them. The verdict is no if any reason is.
package gate

import (
	"fmt"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
)

// Stage is the gate's name in reasons and refusals.
const Stage = "gate"

// Decision is a verdict with every reason for it.
type Decision struct {
	Allowed bool
	Reasons []call.Reason
}

// Decide judges a call to a tool of an agent.
func Decide(a *agent.Agent, t *agent.Tool, c *call.Call) Decision {
	d := Decision{Allowed: true}
	add := func(code call.Code, allowed bool, format string, args ...any) {
		if allowed {
			code = ""
		}
		d.Allowed = d.Allowed && allowed
		d.Reasons = append(d.Reasons, call.Reason{Stage: Stage, Code: code, Allowed: allowed, Detail: fmt.Sprintf(format, args...)})
	}
	if _, native := t.Binding.(agent.Native); native {
		add(call.NativeToolNotImplemented, false, "native tools are declared but cannot be called yet")
	}
	switch {
	case !a.SideEffects.Restricted:
		add("", true, "the dialect does not restrict side effects; %s is %s", t.Name, t.SideEffect)
	case a.SideEffects.Allows(t.SideEffect):
		add("", true, "its side effect %s is allowed", t.SideEffect)
	default:
		add(call.SideEffectDenied, false, "its side effect %s is not in allowed_side_effects", t.SideEffect)
	}
	if c.Skill != nil {
		uri := t.Name // where the dialect gives tools no URI
		if t.URI != nil {
			uri = t.URI.String()
		}
		if c.Skill.Allows(uri) {
			add("", true, "the skill %s allows it", c.Skill.Name())
		} else {
			add(call.NotInSkillAllowlist, false, "the §TOOLS section of %s does not list %s", c.Skill.Name(), uri)
		}
	}
	return d
}

// Refusal is the first no of a decision, nil if there is none.
func (d Decision) Refusal() *call.Refusal {
	for _, r := range d.Reasons {
		if !r.Allowed {
			return call.Refuse(Stage, r.Code, "%s", r.Detail)
		}
	}
	return nil
}
