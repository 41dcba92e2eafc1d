package flow

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// TestMeanings checks that every reason has exactly one explanation.
func TestMeanings(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[Reason]bool{}
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, s := range g.Specs {
				reason, err := strconv.Unquote(s.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				reasons[Reason(reason)] = true
			}
		}
	}
	if len(reasons) == 0 {
		t.Error("there are no reasons")
	}
	for _, m := range Meanings {
		if !reasons[m.Reason] || m.Title == "" || m.Why == "" || m.Fix == "" {
			t.Errorf("the explanation of %s is a duplicate, incomplete, or for an unknown reason: %+v", m.Reason, m)
		}
		delete(reasons, m.Reason)
	}
	for reason := range reasons {
		t.Errorf("%s is not explained", reason)
	}
}
