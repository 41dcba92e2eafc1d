package policy

import (
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

func TestForesee(t *testing.T) {
	const permit, forbid = "permit (principal, action, resource)", "forbid (principal, action, resource)"
	for text, want := range map[string][2]Foresight{ // results for a GPARS agent, and for an agent of another dialect
		"// none":    {Never, Always},
		permit + ";": {Always, Always},
		forbid + ";": {Never, Never},
		permit + ` when { context.caller == "me@local" };`:                                            {Always, Always},
		permit + ` when { context.caller == "you@local" };`:                                           {Never, Always},
		permit + ` when { context.arguments has a };`:                                                 {Depends, Always},
		permit + ` when { context.path_of has a };`:                                                   {Depends, Always},
		permit + ` when { context.paths_all_under.contains("/data") };`:                               {Depends, Always},
		permit + ` when { context.databases.isEmpty() };`:                                             {Depends, Always},
		permit + ` when { context.arguments.a == 1 };`:                                                {Depends, Always},
		permit + ` when { resource.name == "other" && context.paths_all_under.contains("/data") };`:   {Never, Always},
		permit + ` when { context.paths_all_under.contains("/data") && resource.name == "other" };`:   {Depends, Always}, // Cedar evaluates from left to right
		permit + `; ` + forbid + ` when { context.paths_any_under.contains("/etc") };`:                {Depends, Depends},
		permit + `; ` + forbid + ` when { resource.name == "other" && context.arguments has a };`:     {Always, Always},
		permit + `; ` + forbid + ` when { context.skill == "x" };`:                                    {Never, Never}, // an evaluation error is treated as a match
		permit + ` when { context.time.toTime() < duration("13h") };`:                                 {Always, Always},
		permit + ` when { context.time.toTime() < duration("11h") };`:                                 {Never, Always},
		permit + ` when { context.arguments has a }; ` + permit + `; ` + forbid + ` when { 1 == 2 };`: {Always, Always},
		forbid + ` when { context.arguments has a }; ` + forbid + ` when { resource.name == "t" };`:   {Never, Never},
		permit + ` when { resource.name == "t" }; ` + forbid + ` when { ip("x").isIpv4() };`:          {Never, Never},
		permit + ` when { ip("x").isIpv4() };`:                                                        {Never, Always},
	} {
		b := newBench(t, text)
		b.live.options.Now = now
		for i, d := range []agent.Dialect{agent.GPARS, agent.Matrix} {
			if got := b.live.Foresee(&agent.Agent{Dialect: d}, "a", &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}, &call.Call{Principal: "me@local"}); got != want[i] {
				t.Errorf("%s, %s: got %d, want %d", d, text, got, want[i])
			}
		}
	}
	none, broken := newBench(t, ""), newBench(t, "permit (")
	for i, d := range []agent.Dialect{agent.GPARS, agent.Matrix} {
		tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
		if got := none.live.Foresee(&agent.Agent{Dialect: d}, "a", tool, &call.Call{Principal: "me@local"}); got != []Foresight{Never, Always}[i] {
			t.Errorf("%s without a policy: %d", d, got)
		}
		if got := broken.live.Foresee(&agent.Agent{Dialect: d}, "a", tool, &call.Call{Principal: "me@local"}); got != Never {
			t.Errorf("%s with a broken policy: %d", d, got)
		}
	}
}

// A tool is possible if any caller can call it at any time.
func TestPossible(t *testing.T) {
	const permit, forbid = "permit (principal, action, resource)", "forbid (principal, action, resource)"
	for text, want := range map[string]bool{
		"// none":    false,
		"permit (":   false,
		permit + ";": true,
		permit + ` when { context.caller == "you@local" };`:                              true,
		permit + ` when { context.time.toTime() < duration("11h") };`:                    true,
		permit + ` when { context.arguments has a };`:                                    true,
		permit + ` when { resource.name == "other" };`:                                   false,
		permit + ` when { context.side_effect == "read" };`:                              false,
		permit + `; ` + forbid + ` when { resource.name == "t" };`:                       false,
		permit + `; ` + forbid + ` when { context.caller == "you@local" };`:              true,
		permit + ` when { context.caller == "you@local" && resource.name == "other" };`:  true, // Cedar evaluates from left to right
		permit + ` when { resource.name == "other" && context.caller == "you@local"  };`: false,
	} {
		b := newBench(t, text)
		b.live.options.Now = now
		tool := &agent.Tool{Name: "t", SideEffect: agent.Write, Binding: agent.OnServer{Alias: "s"}}
		if got := b.live.Possible(&agent.Agent{Dialect: agent.GPARS}, "a", tool); got != want {
			t.Errorf("%s: got %t, want %t", text, got, want)
		}
	}
}
