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

// bundle is what a bundle's manifest.json says, as far as it is used here. What
// runs is its entry point, and nothing else: a bundle that asks for another
// program, or for options of the one that interprets it, is refused. Values that
// its users were to be asked for come from their settings here.
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

// The types of servers in bundles, with the names that their commands may have.
var bundleTypes = map[string][]string{
	"node":   {"", "node"},
	"python": {"", "python", "python3"},
	"binary": {""}, // or the entry point
}

// parseBundle reads a manifest. Every problem is told at once.
func parseBundle(text []byte, platform string) (*bundle, error) {
	var b bundle
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, errors.New("its manifest.json is not what a bundle's is")
	}
	b.settle(platform)
	var problems []string
	commands, known := bundleTypes[b.Server.Type]
	if !known {
		problems = append(problems, "servers of the type "+diag.Quote(b.Server.Type)+" are not run here, but node, python and binary")
	}
	if b.Server.EntryPoint = path.Clean(strings.TrimPrefix(b.Server.EntryPoint, "./")); !plainPath(b.Server.EntryPoint) {
		problems = append(problems, "its entry point is not a plain path within it")
	}
	if known && !slices.Contains(commands, b.Server.Config.Command) && !(b.Server.Type == "binary" && b.isEntry(b.Server.Config.Command)) {
		problems = append(problems, "its command "+diag.Quote(b.Server.Config.Command)+" is not what runs its entry point")
	}
	if known && b.Server.Type != "binary" && len(b.Server.Config.Args) > 0 {
		if !b.isEntry(b.Server.Config.Args[0]) {
			problems = append(problems, "its arguments do not begin with its entry point, so that something else would run")
		}
		b.Server.Config.Args = b.Server.Config.Args[1:]
	}
	for _, name := range slices.Sorted(maps.Keys(b.Server.Config.Env)) {
		// Where PYTHONPATH leads is looked at when a bundle in Python is started.
		if !variableName().MatchString(name) || MachineVariable(name) && !(name == "PYTHONPATH" && b.Server.Type == "python") {
			problems = append(problems, "it sets the variable "+diag.Quote(name)+", which no bundle may")
		}
	}
	if p := b.Compatibility.Platforms; len(p) > 0 && !slices.Contains(p, platform) {
		problems = append(problems, "it is not for "+platform)
	}
	if len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "; "))
	}
	return &b, nil
}

// settle puts what is said for this platform over what is said for all.
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

// bundlePlatform is what bundles call this system.
func bundlePlatform() string {
	if runtime.GOOS == "windows" {
		return "win32"
	}
	return runtime.GOOS
}

func readBundle(tree string, ref Ref) (*bundle, error) {
	refuse := func(err error) error {
		return &Error{Code: NoProgram, What: ref.String(), Detail: err.Error(), Hint: "this bundle cannot be run here; tell its authors"}
	}
	text, err := readBounded(filepath.Join(tree, bundleManifest), 1<<20)
	if err != nil {
		return nil, refuse(errors.New("it has no manifest.json of at most a MiB"))
	}
	b, err := parseBundle(text, bundlePlatform())
	if err != nil {
		return nil, refuse(err)
	}
	if info, err := os.Lstat(b.entry(tree)); err != nil || !info.Mode().IsRegular() {
		return nil, refuse(errors.New("its entry point is not there"))
	}
	return b, nil
}

func (b *bundle) entry(tree string) string {
	return filepath.Join(tree, filepath.FromSlash(b.Server.EntryPoint))
}

// executable lets a binary be started, also if whoever packed it knew no modes.
func (b *bundle) executable(tree string) error {
	if b.Server.Type != "binary" {
		return nil
	}
	return os.Chmod(b.entry(tree), 0o700)
}

// launchFile runs one file of a bundle, with the folders that it brings and none
// of the machine's own packages.
const launchFile = `import builtins, os, runpy, sys
_, file, paths = sys.argv[:3]
sys.argv[:3] = [file]
sys.path[:0] = [os.path.dirname(file)] + [p for p in paths.split(os.pathsep) if p]
builtins.exit = builtins.quit = sys.exit
runpy.run_path(file, run_name="__main__")`

// program fills in how a bundle is started.
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
		delete(p.Env, "PYTHONPATH") // it counts for nothing where Python is isolated
		for _, dir := range filepath.SplitList(paths) {
			if within, err := filepath.Rel(tree, dir); err != nil || !filepath.IsLocal(within) {
				return &Error{Code: Unsafe, What: ref.String(), Detail: "its PYTHONPATH leads out of it", Hint: "this bundle cannot be run here; tell its authors"}
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

// words are the arguments behind the entry point, and the names of those that
// have no value.
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

// variables are those that have a value, and the names of those that need one.
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

// fill puts values in the place of names. It tells the first name that has none,
// and whether it must have one.
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

// asked are the values that a bundle itself gives for what its user was to be
// asked for, and whether there must be one. It gives none for a secret.
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
				return nil, c.Required // a place of the user's, which nobody has chosen
			}
			values = append(values, one)
		case bool, float64:
			values = append(values, fmt.Sprint(one))
		}
	}
	return values, c.Required
}

// Lacks are the settings without which a package's program is not to be started
// with these arguments and variables, in words.
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
