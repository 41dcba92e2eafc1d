package pack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// bundle is the part of a bundle's manifest.json that ambit uses. Only the entry point
// runs: a bundle that requires another program, or options for its interpreter, is
// refused. Values that the bundle would ask its user for come from the manifest's
// settings.
type bundle struct {
	Version string `json:"version"`
	Server  struct {
		Type       string       `json:"type"`
		EntryPoint string       `json:"entry_point"`
		Config     bundleConfig `json:"mcp_config"`
	} `json:"server"`
	UserConfig map[string]struct {
		Default   json.RawMessage `json:"default"`
		Required  bool            `json:"required"`
		Sensitive bool            `json:"sensitive"`
	} `json:"user_config"`
	Compatibility struct {
		Platforms []string `json:"platforms"`
	} `json:"compatibility"`
}

type bundleConfig struct {
	Command   string                  `json:"command"`
	Args      []string                `json:"args"`
	Env       map[string]string       `json:"env"`
	Overrides map[string]bundleConfig `json:"platform_overrides"`
}

// bundleTypes are the types of servers in bundles, with the commands that each type
// may have.
var bundleTypes = map[string][]string{
	"node":   {"", "node"},
	"python": {"", "python", "python3"},
	"binary": {""}, // or the entry point
}

// parseBundle parses a manifest. The error lists every problem.
func parseBundle(text []byte, platform string) (*bundle, error) {
	var b bundle
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, errors.New("its manifest.json is not a bundle manifest")
	}
	b.settle(platform)
	var problems []string
	commands, known := bundleTypes[b.Server.Type]
	if !known {
		problems = append(problems, "the server type "+diag.Quote(b.Server.Type)+" is not supported; node, python and binary are")
	}
	if b.Server.EntryPoint = path.Clean(strings.TrimPrefix(b.Server.EntryPoint, "./")); !plainPath(b.Server.EntryPoint) {
		problems = append(problems, "its entry point is not a simple path within the bundle")
	}
	if known && !slices.Contains(commands, b.Server.Config.Command) && !(b.Server.Type == "binary" && b.isEntry(b.Server.Config.Command)) {
		problems = append(problems, "its command "+diag.Quote(b.Server.Config.Command)+" does not run its entry point")
	}
	if known && b.Server.Type != "binary" && len(b.Server.Config.Args) > 0 {
		if !b.isEntry(b.Server.Config.Args[0]) {
			problems = append(problems, "its arguments do not begin with its entry point, so other code would run")
		}
		b.Server.Config.Args = b.Server.Config.Args[1:]
	}
	for _, name := range slices.Sorted(maps.Keys(b.Server.Config.Env)) {
		// PYTHONPATH is checked when a Python bundle is started.
		if !variableName().MatchString(name) || MachineVariable(name) && !(name == "PYTHONPATH" && b.Server.Type == "python") {
			problems = append(problems, "it sets the variable "+diag.Quote(name)+", which bundles may not set")
		}
	}
	if p := b.Compatibility.Platforms; len(p) > 0 && !slices.Contains(p, platform) {
		problems = append(problems, "it does not support "+platform)
	}
	if len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "; "))
	}
	return &b, nil
}

// settle applies the overrides for this platform.
func (b *bundle) settle(platform string) {
	c := &b.Server.Config
	over, ok := c.Overrides[platform]
	c.Overrides = nil
	if !ok {
		return
	}
	if over.Command != "" {
		c.Command = over.Command
	}
	if over.Args != nil {
		c.Args = over.Args
	}
	if c.Env = maps.Clone(c.Env); c.Env == nil {
		c.Env = map[string]string{}
	}
	maps.Copy(c.Env, over.Env)
}

const bundleDir = "${__dirname}"

// isEntry reports whether a word of the command line is the entry point.
func (b *bundle) isEntry(word string) bool {
	word = strings.NewReplacer("${/}", "/", "${pathSeparator}", "/").Replace(word)
	word = strings.TrimPrefix(strings.TrimPrefix(word, bundleDir), "/")
	return word != "" && path.Clean(word) == b.Server.EntryPoint
}

var variableName = lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

// bundlePlatform is this system's name in bundle manifests.
func bundlePlatform() string {
	if runtime.GOOS == "windows" {
		return "win32"
	}
	return runtime.GOOS
}

func readBundle(tree string, ref Ref) (*bundle, error) {
	refuse := func(err error) error {
		return &Error{Code: NoProgram, What: ref.String(), Detail: err.Error(), Hint: "this bundle cannot run here; report it to its authors"}
	}
	text, err := readBounded(filepath.Join(tree, bundleManifest), 1<<20)
	if err != nil {
		return nil, refuse(errors.New("it has no manifest.json of at most 1 MiB"))
	}
	b, err := parseBundle(text, bundlePlatform())
	if err != nil {
		return nil, refuse(err)
	}
	if info, err := os.Lstat(b.entry(tree)); err != nil || !info.Mode().IsRegular() {
		return nil, refuse(errors.New("its entry point does not exist"))
	}
	return b, nil
}

