package guard

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// A check that panics refuses the content and does not crash the process.
func TestBrokenChecksRefuse(t *testing.T) {
	text := jsontext.Value(`{"note":"mail ada@example.com"}`)

	in, err := NewInput(InputRules{DenyDefaults: true, PII: []string{"email"}})
	if err != nil {
		t.Fatal(err)
	}
	in.views.New = func() any { return new(view.View) } // not a *scratch, so Check panics
	if out, _, refusal := in.Check(t.Context(), text); out != nil || refusal == nil || refusal.Code != call.InputInvalid {
		t.Errorf("the arguments pass as %s, %v", out, refusal)
	}

	o, err := NewOutput(OutputRules{})
	if err != nil {
		t.Fatal(err)
	}
	o.views.New = func() any { return new(scratch) } // not a *view.View, so Check panics
	if out, _, refusal := o.Check(text); out != nil || refusal == nil || refusal.Code != call.SecretLeak || refusal.Effect != call.EffectDone {
		t.Errorf("the result passes as %s, %+v", out, refusal)
	}
}
