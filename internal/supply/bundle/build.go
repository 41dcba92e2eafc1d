package bundle

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/go-json-experiment/json"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// requireShim is JavaScript code that defines the function require(). esbuild merges CommonJS modules into the built
// file, and these modules call require() to load Node.js modules.
const requireShim = `import { createRequire as ambitRequire } from "node:module"; ` +
	`const require = ambitRequire(import.meta.url);`

// build compiles a TypeScript entrypoint and its imports into one file for Node.js. It works on a copy of the tree.
// An import of a file outside the copy is reported as a problem.
func build(t Tree, entry string) ([]byte, []Problem) {
	failed := func(file string, line int, format string, args ...any) []Problem {
		return []Problem{{ruleBuild.Code, ruleBuild.Severity, file, line, fmt.Sprintf(format, args...), ruleBuild.Fix}}
	}
	dir, err := os.MkdirTemp("", "ambit-build-")
	if err == nil {
		defer os.RemoveAll(dir)
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err == nil {
		err = t.Write(dir)
	}
	if err != nil {
		return nil, failed(entry, 0, "the entrypoint could not be built: %v", err)
	}
	o := api.BuildOptions{
		EntryPoints: []string{filepath.FromSlash(entry)}, AbsWorkingDir: dir, Outfile: filepath.Join(dir, "out.mjs"),
		Bundle: true, Platform: api.PlatformNode, Format: api.FormatESModule, Target: api.ES2022, Metafile: true,
		Banner: map[string]string{"js": requireShim}, Charset: api.CharsetUTF8, LegalComments: api.LegalCommentsInline,
		LogLevel: api.LogLevelSilent, LogLimit: 50, TsconfigRaw: "{}",
	}
	if t.Find("tsconfig.json") != nil {
		o.TsconfigRaw, o.Tsconfig = "", filepath.Join(dir, "tsconfig.json")
	}
	r := api.Build(o)
	var problems []Problem
	for _, m := range r.Errors {
		file, line := entry, 0
		if m.Location != nil {
			file, line = filepath.ToSlash(m.Location.File), m.Location.Line
		}
		problems = append(problems, failed(file, line, "%s", diag.Printable(strings.ReplaceAll(m.Text, dir, "")))...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	if stray := findOutside(r.Metafile); stray != "" {
		return nil, failed(entry, 0, "the entrypoint imports %s, which is not in the bundle", diag.Quote(stray))
	}
	if len(r.OutputFiles) != 1 {
		return nil, failed(entry, 0, "the build of the entrypoint did not produce exactly one file")
	}
	return r.OutputFiles[0].Contents, nil
}

// findOutside returns the base name of a file that the build read although the bundle does not contain it. It returns
// "" if there is no such file. The parameter metafile is esbuild's JSON list of all files that it read.
func findOutside(metafile string) string {
	var meta struct {
		Inputs map[string]struct{} `json:"inputs"`
	}
	if err := json.Unmarshal([]byte(metafile), &meta); err != nil {
		return "something"
	}
	for name := range meta.Inputs {
		if name = filepath.ToSlash(name); path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") {
			return path.Base(name)
		}
	}
	return ""
}
