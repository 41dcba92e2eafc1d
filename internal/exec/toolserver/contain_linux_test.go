package toolserver

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Where programs have to be contained and cannot be, none is started, and nothing
// reaches one. It is not tried again, and says so each time.
func TestMustBeContained(t *testing.T) {
	r := newRig(t)
	was := bubblewrap
	t.Cleanup(func() { bubblewrap = was })
	bubblewrap = func() string { return "" }
	r.o.Contain, r.o.Persist = true, true
	for _, alias := range []string{"one", "two"} {
		r.fake(alias, []string{"echo"})
	}
	m := r.start()
	for _, p := range m.Proofs() {
		if p.OK || p.Contained {
			t.Errorf("%s is proven: %+v", p.Alias, p)
		}
		is(t, p.Refusal, call.IsolationUnavailable, call.NoEffect, false)
		_, refusal := r.call(m, p.Alias, "echo", `{}`)
		is(t, refusal, call.IsolationUnavailable, call.NoEffect, false)
		_, err := m.Forward(t.Context(), &call.Forward{Server: p.Alias, Method: "resources/list", Params: jsontext.Value(`{}`)})
		is(t, call.AsRefusal(stage, err), call.IsolationUnavailable, call.NoEffect, false)
		if lives := r.read(p.Alias + "/lives"); lives != "" {
			t.Errorf("%s was started %s times", p.Alias, lives)
		}
	}
}

func TestCanBeContained(t *testing.T) {
	requireContainment(t)
	r := newRig(t)
	r.o.Contain = true
	r.fake("one", []string{"echo"})
	r.works(r.proven(), "one")
}
