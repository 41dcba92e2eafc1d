package layout

import (
	"go/ast"
	"testing"
)

// TestGoroutineLeaks requires every tested package that starts goroutines to check for leaks in its TestMain.
func TestGoroutineLeaks(t *testing.T) {
	starts, tested, checks := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, f := range source(t) {
		switch {
		case f.isTest():
			tested[f.dir()] = true
			if looksForLeaks(f.syntax) {
				checks[f.dir()] = true
			}
		case startsGoroutines(f.syntax):
			starts[f.dir()] = f.path
		}
	}
	if len(starts) < 20 {
		t.Fatalf("found only %d packages that start goroutines", len(starts))
	}
	for dir, file := range starts {
		if tested[dir] && !checks[dir] {
			t.Errorf("%s starts goroutines, but %s has no TestMain that calls goleak.VerifyTestMain(m)", file, dir)
		}
	}
}

// startsGoroutines reports whether a file contains a go statement or calls a method named Go. The type
// sync.WaitGroup has such a method.
func startsGoroutines(file *ast.File) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" {
				found = true
			}
		}
		return !found
	})
	return found
}

// looksForLeaks reports whether a file has a TestMain and uses goleak.
func looksForLeaks(file *ast.File) bool {
	main, leaks := false, false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			main = main || n.Recv == nil && n.Name.Name == "TestMain"
		case *ast.SelectorExpr:
			from, ok := n.X.(*ast.Ident)
			leaks = leaks || ok && from.Name == "goleak" && (n.Sel.Name == "VerifyTestMain" || n.Sel.Name == "Find")
		}
		return true
	})
	return main && leaks
}
