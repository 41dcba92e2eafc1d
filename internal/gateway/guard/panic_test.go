package guard

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// If a check panics, the content is refused and the process does not crash.
func TestBrokenChecksRefuse(t *testing.T) {
	text := jsontext.Value(`{"note":"mail ada@example.com"}`)

	in, err := NewInput(InputRules{DenyDefaults: true, PII: []string{"email"}})
	if err != nil {
		t.Fatal(err)
	}
	in.views.New = func() any { return new(view.View) } // The value is not a *scratch, so Check panics.
	if out, _, refusal := in.Check(t.Context(), text); out != nil || refusal == nil || refusal.Code != call.InputInvalid {
		t.Errorf("Check returned the arguments %s with the refusal %v", out, refusal)
	}

	o, err := NewOutput(OutputRules{})
	if err != nil {
		t.Fatal(err)
	}
	o.views.New = func() any { return new(scratch) } // The value is not a *view.View, so Check panics.
	if out, _, refusal := o.Check(text); out != nil || refusal == nil || refusal.Code != call.SecretLeak || refusal.Effect != call.EffectDone {
		t.Errorf("Check returned the result %s with the refusal %+v", out, refusal)
	}
}
