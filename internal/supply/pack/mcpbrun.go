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
	"runtime"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// bundle is the part of a bundle's manifest.json that ambit uses. ambit runs only the entry point. It rejects a bundle
// whose command runs another program or contains options for the interpreter. Other clients ask the user for the values
// in user_config, but ambit takes these values from args and env in the agent's manifest.
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
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	// Overrides maps a platform to a configuration. On that platform, the fields of the configuration replace the
	// fields above.
	Overrides map[string]json.RawMessage `json:"platform_overrides"`
}

// bundleTypes maps each server type to the commands that a bundle of this type can use.
var bundleTypes = map[string][]string{
	"node":   {"", "node"},
	"python": {"", "python", "python3"},
	"binary": {""}, // parseBundle also accepts the path of the entry point as the command
}

// parseBundle parses a bundle's manifest for one platform. The error lists every problem.
func parseBundle(text []byte, platform string) (*bundle, error) {
	var b bundle
	err := json.Unmarshal(text, &b)
	if override, ok := b.Server.Config.Overrides[platform]; ok && err == nil {
		err = json.Unmarshal(override, &b.Server.Config)
	}
	if err != nil {
		return nil, errors.New("the manifest.json in the archive is not a bundle manifest")
	}
	var problems []string
	commands, known := bundleTypes[b.Server.Type]
	if !known {
		problems = append(problems,
			"the server type "+diag.Quote(b.Server.Type)+" is not supported (supported types: node, python, binary)")
	}
	if b.Server.EntryPoint = path.Clean(strings.TrimPrefix(b.Server.EntryPoint, "./")); !plainPath(b.Server.EntryPoint) {
		problems = append(problems, "the entry_point is not a plain relative path in the bundle")
	}
	if known && !slices.Contains(commands, b.Server.Config.Command) &&
		!(b.Server.Type == "binary" && b.isEntry(b.Server.Config.Command)) {
		problems = append(problems, "the command "+diag.Quote(b.Server.Config.Command)+" does not run the entry point")
	}
	if known && b.Server.Type != "binary" && len(b.Server.Config.Args) > 0 {
		if !b.isEntry(b.Server.Config.Args[0]) {
			problems = append(problems, "the arguments do not begin with the entry point, so different code would run")
		}
		b.Server.Config.Args = b.Server.Config.Args[1:]
	}
	for _, name := range slices.Sorted(maps.Keys(b.Server.Config.Env)) {
		// PYTHONPATH is checked when a Python bundle is started.
		if !variableName().MatchString(name) || MachineVariable(name) &&
			!(name == "PYTHONPATH" && b.Server.Type == "python") {
			problems = append(problems, "a bundle is not allowed to set the variable "+diag.Quote(name))
		}
	}
	if p := b.Compatibility.Platforms; len(p) > 0 && !slices.Contains(p, platform) {
		problems = append(problems, "the bundle does not support "+platform)
	}
	if len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "; "))
	}
	return &b, nil
}

const bundleDir = "${__dirname}"

// isEntry reports whether a word of the command line is the entry point.
func (b *bundle) isEntry(word string) bool {
	word = strings.NewReplacer("${/}", "/", "${pathSeparator}", "/").Replace(word)
	word = strings.TrimPrefix(strings.TrimPrefix(word, bundleDir), "/")
	return word != "" && path.Clean(word) == b.Server.EntryPoint
}

var variableName = lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

// bundlePlatform returns the name that bundle manifests use for this operating system.
func bundlePlatform() string {
	if runtime.GOOS == "windows" {
		return "win32"
	}
	return runtime.GOOS
}

func readBundle(tree string, ref Ref) (*bundle, error) {
	refuse := func(err error) error {
		return fail(NoProgram, ref.String(), err.Error(),
			"use another server, or report the problem to the bundle's authors", nil)
	}
	text, err := readBounded(filepath.Join(tree, bundleManifest), 1<<20)
	if err != nil {
		return nil, refuse(errors.New("the manifest.json of the bundle is missing, unreadable or larger than 1 MiB"))
	}
	b, err := parseBundle(text, bundlePlatform())
	if err != nil {
		return nil, refuse(err)
	}
	if info, err := os.Lstat(b.entry(tree)); err != nil || !info.Mode().IsRegular() {
		return nil, refuse(errors.New("the entry_point is not a file in the bundle"))
	}
	return b, nil
}

