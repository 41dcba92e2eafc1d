package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"strings"
)

// A pkg is a package that has fuzz targets.
type pkg struct {
	Dir, ImportPath           string
	TestGoFiles, XTestGoFiles []string

	targets []string
}

// list finds the packages with fuzz targets in their source. Asking the test binaries would require building all of them.
func list(ctx context.Context, patterns []string) ([]*pkg, error) {
	text, err := output(ctx, "", append([]string{"list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles", "--"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var found []*pkg
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		p := &pkg{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
			names, err := targetsIn(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			p.targets = append(p.targets, names...)
		}
		if len(p.targets) > 0 {
			found = append(found, p)
		}
	}
}

// targetsIn returns the functions Fuzz… of one argument in a file.
func targetsIn(file string) (names []string, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") && f.Type.Params.NumFields() == 1 {
			names = append(names, f.Name.Name)
		}
	}
	return names, nil
}
