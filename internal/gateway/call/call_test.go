package call_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// TestEveryCodeHasAMeaning reads the codes from the source, so it fails if a new code has no meaning.
func TestEveryCodeHasAMeaning(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "refusal.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	explained := map[call.Code]bool{}
	for _, m := range call.Meanings {
		if m.Title == "" || m.Why == "" || m.Fix == "" || explained[m.Code] {
			t.Errorf("the meaning of %s is empty or a duplicate", m.Code)
		}
		explained[m.Code] = true
	}
	codes := 0
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if ident, is := v, ok; !is || ident.Type == nil {
			return true
		}
		if name, ok := v.Type.(*ast.Ident); !ok || name.Name != "Code" {
			return true
		}
		code, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		codes++
		if !explained[call.Code(code)] {
			t.Errorf("%s has no meaning", code)
		}
		return true
	})
	if codes != len(explained) {
		t.Errorf("refusal.go has %d codes, but there are %d meanings", codes, len(explained))
	}
}

func TestOnlyWhatDidNothingMayBeRepeated(t *testing.T) {
	for _, tt := range []struct {
		refusal   *call.Refusal
		retryable bool
	}{
		{call.Refuse("act", call.ServerUnavailable, "x").Again(), true},
		{call.Refuse("act", call.ServerUnavailable, "x"), false},
		{call.Uncertain("act", call.ServerUnavailable, "x").Again(), false},
	} {
		if tt.refusal.Retryable != tt.retryable {
			t.Errorf("the refusal %+v has the wrong Retryable", tt.refusal)
		}
	}
}

func TestRefusalNamesItsFix(t *testing.T) {
	r := call.Refuse("gate", call.SideEffectDenied, "%s is %s", "rm", "shell")
	if r.Hint == "" || r.Error() != "side_effect_denied: rm is shell" || r.Effect != call.NoEffect {
		t.Errorf("got the refusal %+v", r)
	}
}
