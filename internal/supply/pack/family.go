package pack

import (
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// family is a set of commands that run a package straight from a registry and parse
// their options alike.
type family struct {
	words [][]string
	// plain are options without a value that do not change which code runs.
	plain []string
	// from are options that name the package; the first word is then one of its
	// programs.
	from []string
	// runtime are options that choose the interpreter.
	runtime []string
	// eager clients parse options after the package too, up to --.
	eager bool
	read  func(*command, *family) (Ref, error)
}

var npmOptions = []string{
	"-y", "--yes", "--no", "-q", "--quiet", "-s", "--silent", "--verbose", "--offline", "--prefer-offline", "--prefer-online",
	"--ignore-scripts", "--no-install", "--bun",
}

// families are tried in order.
var families = []*family{
	{
		words: [][]string{{"npx"}, {"bunx"}, {"pnpx"}, {"bun", "x"}, {"pnpm", "dlx"}, {"yarn", "dlx"}},
		plain: npmOptions, from: []string{"-p", "--package"}, read: readPackage,
	},
	{
		words: [][]string{{"npm", "exec"}, {"npm", "x"}},
		plain: npmOptions, from: []string{"--package"}, eager: true, read: readPackage,
	},
	{
		words: [][]string{{"uvx"}, {"uv", "tool", "run"}, {"pipx", "run"}},
		plain: []string{
			"-q", "--quiet", "-v", "--verbose", "-n", "--no-cache", "--offline", "--isolated", "--refresh", "--no-progress",
			"--native-tls", "--system-certs", "--no-config", "--no-python-downloads", "--no-build", "--pypackages",
		},
		from: []string{"--from", "--spec"}, runtime: []string{"-p", "--python"}, read: readPackage,
	},
}

func (f *family) kind() Kind {
	if f.runtime != nil {
		return PyPI
	}
	return NPM
}

// readPackage parses the options, then the package or its program, then the program's
// arguments.
func readPackage(c *command, f *family) (Ref, error) {
	ref := Ref{Kind: f.kind(), spec: -1}
	take := func(at, from int) error {
		if ref.spec >= 0 {
			return c.unpinnable("it installs more than one package", "name one package; its dependencies are installed with it")
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
		wants := slices.Contains(f.from, name) || slices.Contains(f.runtime, name)
		if wants && !joined {
			if c.off++; c.off >= len(c.argv) {
				return Ref{}, c.unpinnable(diag.Quote(word)+" has no value", "")
			}
			at, from, value = c.off, 0, c.argv[c.off]
		}
		switch {
		case slices.Contains(f.plain, word):
		case slices.Contains(f.from, name):
			if err := take(at, from); err != nil {
				return Ref{}, err
			}
		case slices.Contains(f.runtime, name) && pythonVersion().MatchString(value):
			ref.Runtime = "python" + strings.TrimPrefix(value, "python")
		default:
			return Ref{}, c.unpinnable(diag.Quote(word)+" may change what runs", "remove the option; configure registries and proxies in the client's own settings")
		}
	}
	if c.off >= len(c.argv) {
		return Ref{}, c.unpinnable("it names no program", "name the package after the options")
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

// eagerArgs returns the program's arguments for a client that parses options
// everywhere before --.
func (r Ref) eagerArgs(c *command) (Ref, error) {
	var args []string
	for i, a := range r.Args {
		switch {
		case a == "--":
			r.Args = append(args, r.Args[i+1:]...)
			return r, nil
		case strings.HasPrefix(a, "-"):
			return Ref{}, c.unpinnable("the client would parse "+diag.Quote(a)+" as its own option", "put -- in front of the package")
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

// parseSpec parses a package's name and optional version.
func (r *Ref) parseSpec(c *command, spec string) error {
	notOne := c.unpinnable(diag.Quote(spec)+" is not a package of the registry", "name a published package, such as name@1.2.3")
	if r.Kind == PyPI {
		m := pypiSpec().FindStringSubmatch(spec)
		if m == nil || len(m[1]) > maxName {
			return c.unpinnable(diag.Quote(spec)+" is not a package of the Python index at one version", "write name==1.2.3")
		}
		r.Name, r.Asked = m[1], m[3]
		if m[2] != "" {
			r.Extras = strings.Split(m[2], ",")
		}
		if r.Asked != "" && r.Asked != "latest" && !pypiVersion().MatchString(r.Asked) {
			return c.unpinnable(diag.Quote(r.Asked)+" is not one version", "write name==1.2.3")
		}
		return nil
	}
	r.Name = spec
	if at := strings.LastIndexByte(spec, '@'); at > 0 {
		r.Name, r.Asked = spec[:at], spec[at+1:]
	}
	if !npmName().MatchString(r.Name) || len(r.Name) > maxName || strings.ContainsAny(r.Asked, ":/") {
		return notOne
	}
	return nil
}
