package pack

import (
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// family is a group of commands that run a package directly from a registry. All commands of a family parse their
// options in the same way.
type family struct {
	kind  Kind
	words [][]string // the commands of the family, split into words
	// harmless lists the options that take no value and do not change which code runs.
	harmless []string
	// packageOptions lists the options that specify the package. After such an option, the first word that is not an
	// option is the name of a program in the package.
	packageOptions []string
	// runtimeOptions lists the options that select the interpreter.
	runtimeOptions []string
	// eager is true if the client also parses options after the package name, up to "--".
	eager bool
}

var npmOptions = []string{
	"-y", "--yes", "--no", "-q", "--quiet", "-s", "--silent", "--verbose", "--offline", "--prefer-offline",
	"--prefer-online",
	"--ignore-scripts", "--no-install", "--bun",
}

// families lists the known families. Identify uses the first family that matches.
var families = []*family{
	{
		kind: NPM, words: [][]string{{"npx"}, {"bunx"}, {"pnpx"}, {"bun", "x"}, {"pnpm", "dlx"}, {"yarn", "dlx"}},
		harmless: npmOptions, packageOptions: []string{"-p", "--package"},
	},
	{
		kind: NPM, words: [][]string{{"npm", "exec"}, {"npm", "x"}},
		harmless: npmOptions, packageOptions: []string{"--package"}, eager: true,
	},
	{
		kind: PyPI, words: [][]string{{"uvx"}, {"uv", "tool", "run"}, {"pipx", "run"}},
		harmless: []string{
			"-q", "--quiet", "-v", "--verbose", "-n", "--no-cache", "--offline", "--isolated", "--refresh", "--no-progress",
			"--native-tls", "--system-certs", "--no-config", "--no-python-downloads", "--no-build", "--pypackages",
		},
		packageOptions: []string{"--from", "--spec"}, runtimeOptions: []string{"-p", "--python"},
	},
}

// read parses a command of the family. In such a command, the options come first, then the package or one of its
// programs, and then the arguments of the program.
func (f *family) read(c *command) (Ref, error) {
	ref := Ref{Kind: f.kind, spec: -1}
	take := func(at, from int) error {
		if ref.spec >= 0 {
			return c.unpinnable("the command installs more than one package",
				"specify only one package; ambit also installs its dependencies")
		}
		ref.spec = at - 1
		return ref.parseSpec(c, c.argv[at][from:])
	}
	for ; c.off < len(c.argv); c.off++ {
		word := c.argv[c.off]
		if word == "--" {
			c.off++
			break
		}
		if !strings.HasPrefix(word, "-") {
			break
		}
		name, value, joined := strings.Cut(word, "=")
		at, from := c.off, len(name)+1
		takesValue := slices.Contains(f.packageOptions, name) || slices.Contains(f.runtimeOptions, name)
		if takesValue && !joined {
			if c.off++; c.off >= len(c.argv) {
				return Ref{}, c.unpinnable("the option "+diag.Quote(word)+" has no value", "")
			}
			at, from, value = c.off, 0, c.argv[c.off]
		}
		switch {
		case slices.Contains(f.harmless, word):
		case slices.Contains(f.packageOptions, name):
			if err := take(at, from); err != nil {
				return Ref{}, err
			}
		case slices.Contains(f.runtimeOptions, name) && pythonVersion().MatchString(value):
			ref.Runtime = "python" + strings.TrimPrefix(value, "python")
		default:
			return Ref{}, c.unpinnable("the option "+diag.Quote(word)+" could change which code runs",
				"remove the option; configure registries and proxies in the client's own settings")
		}
	}
	if c.off >= len(c.argv) {
		return Ref{}, c.unpinnable("the command does not specify a package", "specify the package after the options")
	}
	if ref.spec < 0 {
		if err := take(c.off, 0); err != nil {
			return Ref{}, err
		}
	} else if ref.Bin = c.argv[c.off]; !binName().MatchString(ref.Bin) {
		return Ref{}, c.unpinnable(diag.Quote(ref.Bin)+" is not the name of a program", "")
	}
	first := c.off
	c.off++
	ref.Args = c.rest()
	if f.eager && (first == 0 || c.argv[first-1] != "--") {
		return ref.eagerArgs(c)
	}
	return ref, nil
}

// eagerArgs returns a copy of r without the first "--" in Args. An eager client does not pass that word to the program.
// eagerArgs fails if the client would parse one of the arguments as its own option.
func (r Ref) eagerArgs(c *command) (Ref, error) {
	var args []string
	for i, a := range r.Args {
		switch {
		case a == "--":
			r.Args = append(args, r.Args[i+1:]...)
			return r, nil
		case strings.HasPrefix(a, "-"):
			return Ref{}, c.unpinnable("the client would parse "+diag.Quote(a)+" as its own option",
				"put \"--\" in front of the package name")
		}
		args = append(args, a)
	}
	return r, nil
}

var (
	npmName       = lazy(`^(?:@[A-Za-z0-9~][A-Za-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*$`)
	pypiSpec      = lazy(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:\[([A-Za-z0-9._,-]*)\])?(?:(?:==|@)(.*))?$`)
	pypiVersion   = lazy(`^v?[0-9]+(?:[.!_+-]?[0-9A-Za-z]+)*$`)
	pythonVersion = lazy(`^(?:python)?[0-9]+\.[0-9]+$`)
	binName       = lazy(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
)

const maxName = 214

func (r *Ref) parseSpec(c *command, spec string) error {
	if r.Kind == PyPI {
		m := pypiSpec().FindStringSubmatch(spec)
		if m == nil || len(m[1]) > maxName {
			return c.unpinnable(diag.Quote(spec)+" must be a Python package name, which can be followed by an exact version",
				"write name==1.2.3")
		}
		r.Name, r.Asked = m[1], m[3]
		if m[2] != "" {
			r.Extras = strings.Split(m[2], ",")
		}
		if r.Asked != "" && r.Asked != "latest" && !pypiVersion().MatchString(r.Asked) {
			return c.unpinnable(diag.Quote(r.Asked)+" is not an exact version", "write name==1.2.3")
		}
		return nil
	}
	r.Name = spec
	if at := strings.LastIndexByte(spec, '@'); at > 0 {
		r.Name, r.Asked = spec[:at], spec[at+1:]
	}
	if !npmName().MatchString(r.Name) || len(r.Name) > maxName || strings.ContainsAny(r.Asked, ":/") {
		return c.unpinnable(diag.Quote(spec)+" is not the name of a package in the npm registry",
			"specify a published package, such as name@1.2.3")
	}
	return nil
}
