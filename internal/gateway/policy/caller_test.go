package policy

import (
	"fmt"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Rules see the groups and the sign-in of a caller.
func TestCaller(t *testing.T) {
	const permit, forbid = "permit (principal, action, resource)", "forbid (principal, action, resource)"
	finance := &identity.Attributes{Groups: []string{"staff", "finance"}}
	strong := &identity.Attributes{Issuer: "https://login.example.com", ACR: "gold", AMR: []string{"pwd", "mfa"}}
	other := &identity.Attributes{Groups: []string{"Finance", "finance "}, Issuer: "https://login.example.net", ACR: "bronze"}
	for text, want := range map[string][3]string{ // for a caller in the group finance, a caller with a strong sign-in, and a caller without a credential
		`permit (principal in Group::"finance", action, resource);`:                               {"yes", "scope_not_granted", "scope_not_granted"},
		`permit (principal is Agent in Group::"finance", action, resource);`:                      {"yes", "scope_not_granted", "scope_not_granted"},
		permit + ` when { principal in Group::"finance" };`:                                       {"yes", "scope_not_granted", "scope_not_granted"},
		permit + ` when { principal in [Group::"sales", Group::"finance"] };`:                     {"yes", "scope_not_granted", "scope_not_granted"},
		permit + ` unless { principal in Group::"finance" };`:                                     {"scope_not_granted", "yes", "yes"},
		permit + `; forbid (principal in Group::"finance", action, resource);`:                    {"policy_denied", "yes", "yes"},
		permit + `; ` + forbid + ` unless { context.amr.contains("mfa") };`:                       {"policy_denied", "yes", "policy_denied"},
		permit + `; ` + forbid + ` unless { context has acr && context.acr == "gold" };`:          {"policy_denied", "yes", "policy_denied"},
		permit + `; ` + forbid + ` when { context.acr != "gold" };`:                               {"policy_denied", "yes", "policy_denied"},
		permit + ` when { context has issuer && context.issuer == "https://login.example.com" };`: {"scope_not_granted", "yes", "scope_not_granted"},
	} {
		b := newBench(t, text)
		tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
		ask := func(who *identity.Attributes) string {
			return first(b.live.Judge(t.Context(), &agent.Agent{Dialect: agent.GPARS}, "a", tool, &call.Call{Attributes: who}))
		}
		if got := [3]string{ask(finance), ask(strong), ask(nil)}; got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
		if got := ask(other); got != ask(nil) {
			t.Errorf("%s: a caller with similar groups and sign-in got %s, want the same as without a credential", text, got)
		}
	}
}

// An agent, an argument or a name cannot put its caller into a group.
func TestGroupsComeFromTheCredentialAlone(t *testing.T) {
	b := newBench(t, `permit (principal in Group::"finance", action, resource);`)
	a := &agent.Agent{Dialect: agent.GPARS, ID: `finance`, Name: `Group::"finance"`}
	for _, name := range []string{"finance", `Group::"finance"`, "a"} {
		c := &call.Call{
			Principal: "finance", Arguments: []byte(`{"groups": ["finance"], "group": "finance", "principal": {"__entity": {"type": "Group", "id": "finance"}}}`),
			Meta: []byte(`{"groups": ["finance"]}`),
		}
		tool := &agent.Tool{Name: "finance", Binding: agent.OnServer{Alias: "finance"}}
		if got := first(b.live.Judge(t.Context(), a, name, tool, c)); got != "scope_not_granted" {
			t.Errorf("the agent %s: %s", name, got)
		}
	}
}

// A call that is repeated after a crash no longer has the caller's attributes, so rules about them refuse the call.
func TestLostAttributes(t *testing.T) {
	for text, want := range map[string]string{
		`forbid (principal in Group::"contractors", action, resource);`:                    "policy_denied",
		`forbid (principal, action, resource) when { context.amr.contains("pwd") };`:       "policy_denied",
		`forbid (principal in Group::"contractors", action, resource == Tool::"s/other");`: "yes",
		`forbid (principal, action, resource) when { context.arguments has x };`:           "yes",
	} {
		b := newBench(t, text)
		tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
		c := &call.Call{Principal: "ada", AttributesLost: true}
		if got := first(b.live.Judge(t.Context(), &agent.Agent{Dialect: agent.Matrix}, "a", tool, c)); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// The number of views depends on the groups in the policy, not on the groups of callers, and it is bounded.
func TestViewsAreBounded(t *testing.T) {
	b := newBench(t, `forbid (principal in Group::"g1", action, resource);`)
	tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
	judge := func(tool *agent.Tool, groups ...string) {
		b.live.Judge(t.Context(), &agent.Agent{}, "a", tool, &call.Call{Attributes: &identity.Attributes{Groups: groups}})
	}
	for i := range 100 {
		judge(tool, fmt.Sprint("g", i))
	}
	s := b.live.current.Load()
	if n := s.count.Load(); n != 2 {
		t.Errorf("there are %d views, want one with g1 and one without", n)
	}
	for i := range maxViews {
		judge(&agent.Tool{Name: fmt.Sprint("t", i), Binding: agent.OnServer{Alias: "s"}})
	}
	n := 0
	s.views.Range(func(any, any) bool { n++; return true })
	if n > maxViews {
		t.Errorf("there are %d views, at most %d are allowed", n, maxViews)
	}
}

// Possible returns true for a tool that a rule permits only to some group or after some sign-in, so that the tool's
// server gets its access.
func TestPossibleForSomeCaller(t *testing.T) {
	for text, want := range map[string]bool{
		`permit (principal in Group::"finance", action, resource);`:                                                true,
		`permit (principal, action, resource) unless { principal in Group::"finance" };`:                           true,
		`permit (principal, action, resource); forbid (principal, action, resource) unless { context has skill };`: true,
		`permit (principal, action, resource); forbid (principal, action, resource) unless { context has acr };`:   true,
		`permit (principal in Group::"finance", action, resource == Tool::"s/other");`:                             false,
	} {
		b := newBench(t, text)
		tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
		if got := b.live.Possible(&agent.Agent{Dialect: agent.GPARS}, "a", tool); got != want {
			t.Errorf("%s: got %t, want %t", text, got, want)
		}
	}
}
