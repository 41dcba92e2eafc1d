// Package gate decides whether a call is allowed.
//
// The gate checks the agent's manifest, the caller's capabilities and the user's policy. If a tool needs approval,
// the gate also checks that the tool's credential exists. Of these checks, only the policy reads the arguments.
// Package guard checks the content of the arguments.
//
// One denial is enough to deny the call. The gate still evaluates every rule, because `ambit why` shows all reasons.
// The caller and the journal get only the first denial.
//
// Every call is checked twice. The second check runs in the transaction that is committed just before the call is sent,
// so that a revocation takes effect at once. The context contains this transaction (see [state.Within]).
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

// Decision is the gate's verdict on a call, with all reasons.
type Decision struct {
	Allowed bool
	Reasons []call.Reason
	// Held lists the capabilities that the caller holds. It contains only capabilities from the agent's manifest.
	Held []string
}

// Grants reports which capabilities a principal holds.
type Grants interface {
	// Missing returns the given actions that the principal does not hold for this agent. If Missing returns an error,
	// the call is refused and the refusal quotes the error.
	Missing(ctx context.Context, principal string, actions []string) (missing []string, err error)
}

// Policy applies the user's policy rules.
type Policy interface {
	// Judge returns a reason for each policy rule that applies to the call. Rules know the agent by the given name.
	Judge(ctx context.Context, a *agent.Agent, name string, t *agent.Tool, c *call.Call) []call.Reason
	// Possible reports whether the policy can allow a call to the tool.
	Possible(a *agent.Agent, name string, t *agent.Tool) bool
	// Hidden reports for each tool of the agent whether the policy denies every call to it by the caller of c, with any
	// arguments. Nil means that no tool is hidden.
	Hidden(a *agent.Agent, name string, c *call.Call) []bool
	// Could reports whether the policy can allow a request with the arguments of c. If open is not empty, it is the name
	// of one more argument, whose value is unknown.
	Could(a *agent.Agent, name string, t *agent.Tool, c *call.Call, open string) bool
	// Version returns a value that changes when the policy's answers for the caller of c may have changed.
	Version(a *agent.Agent, name string, c *call.Call) any
}

// Rules contains the checks that are made in addition to the manifest's own rules. A nil field disables its check.
// Grants is an exception: if it is nil, no caller holds any capability.
type Rules struct {
	Grants Grants
	Policy Policy
	// Lacks returns a refusal if the credential of the tool is missing. It is called only for tools that need approval, so
	// that no approval is requested for a call that would fail.
	Lacks func(t *agent.Tool) *call.Refusal
}

// Decide judges a call to a tool of an agent. Policy rules know the agent by the given name.
func Decide(ctx context.Context, a *agent.Agent, name string, t *agent.Tool, c *call.Call, rules Rules) Decision {
	d := Decision{Allowed: true}
	allow := func(why string) { d.add(call.Reason{Stage: Stage, Allowed: true, Detail: why}) }
	deny := func(code call.Code, why string) { d.add(call.Reason{Stage: Stage, Code: code, Detail: why}) }
	if _, native := t.Binding.(agent.Native); native {
		deny(call.NativeToolNotImplemented, "native tools can be declared but cannot be called yet")
	}
	switch {
	case !a.SideEffects.Restricted:
		allow("the manifest's dialect allows every side-effect class; " + t.Name + " has the class " + string(t.SideEffect))
	case a.SideEffects.Allows(t.SideEffect):
		allow("the side-effect class " + string(t.SideEffect) + " is allowed")
	default:
		deny(call.SideEffectDenied, "the side-effect class "+string(t.SideEffect)+" is not in allowed_side_effects")
	}
	if c.Skill != nil {
		uri := t.Name // some dialects have no tool URIs
		if t.URI != nil {
			uri = t.URI.String()
		}
		if c.Skill.Allows(uri) {
			allow("the skill " + c.Skill.Name() + " allows the tool")
		} else {
			deny(call.NotInSkillAllowlist, "the §TOOLS section of "+c.Skill.Name()+" does not list "+uri)
		}
	}
	if len(a.Capabilities.Required)+len(a.Capabilities.Optional) > 0 {
		d.checkCapabilities(ctx, &a.Capabilities, c.Principal, rules.Grants)
	}
	if rules.Policy != nil {
		for _, r := range rules.Policy.Judge(ctx, a, name, t, c) {
			d.add(r)
		}
	} else if a.Dialect == agent.GPARS {
		// Only a policy can grant scopes.
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

// checkCapabilities checks that the caller holds all required capabilities. It also sets d.Held.
func (d *Decision) checkCapabilities(ctx context.Context, asked *agent.Capabilities, principal string, grants Grants) {
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
	case err != nil && ctx.Err() != nil:
		r.Code, r.Detail = call.TimedOut, "the call was cancelled before it was made"
		d.Held = nil
	case len(required) > 0:
		r.Code, r.Detail = call.CapabilityMissing,
			fmt.Sprintf("%s lacks %s, which the agent requires", who, strings.Join(required, ", "))
		r.Hint = grantHint(principal, required)
	case err != nil && len(missing) > 0:
		r.Code, r.Detail = call.CapabilityMissing, fmt.Sprintf(
			"cannot confirm that %s holds %s", who, strings.Join(missing, ", "))
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
	command := "grant the capability: ambit grant " + diag.ShellWord(principal)
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
	return fmt.Sprintf("%s holds %s but not the optional %s", who, strings.Join(held, ", "),
		strings.Join(missing, ", "))
}

// Refusal returns a refusal with the first reason that denies the call. It returns nil if the call is allowed.
func (d Decision) Refusal() *call.Refusal {
	for _, r := range d.Reasons {
		if !r.Allowed {
			return r.Refusal()
		}
	}
	return nil
}
