package gateway

import (
	"math"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// The timeout of a call is longer than the wall-clock limit of its program. The limit must end the program
// before the gateway stops waiting.
func TestTimeout(t *testing.T) {
	bounds := &agent.Resources{WallClock: 2 * time.Minute}
	for _, tt := range []struct {
		name   string
		bounds *agent.Resources
		tool   agent.Tool
		asked  time.Duration
		want   time.Duration
	}{
		{name: "default", want: 30 * time.Second},
		{name: "timeout of the tool", tool: agent.Tool{Timeout: 500 * time.Millisecond}, want: 500 * time.Millisecond},
		{name: "wall-clock limit of a program plus sandbox time", bounds: bounds, tool: agent.Tool{Binding: agent.RunProgram{}}, want: 135 * time.Second},
		{name: "a wall-clock limit does not apply to a server", bounds: bounds, tool: agent.Tool{Binding: agent.OnServer{}}, want: 30 * time.Second},
		{name: "the caller can shorten the timeout", bounds: bounds, tool: agent.Tool{Binding: agent.RunProgram{}}, asked: time.Second, want: time.Second},
		{name: "the caller cannot lengthen the timeout", tool: agent.Tool{Timeout: 500 * time.Millisecond}, asked: time.Hour, want: 500 * time.Millisecond},
		{name: "a wall-clock limit that almost overflows a duration", bounds: &agent.Resources{WallClock: math.MaxInt64}, tool: agent.Tool{Binding: agent.RunProgram{}}, want: maxTimeout + sandboxTime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := &Gateway{agent: &agent.Agent{Resources: tt.bounds}}
			if got := g.timeout(&inflight{Call: &call.Call{Timeout: tt.asked}, tool: &tt.tool}); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
