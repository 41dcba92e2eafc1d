package daemon

import (
	"slices"
	"testing"

	"github.com/ambit-run/ambit/internal/supply/pack"
)

// The agents of a folder share its lock file. A change of the file restarts only the agents whose entries changed.
func TestReloadWithASharedLock(t *testing.T) {
	lock := func(alpha, beta string) string {
		return `{"version": 1, "agents": {"matrix://agent/alpha": {"servers": {}` + alpha +
			`}, "matrix://agent/beta": {"servers": {}` + beta + `}}}`
	}
	r := newRig(t, map[string]string{
		"alpha.json": matrix("alpha"), "beta.json": matrix("beta"), pack.LockName: lock("", ""),
	}, nil)
	r.Prove(t.Context())
	alpha, beta := r.agent("alpha"), r.agent("beta")
	r.write(pack.LockName, lock("", `, "quarantined": ["demo"]`))
	c, err := r.Reload(t.Context())
	if err != nil || !slices.Equal(c.Changed, []string{"beta"}) {
		t.Fatalf("the reload changed %v, %v", c.Changed, err)
	}
	if r.agent("alpha") != alpha || r.agent("beta") == beta {
		t.Error("the reload restarted another agent than the one with another entry")
	}
}
