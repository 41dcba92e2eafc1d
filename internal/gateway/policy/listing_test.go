package policy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

func withTools(d agent.Dialect, n int) *agent.Agent {
	a := &agent.Agent{Dialect: d}
	for i := range n {
		a.Tools = append(a.Tools, agent.Tool{Name: fmt.Sprint("t", i), Binding: agent.OnServer{Alias: "s"}})
	}
	return a
}

// A tool is hidden if, and only if, the rules deny it whatever the arguments, the time and the skill are.
func TestHidden(t *testing.T) {
	const permit, forbid = "permit (principal, action, resource)", "forbid (principal, action, resource)"
	for text, want := range map[string][2]bool{ // results for a GPARS agent, and for an agent of another dialect
		"// none":    {true, false},
		"permit (":   {true, true},
		permit + ";": {false, false},
		forbid + ";": {true, true},
		permit + `; forbid (principal in Group::"staff", action, resource);`:           {true, true},
		permit + `; forbid (principal in Group::"sales", action, resource);`:           {false, false},
		`permit (principal in Group::"sales", action, resource);`:                      {true, false},
		permit + `; ` + forbid + ` unless { principal in Group::"sales" };`:            {true, true},
		permit + `; ` + forbid + ` when { context.caller == "ada" };`:                  {true, true},
		permit + `; ` + forbid + ` unless { context.amr.contains("mfa") };`:            {true, true},
		permit + `; ` + forbid + ` when { context.arguments has path };`:               {false, false},
		permit + `; ` + forbid + ` when { context.paths_any_under.contains("/etc") };`: {false, false},
		permit + `; ` + forbid + ` when { context.time.toTime() < duration("24h") };`:  {false, false},
		permit + `; ` + forbid + ` unless { context has skill };`:                      {false, false},
		permit + `; ` + forbid + ` when { resource.name == "other" };`:                 {false, false},
		permit + ` when { context.time.toTime() < duration("0h") };`:                   {false, false},
	} {
		b := newBench(t, text)
		c := &call.Call{Principal: "ada", Attributes: &identity.Attributes{Groups: []string{"staff"}}}
		for i, d := range []agent.Dialect{agent.GPARS, agent.Matrix} {
			hidden := b.live.Hidden(withTools(d, 1), "a", c)
			if got := hidden != nil && hidden[0]; got != want[i] {
				t.Errorf("%s, %s: hidden %t, want %t", d, text, got, want[i])
			}
		}
	}
}

// Fifty principals ask at the same time, while the policy changes. No principal gets another principal's answer.
func TestHiddenIsEachCallersOwn(t *testing.T) {
	const callers = 50
	rules := func(shift int) string {
		var text strings.Builder
		for i := range callers {
			group, name := i%10, (i+shift)%callers
			fmt.Fprintf(&text, "forbid (principal, action, resource == Tool::\"s/t%d\") unless "+
				"{ principal in Group::\"g%d\" && context.caller == \"p%d\" && context.acr == \"a%d\" };\n", name, group, i, i%3)
		}
		return text.String()
	}
	b := newBench(t, rules(0))
	a := withTools(agent.Matrix, callers)
	for shift := range 2 {
		b.move(rules(shift))
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				c := &call.Call{Principal: fmt.Sprint("p", i), Attributes: &identity.Attributes{
					Groups: []string{fmt.Sprint("g", i%10), "other"}, ACR: fmt.Sprint("a", i%3),
				}}
				for range 20 {
					hidden := b.live.Hidden(a, "a", c)
					if seen := slices.Index(hidden, false); seen != (i+shift)%callers || slices.Contains(hidden[seen+1:], false) {
						t.Errorf("%s: the first listed tool is %d, want only tool %d", c.Principal, seen, (i+shift)%callers)
					}
				}
			})
		}
		all.Wait()
	}
}

// Callers with many different names cannot make the cache grow without limit.
func TestListingsAreBounded(t *testing.T) {
	b := newBench(t, `forbid (principal, action, resource) when { context.caller == "x" };`)
	a := withTools(agent.Matrix, 1)
	for i := range 3 * maxListings {
		b.live.Hidden(a, "a", &call.Call{Principal: fmt.Sprint("p", i)})
	}
	if n := len(b.live.current.Load().listings.all); n > maxListings {
		t.Errorf("%d answers are kept, at most %d are allowed", n, maxListings)
	}
}
