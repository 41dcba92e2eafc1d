package gate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/tooluri"
)

// skill is a skill that allows the tools with the listed URIs.
type skill []string

func (s skill) Allows(uri string) bool { return slices.Contains(s, uri) }
func (s skill) Name() string           { return "SKILL.md" }

const pinned = "matrix://tool/fs/read_file@1.0.0"

// restricted returns the policy of a manifest that allows only the given side effects.
func restricted(allowed ...agent.SideEffect) agent.SideEffectPolicy {
	return agent.SideEffectPolicy{Restricted: true, Allowed: allowed}
}

func TestDecide(t *testing.T) {
	uri, err := tooluri.Parse(pinned)
	if err != nil {
		t.Fatal(err)
	}
	onServer, native := agent.OnServer{Alias: "fs"}, agent.Native{}
	for _, tt := range []struct {
		name    string
		policy  agent.SideEffectPolicy
		tool    agent.Tool
		skill   call.Allowlist
		reasons string    // all reasons in order: the code of a denial, or "yes"
		refusal call.Code // the first denial
	}{
		{
			name: "an allowed side effect", policy: restricted(agent.Read),
			tool: agent.Tool{SideEffect: agent.Read, Binding: onServer, URI: &uri}, reasons: "yes",
		},
		{
			name: "a side effect that is not allowed", policy: restricted(agent.Read),
			tool:    agent.Tool{SideEffect: agent.Write, Binding: onServer, URI: &uri},
			reasons: "side_effect_denied", refusal: call.SideEffectDenied,
		},
		{
			name: "an empty list allows nothing", policy: restricted(),
			tool:    agent.Tool{SideEffect: agent.Read, Binding: onServer, URI: &uri},
			reasons: "side_effect_denied", refusal: call.SideEffectDenied,
		},
		{
			name: "a tool without a side effect", policy: restricted(agent.Read),
			tool:    agent.Tool{Binding: onServer, URI: &uri},
			reasons: "side_effect_denied", refusal: call.SideEffectDenied,
		},
		{
			name: "shell is not part of write", policy: restricted(agent.Read, agent.Write, agent.Network),
			tool:    agent.Tool{SideEffect: agent.Shell, Binding: onServer, URI: &uri},
			reasons: "side_effect_denied", refusal: call.SideEffectDenied,
		},
		{
			name: "a dialect that does not restrict side effects",
			tool: agent.Tool{SideEffect: agent.Shell, Binding: onServer}, reasons: "yes",
		},
		{
			name: "a skill that lists the tool", policy: restricted(agent.Read), skill: skill{pinned},
			tool: agent.Tool{SideEffect: agent.Read, Binding: onServer, URI: &uri}, reasons: "yes yes",
		},
		{
			name: "a skill that lists another version", policy: restricted(agent.Read), skill: skill{"matrix://tool/fs/read_file@1.0.1"},
			tool:    agent.Tool{SideEffect: agent.Read, Binding: onServer, URI: &uri},
			reasons: "yes not_in_skill_allowlist", refusal: call.NotInSkillAllowlist,
		},
		{
			name: "a skill that lists nothing", policy: restricted(agent.Read), skill: skill{},
			tool:    agent.Tool{SideEffect: agent.Read, Binding: onServer, URI: &uri},
			reasons: "yes not_in_skill_allowlist", refusal: call.NotInSkillAllowlist,
		},
		{
			name: "a skill cannot allow more than the manifest", policy: restricted(agent.Read), skill: skill{pinned},
			tool:    agent.Tool{SideEffect: agent.Write, Binding: onServer, URI: &uri},
			reasons: "side_effect_denied yes", refusal: call.SideEffectDenied,
		},
		{
			name: "every denial is reported, not only the first", policy: restricted(), skill: skill{},
			tool:    agent.Tool{SideEffect: agent.Chain, Binding: native, URI: &uri},
			reasons: "native_tool_not_implemented side_effect_denied not_in_skill_allowlist", refusal: call.NativeToolNotImplemented,
		},
		{
			name: "a native tool, although its side effect is allowed", policy: restricted(agent.Chain),
			tool:    agent.Tool{SideEffect: agent.Chain, Binding: native, URI: &uri},
			reasons: "native_tool_not_implemented yes", refusal: call.NativeToolNotImplemented,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.tool.Name = "read_file"
			d := gate.Decide(t.Context(), &agent.Agent{SideEffects: tt.policy}, "x", &tt.tool, &call.Call{Tool: pinned, Skill: tt.skill}, gate.Rules{})
			if got := codesOf(t, d); got != tt.reasons {
				t.Errorf("got the reasons %s, want %s", got, tt.reasons)
			}
			if d.Allowed != (tt.refusal == "") {
				t.Errorf("got allowed=%t", d.Allowed)
			}
			r := d.Refusal()
			switch {
			case tt.refusal == "" && r != nil:
				t.Errorf("the call was refused: %v", r)
			case tt.refusal != "" && (r == nil || r.Code != tt.refusal || r.Stage != gate.Stage || r.Effect != call.NoEffect || r.Retryable || r.Hint == ""):
				t.Errorf("got the refusal %+v, want %s", r, tt.refusal)
			}
		})
	}
}