func (b *bundle) entry(tree string) string {
	return filepath.Join(tree, filepath.FromSlash(b.Server.EntryPoint))
}

// executable makes a binary executable, since archives made on Windows have no modes.
func (b *bundle) executable(tree string) error {
	if b.Server.Type != "binary" {
		return nil
	}
	return os.Chmod(b.entry(tree), 0o700)
}

// launchFile runs one file of a bundle, with the bundle's folders on the path and none
// of the machine's packages.
const launchFile = `import builtins, os, runpy, sys
_, file, paths = sys.argv[:3]
sys.argv[:3] = [file]
sys.path[:0] = [os.path.dirname(file)] + [p for p in paths.split(os.pathsep) if p]
builtins.exit = builtins.quit = sys.exit
runpy.run_path(file, run_name="__main__")`

// program sets the command that starts a bundle.
func (b *bundle) program(p *Package, tree string, ref Ref) (err error) {
	entry := b.entry(tree)
	p.args, p.lacks = b.words(tree)
	p.Env, p.Needs = b.variables(tree)
	switch b.Server.Type {
	case "node":
		var node string
		if node, err = lookup("node", ""); err == nil {
			p.argv, p.Strays = []string{node, entry}, strays(p.Dir)
		}
	case "python":
		paths := p.Env["PYTHONPATH"]
		delete(p.Env, "PYTHONPATH") // isolated Python ignores it
		for _, dir := range filepath.SplitList(paths) {
			if within, err := filepath.Rel(tree, dir); err != nil || !filepath.IsLocal(within) {
				return &Error{Code: Unsafe, What: ref.String(), Detail: "its PYTHONPATH leaves the bundle", Hint: "this bundle cannot run here; report it to its authors"}
			}
		}
		var python string
		if python, _, err = findPython(context.Background(), "", ""); err == nil {
			p.argv = []string{python, "-I", "-S", "-B", "-c", launchFile, entry, paths}
		}
	default:
		p.argv, err = runFile(ref, entry)
	}
	return err
}

// words returns the arguments after the entry point, and the names of those without a
// value.
func (b *bundle) words(tree string) (words, lacks []string) {
	for _, text := range b.Server.Config.Args {
		if m := onlyConfig().FindStringSubmatch(text); m != nil {
			values, required := b.asked(m[1])
			if words = append(words, values...); len(values) == 0 && required {
				lacks = append(lacks, m[1])
			}
			continue
		}
		word, missing, _ := b.fill(text, tree)
		if words = append(words, word); missing != "" {
			lacks = append(lacks, missing)
		}
	}
	return words, lacks
}

// variables returns the variables that have a value, and the names of those that need
// one.
func (b *bundle) variables(tree string) (env map[string]string, needs []string) {
	env = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(b.Server.Config.Env)) {
		value, missing, required := b.fill(b.Server.Config.Env[name], tree)
		switch {
		case missing == "":
			env[name] = value
		case required:
			needs = append(needs, name)
		}
	}
	return env, needs
}

var (
	placeholder = lazy(`\$\{([^}]*)\}`)
	onlyConfig  = lazy(`^\$\{user_config\.([^}]*)\}$`)
)

// fill replaces placeholders by their values. It returns the first placeholder without
// a value, and whether that value is required.
func (b *bundle) fill(text, tree string) (filled, missing string, required bool) {
	return replaceAll(placeholder(), text, func(name string) string {
		key, config := strings.CutPrefix(name, "user_config.")
		values, must := b.asked(key)
		switch {
		case name == "__dirname":
			return tree
		case name == "/" || name == "pathSeparator":
			return string(filepath.Separator)
		case config && len(values) == 1:
			return values[0]
		case missing == "":
			missing, required = name, must || !config
		}
		return ""
	}), missing, required
}

func replaceAll(r *regexp.Regexp, text string, value func(name string) string) string {
	return r.ReplaceAllStringFunc(text, func(m string) string { return value(m[2 : len(m)-1]) })
}

// asked returns the default values that a bundle gives for a setting, and whether the
// setting is required. Secrets have no default.
func (b *bundle) asked(key string) (values []string, required bool) {
	c, ok := b.UserConfig[key]
	if !ok || c.Sensitive {
		return nil, !ok || c.Required
	}
	var v any
	if json.Unmarshal(c.Default, &v) != nil {
		return nil, c.Required
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, one := range list {
		switch one := one.(type) {
		case string:
			if strings.Contains(one, "${") {
				return nil, c.Required // a path that the user has to choose
			}
			values = append(values, one)
		case bool, float64:
			values = append(values, fmt.Sprint(one))
		}
	}
	return values, c.Required
}

// Lacks describes the settings that the package's program still needs to start with
// these arguments and variables.
func (p *Package) Lacks(args []string, has func(variable string) bool) []string {
	var out []string
	for _, name := range p.Needs {
		if !has(name) {
			out = append(out, "the variable "+diag.Quote(name))
		}
	}
	if len(args) == 0 {
		for _, name := range p.lacks {
			out = append(out, "the argument "+diag.Quote(name))
		}
	}
	return out
}
