// Package gate answers one question about a call: may it happen?
//
// The gate checks declarations and grants and, before a person is asked, that the
// credential exists. Only the user's rules read arguments here; package guard checks
// their content. The gate does not stop at the first denial: every rule gives a reason,
// so that ambit why can show all of them. One denying reason denies the call, and the
// first one is the refusal that the caller gets and the journal records.
//
// [Grants] contains the capabilities that an agent requires of its callers, [Policy] the
// user's rules. Both are checked on every call, and again in the transaction that
// commits to the call, so that a revocation takes effect at once. The context carries
// that transaction: see [state.Within].
package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Stage is the gate's name in reasons and refusals.
const Stage = "gate"

// Decision is a verdict with every reason for it.
type Decision struct {
	Allowed bool
	Reasons []call.Reason
	// Held are the agent's capabilities, required or optional, that the caller holds.
	Held []string
}

// Grants knows who holds which capabilities.
type Grants interface {
	// Missing returns the actions that a principal does not hold for this agent. An
	// error refuses the call, and the refusal quotes it.
	Missing(ctx context.Context, principal string, actions []string) (missing []string, err error)
}

// Policy is the user's own rules.
type Policy interface {
	// Judge returns a reason for each rule that applies to a call. The agent is
	// registered under name.
	Judge(ctx context.Context, a *agent.Agent, name string, t *agent.Tool, c *call.Call) []call.Reason
}

// Rules are checked besides the manifest. A nil rule is skipped; but without Grants
// no caller holds any capability.
type Rules struct {
	Grants Grants
	Policy Policy
	// Lacks returns the credential that a tool would lack; nil if none. It is checked
	// before a person is asked, so that no one approves a call that cannot be made.
	Lacks func(t *agent.Tool) *call.Refusal
}

// Decide judges a call to a tool of an agent that is registered under a name.
func Decide(ctx context.Context, a *agent.Agent, name string, t *agent.Tool, c *call.Call, rules Rules) Decision {
	d := Decision{Allowed: true}
	allow := func(why string) { d.add(call.Reason{Stage: Stage, Allowed: true, Detail: why}) }
	deny := func(code call.Code, why string) { d.add(call.Reason{Stage: Stage, Code: code, Detail: why}) }
	if _, native := t.Binding.(agent.Native); native {
		deny(call.NativeToolNotImplemented, "native tools are declared but cannot be called yet")
	}
	switch {
	case !a.SideEffects.Restricted:
		allow("the dialect does not restrict side effects; " + t.Name + " is " + string(t.SideEffect))
	case a.SideEffects.Allows(t.SideEffect):
		allow("its side effect " + string(t.SideEffect) + " is allowed")
	default:
		deny(call.SideEffectDenied, "its side effect "+string(t.SideEffect)+" is not in allowed_side_effects")
	}
	if c.Skill != nil {
		uri := t.Name // where the dialect gives tools no URI
		if t.URI != nil {
			uri = t.URI.String()
		}
		if c.Skill.Allows(uri) {
			allow("the skill " + c.Skill.Name() + " allows it")
		} else {
			deny(call.NotInSkillAllowlist, "the §TOOLS section of "+c.Skill.Name()+" does not list "+uri)
		}
	}
	if len(a.Capabilities.Required)+len(a.Capabilities.Optional) > 0 {
		d.capable(ctx, &a.Capabilities, c.Principal, rules.Grants)
	}
	if rules.Policy != nil {
		for _, r := range rules.Policy.Judge(ctx, a, name, t, c) {
			d.add(r)
		}
	} else if a.Dialect == agent.GPARS {
		// Only a policy grants scopes.
		deny(call.ScopeNotGranted, "there is no policy, so no scope is granted")
	}
	if t.Policy.HumanApproval && rules.Lacks != nil {
		if r := rules.Lacks(t); r != nil {
			d.add(r.Deny(Stage))
		}
	}
	return d
}

func (d *Decision) add(r call.Reason) {
	d.Allowed = d.Allowed && r.Allowed
	d.Reasons = append(d.Reasons, r)
}

// capable checks that the caller holds the required capabilities, and collects the
// optional ones.
func (d *Decision) capable(ctx context.Context, asked *agent.Capabilities, principal string, grants Grants) {
	all := slices.Concat(asked.Required, asked.Optional)
	missing, err := all, error(nil)
	if grants != nil {
		missing, err = grants.Missing(ctx, principal, all)
	}
	lacks := func(action string) bool { return slices.Contains(missing, action) }
	d.Held = slices.DeleteFunc(slices.Clone(all), lacks)
	required := slices.DeleteFunc(slices.Clone(asked.Required), func(action string) bool { return !lacks(action) })
	who := diag.Quote(principal)
	r := call.Reason{Stage: Stage}
	switch {
	case len(required) > 0:
		r.Code, r.Detail = call.CapabilityMissing, fmt.Sprintf("%s lacks %s, which the agent requires", who, strings.Join(required, ", "))
		r.Hint = grantHint(principal, required)
	case err != nil && len(missing) > 0:
		r.Code, r.Detail = call.CapabilityMissing, fmt.Sprintf("%s may not hold %s", who, strings.Join(missing, ", "))
		r.Hint = grantHint(principal, missing)
	case err != nil:
		r.Code, r.Detail = call.StoreUnavailable, fmt.Sprintf("the grants of %s cannot be read", who)
		d.Held = nil
	default:
		r.Allowed, r.Detail = true, heldDetail(who, d.Held, missing)
	}
	if err != nil {
		r.Detail += ": " + err.Error()
	}
	d.add(r)
}

func grantHint(principal string, actions []string) string {
	command := "grant it: ambit grant " + diag.ShellWord(principal)
	for _, action := range actions {
		command += " " + diag.ShellWord(action)
	}
	return command
}

func heldDetail(who string, held, missing []string) string {
	switch {
	case len(missing) == 0:
		return fmt.Sprintf("%s holds %s", who, strings.Join(held, ", "))
	case len(held) == 0:
		return fmt.Sprintf("%s lacks %s, which is optional", who, strings.Join(missing, ", "))
	}
	return fmt.Sprintf("%s holds %s and lacks %s, which is optional", who, strings.Join(held, ", "), strings.Join(missing, ", "))
}

// Refusal returns the first denial as a refusal, nil if the call is allowed.
func (d Decision) Refusal() *call.Refusal {
	for _, r := range d.Reasons {
		if !r.Allowed {
			return r.Refusal()
		}
	}
	return nil
}
