package guard_test

import (
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/guard"
)

// The operator can name a tool as ambit prints it.
func TestNames(t *testing.T) {
	tool := &agent.Tool{Name: "write_file", SideEffect: agent.Write, Binding: agent.OnServer{Alias: "filesystem"}}
	for name, want := range map[string]bool{
		"write_file": true, "filesystem/write_file": true, "other/write_file": false, "file": false, "": false,
	} {
		if got := (guard.ApprovalRules{Tools: []string{name}}).Asks("desk", tool); got != want {
			t.Errorf("%q: got %t", name, got)
		}
	}
}
