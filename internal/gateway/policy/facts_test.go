package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

const aboutPaths = `forbid (principal, action, resource) when { context.paths_any_under.contains("/etc") };`

// Rules read a limited number of bytes of names and strings, because checking them takes time and memory.
func TestLongArguments(t *testing.T) {
	b := newBench(t, aboutPaths)
	name := func(n int) string { return `"` + strings.Repeat("xY", n/2) + `":1` }
	text := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	for _, tt := range []struct {
		what, arguments string
		want            error
	}{
		{"a long name", `{` + name(maxNameBytes) + `}`, nil},
		{"a name that is too long", `{` + name(maxNameBytes+2) + `}`, errLongNames},
		{"the name of a member", `{"a":[{` + name(maxNameBytes) + `}]}`, errLongNames},
		{"many names", `{"a":[{` + name(maxNameBytes/2) + `},{` + name(maxNameBytes/2) + `}]}`, errLongNames},
		{"a long string", `{"a":` + text(maxTextBytes) + `}`, nil},
		{"many strings", `{"a":[` + text(maxTextBytes) + `,"b"]}`, errLongTexts},
	} {
		reasons := b.live.Judge(t.Context(), &agent.Agent{}, "a", &agent.Tool{Name: "t"}, &call.Call{Arguments: []byte(tt.arguments)})
		switch {
		case tt.want == nil && first(reasons) != "yes":
			t.Errorf("%s: %.200v", tt.what, reasons)
		case tt.want != nil && (first(reasons) != "policy_denied" || reasons[0].Detail != tt.want.Error()):
			t.Errorf("%s: %.200v, want %v", tt.what, reasons, tt.want)
		}
	}
}

// The second check of a call uses the facts of the first check, unless the arguments or the rules have changed.
func TestArgumentsAreReadOnce(t *testing.T) {
	b := newBench(t, aboutPaths)
	c := &call.Call{Arguments: []byte(`{"path":"/srv/x"}`)}
	judge := func() *facts {
		t.Helper()
		b.want("the call", first(b.live.Judge(t.Context(), &agent.Agent{}, "a", &agent.Tool{Name: "t"}, c)), "yes")
		for k, f := range c.Known.(*known).facts {
			if k.view == b.live.load().view(&agent.Agent{}, subjectOf(&agent.Agent{}, "a", &agent.Tool{Name: "t"}), nil) {
				return f
			}
		}
		t.Fatal("no facts are kept")
		return nil
	}
	once := judge()
	if judge() != once {
		t.Error("the arguments were read twice")
	}
	b.move(aboutPaths + "// changed")
	if judge() == once {
		t.Error("the rules have changed, but the arguments were not read again")
	}
	c.Arguments = []byte(`{"path":"/etc/x"}`)
	b.want("other arguments", first(b.live.Judge(t.Context(), &agent.Agent{}, "a", &agent.Tool{Name: "t"}, c)), "policy_denied")
}

// If the caller has left, the policy stops reading the arguments.
func TestReadingStops(t *testing.T) {
	rules, err := Parse("x.cedar", []byte(aboutPaths))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = rules.view(onMe, nil, nil).gather(ctx, meNow(), []byte(`{"a":1}`), false)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	reasons := newBench(t, aboutPaths).live.Judge(ctx, &agent.Agent{}, "a", &agent.Tool{Name: "t"}, &call.Call{Arguments: []byte(`{"a":1}`)})
	if len(reasons) != 1 || reasons[0].Allowed {
		t.Errorf("got %v", reasons)
	}
}
