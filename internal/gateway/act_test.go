package gateway

import (
	"math"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// A program's own wall-clock limit ends it, not the gateway: the timeout of the call is
// longer.
func TestTimeout(t *testing.T) {
	bounds := &agent.Resources{WallClock: 2 * time.Minute}
	for _, tt := range []struct {
		name   string
		bounds *agent.Resources
		tool   agent.Tool
		asked  time.Duration
		want   time.Duration
	}{
		{name: "nothing is said", want: 30 * time.Second},
		{name: "the tool's own", tool: agent.Tool{Timeout: 500 * time.Millisecond}, want: 500 * time.Millisecond},
		{name: "a program's, and its sandbox", bounds: bounds, tool: agent.Tool{Binding: agent.RunProgram{}}, want: 135 * time.Second},
		{name: "bounds of a program are not a server's", bounds: bounds, tool: agent.Tool{Binding: agent.OnServer{}}, want: 30 * time.Second},
		{name: "the caller can only shorten it", bounds: bounds, tool: agent.Tool{Binding: agent.RunProgram{}}, asked: time.Second, want: time.Second},
		{name: "and not lengthen it", tool: agent.Tool{Timeout: 500 * time.Millisecond}, asked: time.Hour, want: 500 * time.Millisecond},
		{name: "more than can be counted", bounds: &agent.Resources{WallClock: math.MaxInt64}, tool: agent.Tool{Binding: agent.RunProgram{}}, want: longest + sandboxTime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := &Gateway{agent: &agent.Agent{Resources: tt.bounds}}
			if got := g.timeout(&inflight{Call: &call.Call{Timeout: tt.asked}, tool: &tt.tool}); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
