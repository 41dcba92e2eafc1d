package gate

import (
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Only a policy grants scopes to a GPARS agent, so its calls are denied without a policy. In the other dialects the
// manifest itself allows the call.
func TestWithoutAPolicy(t *testing.T) {
	tool := &agent.Tool{Name: "look", SideEffect: agent.Read}
	for dialect, allowed := range map[agent.Dialect]bool{agent.GPARS: false, agent.Matrix: true, agent.Covenant: true, agent.FindAgent: true} {
		d := Decide(t.Context(), &agent.Agent{Dialect: dialect}, "a", tool, &call.Call{}, Rules{})
		if d.Allowed != allowed {
			t.Errorf("%s: got the decision %+v", dialect, d)
		}
		if r := d.Refusal(); !allowed && (r == nil || r.Code != call.ScopeNotGranted) {
			t.Errorf("%s: got the refusal %v", dialect, r)
		}
	}
}
