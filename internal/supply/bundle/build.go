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

// require lets CommonJS modules, which esbuild merges into the one file, load node's
// own modules.
const require = `import { createRequire as ambitRequire } from "node:module"; const require = ambitRequire(import.meta.url);`

// build compiles a TypeScript entrypoint and its imports to one file for node. It
// works on a copy of the tree and uses no file outside of it.
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
		return nil, failed(entry, 0, "it cannot be built here: %v", err)
	}
	o := api.BuildOptions{
		EntryPoints: []string{filepath.FromSlash(entry)}, AbsWorkingDir: dir, Outfile: filepath.Join(dir, "out.mjs"),
		Bundle: true, Platform: api.PlatformNode, Format: api.FormatESModule, Target: api.ES2022, Metafile: true,
		Banner: map[string]string{"js": require}, Charset: api.CharsetUTF8, LegalComments: api.LegalCommentsInline,
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
	if stray := outside(r.Metafile); stray != "" {
		return nil, failed(entry, 0, "it imports %s, which is not in the bundle", diag.Quote(stray))
	}
	if len(r.OutputFiles) != 1 {
		return nil, failed(entry, 0, "it does not build to one file")
	}
	return r.OutputFiles[0].Contents, nil
}

// outside returns the first file of the build that is not part of the bundle.
func outside(metafile string) string {
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
