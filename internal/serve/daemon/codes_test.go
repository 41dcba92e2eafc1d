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

// TestCodesAreExplained reads the code of every problem out of this package's
// source: each is in the table, and the table has no other.
func TestCodesAreExplained(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	constants, used := map[string]string{}, map[string][]string{}
	var literals []*ast.CompositeLit
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
				return n.Name.Name != "refusedProblem" // it has a refusal's code
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) {
						if text, ok := literal(n.Values[i]); ok {
							constants[name.Name] = text
						}
					}
				}
			case *ast.CompositeLit:
				if name, ok := n.Type.(*ast.Ident); ok && name.Name == "problem" {
					literals = append(literals, n)
				}
			}
			return true
		})
	}
	for _, lit := range literals {
		place := set.Position(lit.Pos()).String()
		code := ""
		for _, e := range lit.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "Code" {
				if text, ok := literal(kv.Value); ok {
					code = text
				} else if name, ok := kv.Value.(*ast.Ident); ok {
					code = constants[name.Name]
				}
			}
		}
		if code == "" {
			t.Errorf("%s: the code of a problem is a constant, so that it can be explained", place)
			continue
		}
		used[code] = append(used[code], place)
	}
	explained := map[string]bool{}
	for _, m := range Meanings {
		if m.Title == "" || m.Why == "" || m.Fix == "" {
			t.Errorf("%s is not explained", m.Code)
		}
		if used[m.Code] == nil {
			t.Errorf("%s is explained, but no handler answers with it", m.Code)
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