// codesOf returns the code of each reason of a decision, or "yes". It checks that each reason has a stage and a detail.
func codesOf(t *testing.T, d gate.Decision) string {
	t.Helper()
	var words []string
	for _, r := range d.Reasons {
		word := string(r.Code)
		if r.Allowed {
			word = "yes" + word
		}
		if r.Stage != gate.Stage || r.Detail == "" {
			t.Errorf("a reason has a wrong stage or no detail: %+v", r)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// A reason names the side effect, the skill and the tool, so that a person can act on it.
func TestReasonsNameWhatTheyAreAbout(t *testing.T) {
	uri, err := tooluri.Parse(pinned)
	if err != nil {
		t.Fatal(err)
	}
	tool := &agent.Tool{Name: "read_file", SideEffect: agent.Network, Binding: agent.OnServer{}, URI: &uri}
	d := gate.Decide(t.Context(), &agent.Agent{SideEffects: restricted()}, "x", tool, &call.Call{Skill: skill{}}, gate.Rules{})
	text := fmt.Sprint(d.Reasons)
	for _, word := range []string{"network", "allowed_side_effects", "SKILL.md", pinned} {
		if !strings.Contains(text, word) {
			t.Errorf("the reasons do not name %s: %s", word, text)
		}
	}
}

// held lists the actions that each principal holds. If err is set, Missing returns that error.
type held struct {
	of  map[string][]string
	err error
}

func (h held) Missing(_ context.Context, principal string, actions []string) ([]string, error) {
	var missing []string
	for _, action := range actions {
		if !slices.Contains(h.of[principal], action) {
			missing = append(missing, action)
		}
	}
	if h.err != nil && h.of == nil {
		return nil, h.err
	}
	return missing, h.err
}

func TestCapabilities(t *testing.T) {
	wants := agent.Capabilities{Required: []string{"tool.a", "tool.b"}, Optional: []string{"memory.write"}}
	mine := func(actions ...string) held { return held{of: map[string][]string{"me@local": actions}} }
	for _, tt := range []struct {
		name   string
		wants  agent.Capabilities
		grants gate.Grants
		code   call.Code
		says   []string // parts of the reason about capabilities
		hint   string
		held   string
	}{
		{"nothing is required", agent.Capabilities{}, nil, "", nil, "", ""},
		{"there are no grants", wants, nil, call.CapabilityMissing, []string{`"me@local" lacks tool.a, tool.b, which`}, "grant the capability: ambit grant me@local tool.a tool.b", ""},
		{"none held", wants, mine(), call.CapabilityMissing, []string{"tool.a, tool.b, which"}, "grant the capability: ambit grant me@local tool.a tool.b", ""},
		{"one of two", wants, mine("tool.a", "memory.write"), call.CapabilityMissing, []string{"lacks tool.b, which"}, "grant the capability: ambit grant me@local tool.b", "tool.a memory.write"},
		{"held by another principal", wants, held{of: map[string][]string{"you@local": {"tool.a", "tool.b"}}}, call.CapabilityMissing, []string{"tool.a, tool.b"}, "grant the capability: ambit grant me@local tool.a tool.b", ""},
		{"all required", wants, mine("tool.a", "tool.b"), "", []string{"holds tool.a, tool.b but not the optional memory.write"}, "", "tool.a tool.b"},
		{"everything", wants, mine("tool.a", "tool.b", "memory.write"), "", []string{"holds tool.a, tool.b, memory.write"}, "", "tool.a tool.b memory.write"},
		{"only optional", agent.Capabilities{Optional: []string{"tool.c"}}, nil, "", []string{"lacks tool.c"}, "", ""},
		{"the store fails", wants, held{err: errors.New("it broke")}, call.StoreUnavailable, []string{"cannot be read: it broke"}, "", ""},
		{
			"a required grant was modified", wants,
			held{of: map[string][]string{"me@local": {"tool.a"}}, err: errors.New("it was changed")},
			call.CapabilityMissing,
			[]string{"lacks tool.b", ": it was changed"},
			"grant the capability: ambit grant me@local tool.b", "tool.a",
		},
		{
			"an optional grant was modified", wants,
			held{of: map[string][]string{"me@local": {"tool.a", "tool.b"}}, err: errors.New("it was changed")},
			call.CapabilityMissing,
			[]string{"memory.write", ": it was changed"},
			"grant the capability: ambit grant me@local memory.write", "tool.a tool.b",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tool := &agent.Tool{Name: "x", SideEffect: agent.Write}
			d := gate.Decide(t.Context(), &agent.Agent{Capabilities: tt.wants}, "x", tool, &call.Call{Principal: "me@local"}, gate.Rules{Grants: tt.grants})
			if got := strings.Join(d.Held, " "); got != tt.held {
				t.Errorf("the caller holds %q, want %q", got, tt.held)
			}
			about := d.Reasons[1:] // the first reason is about side effects
			if d.Allowed != (tt.code == "") || len(about) != min(1, len(tt.says)) {
				t.Fatalf("got the decision %+v", d)
			}
			for _, says := range tt.says {
				if !strings.Contains(about[0].Detail, says) || about[0].Code != tt.code {
					t.Errorf("the reason %+v does not contain %q", about[0], says)
				}
			}
			if r := d.Refusal(); tt.code != "" && (r == nil || r.Code != tt.code || tt.hint != "" && r.Hint != tt.hint || r.Hint == "") {
				t.Errorf("got the refusal %+v", r)
			}
		})
	}
}

// A name that contains special characters is quoted for the shell in a suggested command.
func TestHintIsOneCommand(t *testing.T) {
	a := &agent.Agent{Capabilities: agent.Capabilities{Required: []string{"tool.a"}}}
	for principal, want := range map[string]string{
		"me@local": "me@local", "auth0|7": "'auth0|7'", "$(x)": "'$(x)'", "it's": `'it'\''s'`, "": "''",
	} {
		d := gate.Decide(t.Context(), a, "x", &agent.Tool{}, &call.Call{Principal: principal}, gate.Rules{})
		if r := d.Refusal(); r == nil || r.Hint != "grant the capability: ambit grant "+want+" tool.a" {
			t.Errorf("got the refusal %+v", r)
		}
	}
}

// policy is a policy that always returns the listed reasons.
type policy []call.Reason

func (p policy) Judge(_ context.Context, a *agent.Agent, name string, _ *agent.Tool, _ *call.Call) []call.Reason {
	if name != "registered" || a.ID != "id" {
		return nil
	}
	return p
}

func (policy) Possible(*agent.Agent, string, *agent.Tool) bool { return true }

func (policy) Hidden(*agent.Agent, string, *call.Call) []bool { return nil }

func (policy) Could(*agent.Agent, string, *agent.Tool, *call.Call, string) bool { return true }

func (policy) Version(*agent.Agent, string, *call.Call) any { return nil }

func TestPolicy(t *testing.T) {
	no := call.Reason{Stage: gate.Stage, Code: call.PolicyDenied, Detail: "forbidden", Hint: "ask"}
	yes := call.Reason{Stage: gate.Stage, Allowed: true, Detail: "permitted"}
	for _, tt := range []struct {
		policy  policy
		allowed bool
	}{{nil, true}, {policy{yes}, true}, {policy{yes, no}, false}, {policy{no, yes}, false}} {
		d := gate.Decide(t.Context(), &agent.Agent{ID: "id"}, "registered", &agent.Tool{}, &call.Call{}, gate.Rules{Policy: tt.policy})
		if d.Allowed != tt.allowed || len(d.Reasons) != 1+len(tt.policy) {
			t.Errorf("got the decision %+v", d)
		}
		if r := d.Refusal(); !tt.allowed && (r == nil || r.Code != call.PolicyDenied || r.Hint != "ask") {
			t.Errorf("got the refusal %+v", r)
		}
	}
}

// The gate allocates nothing for grants if the agent requires no capabilities.
func TestCostsNothing(t *testing.T) {
	a, tool, c := &agent.Agent{}, &agent.Tool{Name: "x"}, &call.Call{Principal: "me@local"}
	without := testing.AllocsPerRun(100, func() { gate.Decide(t.Context(), a, "x", tool, c, gate.Rules{}) })
	with := testing.AllocsPerRun(100, func() { gate.Decide(t.Context(), a, "x", tool, c, gate.Rules{Grants: held{}}) })
	if without != with {
		t.Errorf("got %v allocations without grants, %v with unused grants", without, with)
	}
}

// A person is not asked to approve a call that lacks its credential. A tool that needs no approval
// refuses such a call later, with its own message.
func TestLacks(t *testing.T) {
	lacks := func(*agent.Tool) *call.Refusal {
		r := call.Refuse("act", call.CredentialMissing, "the credential token is not set")
		r.Hint = "store it"
		return r
	}
	for asks, want := range map[bool]bool{true: false, false: true} {
		tool := &agent.Tool{Policy: agent.ToolPolicy{HumanApproval: asks}}
		d := gate.Decide(t.Context(), &agent.Agent{}, "x", tool, &call.Call{}, gate.Rules{Lacks: lacks})
		if d.Allowed != want {
			t.Errorf("needs approval: %v, allowed: %v", asks, d.Allowed)
		}
		if r := d.Refusal(); asks && (r == nil || r.Code != call.CredentialMissing || r.Hint != "store it") {
			t.Errorf("got the refusal %+v", r)
		}
	}
}
