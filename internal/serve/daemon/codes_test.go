package daemon

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// TestCodesAreExplained finds the error codes in the source of this package. Meanings must explain
// exactly these codes.
func TestCodesAreExplained(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	constants, used := map[string]string{}, map[string][]string{}
	var codes []ast.Expr
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				// These functions use the code of a refusal or of their parameter.
				return n.Name.Name != "refusedProblem" && n.Name.Name != "failure"
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) {
						if text, ok := literal(n.Values[i]); ok {
							constants[name.Name] = text
						}
					}
				}
			case *ast.CallExpr:
				if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "failure" {
					codes = append(codes, n.Args[0])
				}
			case *ast.CompositeLit:
				if name, ok := n.Type.(*ast.Ident); ok && name.Name == "problem" {
					t.Errorf("%s: create the problem with the function failure, so that this test finds its code", set.Position(n.Pos()))
				}
			}
			return true
		})
	}
	for _, e := range codes {
		place := set.Position(e.Pos()).String()
		code, ok := literal(e)
		if name, constant := e.(*ast.Ident); constant {
			code, ok = constants[name.Name], true
		}
		if !ok || code == "" {
			t.Errorf("%s: the code of a problem must be a constant, so that this test finds it", place)
			continue
		}
		used[code] = append(used[code], place)
	}
	explained := map[string]bool{}
	for _, m := range Meanings() {
		if m.Title == "" || m.Why == "" || m.Fix == "" || m.Status < 400 {
			t.Errorf("%s has no title, reason, fix or valid status", m.Code)
		}
		if used[m.Code] == nil {
			t.Errorf("%s is explained, but no handler uses it", m.Code)
		}
		if explained[m.Code] || slices.ContainsFunc(call.Meanings, func(r call.Meaning) bool { return string(r.Code) == m.Code }) {
			t.Errorf("%s has two meanings", m.Code)
		}
		explained[m.Code] = true
	}
	for code, places := range used {
		if !explained[code] {
			t.Errorf("%s is not in Meanings: %s", code, strings.Join(places, ", "))
		}
	}
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
