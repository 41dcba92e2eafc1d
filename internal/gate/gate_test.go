package gate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/gate"
	"github.com/ambit-run/ambit/tooluri"
)

// skill allows the tools of these URIs.
type skill []string

func (s skill) Allows(uri string) bool { return slices.Contains(s, uri) }
func (s skill) Name() string           { return "SKILL.md" }

const pinned = "matrix://tool/fs/read_file@1.0.0"

// restricted is the policy of a dialect that lists what is allowed.
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
		reasons string    // every one, in order: a code, or yes
		refusal call.Code // the first no
	}{
		{
			name: "an allowed side effect", policy: restricted(agent.Read),
			tool: agent.Tool{SideEffect: agent.Read, Binding: onServer, URI: &uri}, reasons: "yes",
		},
		{
			name: "one that is not allowed", policy: restricted(agent.Read),
			tool:    agent.Tool{SideEffect: agent.Write, Binding: onServer, URI: &uri},
			reasons: "side_effect_denied", refusal: call.SideEffectDenied,
		},
		{
			name: "an empty list allows nothing", policy: restricted(),
			tool:    agent.Tool{SideEffect: agent.Read, Binding: onServer, URI: &uri},
			reasons: "side_effect_denied", refusal: call.SideEffectDenied,
		},
		{
			name: "no side effect is none that is allowed", policy: restricted(agent.Read),
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
			name: "a skill cannot widen", policy: restricted(agent.Read), skill: skill{pinned},
			tool:    agent.Tool{SideEffect: agent.Write, Binding: onServer, URI: &uri},
			reasons: "side_effect_denied yes", refusal: call.SideEffectDenied,
		},
		{
			name: "every no is told, not only the first", policy: restricted(), skill: skill{},
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
			d := gate.Decide(&agent.Agent{SideEffects: tt.policy}, &tt.tool, &call.Call{Tool: pinned, Skill: tt.skill})
			if got := told(t, d); got != tt.reasons {
				t.Errorf("reasons %s, want %s", got, tt.reasons)
			}
			if d.Allowed != (tt.refusal == "") {
				t.Errorf("allowed: %t", d.Allowed)
			}
			r := d.Refusal()
			switch {
			case tt.refusal == "" && r != nil:
				t.Errorf("refused: %v", r)
			case tt.refusal != "" && (r == nil || r.Code != tt.refusal || r.Stage != gate.Stage || r.Effect != call.NoEffect || r.Retryable || r.Hint == ""):
				t.Errorf("refusal %+v, want %s", r, tt.refusal)
			}
		})
	}
}

// told is a decision's reasons in short; each must say where and why.
func told(t *testing.T, d gate.Decision) string {
	t.Helper()
	var words []string
	for _, r := range d.Reasons {
		word := string(r.Code)
		if r.Allowed {
			word = "yes" + word
		}
		if r.Stage != gate.Stage || r.Detail == "" {
			t.Errorf("a reason that says too little: %+v", r)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// A decision names what it is about, so that a person can act on it.
func TestReasonsNameWhatTheyAreAbout(t *testing.T) {
	uri, err := tooluri.Parse(pinned)
	if err != nil {
		t.Fatal(err)
	}
	tool := &agent.Tool{Name: "read_file", SideEffect: agent.Network, Binding: agent.OnServer{}, URI: &uri}
	d := gate.Decide(&agent.Agent{SideEffects: restricted()}, tool, &call.Call{Skill: skill{}})
	text := fmt.Sprint(d.Reasons)
	for _, word := range []string{"network", "allowed_side_effects", "SKILL.md", pinned} {
		if !strings.Contains(text, word) {
			t.Errorf("the reasons do not name %s: %s", word, text)
		}
	}
}
