package gateway

import (
	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Listed returns the agent and, for each of its tools, whether to hide the tool from the caller of c. A tool is hidden
// if the policy denies every call to it by this caller. A nil slice means that no tool is hidden.
func (g *Gateway) Listed(c *call.Call) (*agent.Agent, []bool) {
	a := g.Agent()
	if g.options.Rules.Policy == nil {
		return a, nil
	}
	return a, g.options.Rules.Policy.Hidden(a, g.name, c)
}

// Offers reports whether the policy can allow a request for an item of a list, such as a resource or a prompt. If open
// is not empty, it is the name of an argument whose value is unknown. If the request has no server, the item belongs to
// the agent itself.
func (g *Gateway) Offers(f *call.Forward, open string) bool {
	if g.options.Rules.Policy == nil {
		return true
	}
	var b agent.Binding
	if f.Server != "" {
		b = agent.OnServer{Alias: f.Server}
	}
	t, c := asRulesSee(f, b)
	return g.options.Rules.Policy.Could(g.Agent(), g.name, t, c, open)
}

// PolicyVersion returns a value that changes when the answers of [Gateway.Offers] for the caller of c may have changed.
func (g *Gateway) PolicyVersion(c *call.Call) any {
	if g.options.Rules.Policy == nil {
		return nil
	}
	return g.options.Rules.Policy.Version(g.Agent(), g.name, c)
}

// hides returns nil if the tool is listed for the caller of c. Otherwise it returns the reason why the tool is hidden.
func (g *Gateway) hides(t *agent.Tool, c *call.Call) *call.Reason {
	a, hidden := g.Listed(c)
	for i, hides := range hidden {
		if hides && &a.Tools[i] == t {
			return &call.Reason{
				Stage: stageResolve, Code: call.PolicyDenied,
				Detail: "tools/list hides the tool from this caller, because the policy denies the call with any arguments",
			}
		}
	}
	return nil
}
