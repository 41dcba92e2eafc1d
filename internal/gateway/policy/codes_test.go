package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/policy"
)

// TestMeanings checks that every code has exactly one explanation.
func TestMeanings(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, s := range g.Specs {
				code, err := strconv.Unquote(s.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				codes[code] = true
			}
		}
	}
	if len(codes) == 0 {
		t.Error("there are no codes")
	}
	for _, m := range policy.Meanings {
		if !codes[m.Code] || m.Title == "" || m.Why == "" || m.Fix == "" {
			t.Errorf("the explanation of %s is a duplicate, incomplete, or for an unknown code: %+v", m.Code, m)
		}
		delete(codes, m.Code)
	}
	for code := range codes {
		t.Errorf("%s is not explained", code)
	}
}