func (b *bundle) entry(tree string) string {
	return filepath.Join(tree, filepath.FromSlash(b.Server.EntryPoint))
}

// executable makes the entry point of a binary bundle executable, because archives that were created on Windows
// contain no permissions.
func (b *bundle) executable(tree string) error {
	if b.Server.Type != "binary" {
		return nil
	}
	return os.Chmod(b.entry(tree), 0o700)
}

// launchFile is a Python program that runs one file of a bundle. The module search path contains the bundle's folders,
// but no packages that are installed on the machine.
const launchFile = `import builtins, os, runpy, sys
_, file, paths = sys.argv[:3]
sys.argv[:3] = [file]
sys.path[:0] = [os.path.dirname(file)] + [p for p in paths.split(os.pathsep) if p]
builtins.exit = builtins.quit = sys.exit
runpy.run_path(file, run_name="__main__")`

// program stores the bundle's command, arguments and environment variables in p.
func (b *bundle) program(p *Package, tree string, ref Ref) (err error) {
	entry := b.entry(tree)
	p.args, p.missingArgs = b.words(tree)
	p.Env, p.Needs = b.variables(tree)
	switch b.Server.Type {
	case "node":
		var node string
		if node, err = lookup("node", ""); err == nil {
			p.argv, p.Strays = []string{node, entry}, strays(p.Dir)
		}
	case "python":
		paths := p.Env["PYTHONPATH"]
		delete(p.Env, "PYTHONPATH") // Python ignores PYTHONPATH in isolated mode
		for _, dir := range filepath.SplitList(paths) {
			if within, err := filepath.Rel(tree, dir); err != nil || !filepath.IsLocal(within) {
				return fail(Unsafe, ref.String(), "the PYTHONPATH of the bundle contains a folder outside the bundle",
					"use another server, or report the problem to the bundle's authors", nil)
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

// words returns the arguments after the entry point. The second result lists the required arguments that have no
// value.
func (b *bundle) words(tree string) (words, lacks []string) {
	for _, text := range b.Server.Config.Args {
		if m := onlyConfig().FindStringSubmatch(text); m != nil {
			values, required := b.defaults(m[1])
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

// variables returns the environment variables that have a value. The second result lists the required variables that
// have no value.
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

// fill replaces the placeholders in text with their values. The second result is the name of the first placeholder
// without a value. The third result reports whether that placeholder must have a value.
func (b *bundle) fill(text, tree string) (filled, missing string, required bool) {
	return placeholder().ReplaceAllStringFunc(text, func(name string) string {
		name = name[2 : len(name)-1]
		key, config := strings.CutPrefix(name, "user_config.")
		values, must := b.defaults(key)
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

// defaults returns the default values of a user_config setting. The second result reports whether the setting is
// required. A secret has no default.
func (b *bundle) defaults(key string) (values []string, required bool) {
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
				// A default such as ${HOME}/Desktop is ignored, because the user must choose the path.
				return nil, c.Required
			}
			values = append(values, one)
		case bool, float64:
			values = append(values, fmt.Sprint(one))
		}
	}
	return values, c.Required
}

// Lacks returns a description of each required variable that is not set and of each required argument that has no
// value. The callback isSet reports whether a variable is set. If args is not empty, it replaces the bundle's default
// arguments, and Lacks reports no arguments.
func (p *Package) Lacks(args []string, isSet func(variable string) bool) []string {
	var out []string
	for _, name := range p.Needs {
		if !isSet(name) {
			out = append(out, "the variable "+diag.Quote(name))
		}
	}
	if len(args) == 0 {
		for _, name := range p.missingArgs {
			out = append(out, "the argument "+diag.Quote(name))
		}
	}
	return out
}
