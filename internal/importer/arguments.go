package importer

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/secretlike"
)

// arguments are the arguments that do not look like a secret: flags, paths,
// addresses, packages, plain words. What is an option for a secret is left out, and
// so are the last words. With anything else left out, another word would take its
// place, or a bound would be gone: then it is not ok, and the server cannot be copied.
func (b *builder) arguments(what, command string, args []string, env func(name, value string)) (out []string, ok bool) {
	out = []string{}
	by := base(command)
	named := !slices.Contains(launchers, by) // what runs has been named
	left := -1                               // how many had been copied when a word was left out
	leave := func(number int, arg string) {
		b.hold(arg)
		if left < 0 {
			left = len(out)
		}
		b.note(Secret, what, "argument %d is not copied: it may be a secret, or refers to one", number)
	}
	refuse := func(name string) ([]string, bool) {
		b.note(Dropped, what, "%s may be a secret, or refers to one, and without it something else would run", name)
		return nil, false
	}
	for i := 0; i < len(args); i++ {
		arg, next, before := args[i], "", ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		if i > 0 {
			before = args[i-1]
		}
		flag, value, joined := strings.Cut(arg, "=")
		option := strings.HasPrefix(arg, "-")
		// Behind the image they are the program's own.
		if name, value, given := variableOf(by, arg, next); given && !named {
			env(name, value)
			out = append(out, "-e", name)
			if !joined {
				i++
			}
			continue
		}
		// A word behind an option is taken for its value, unless that has none.
		valued := strings.HasPrefix(before, "-") && !strings.Contains(before, "=") && !slices.Contains(switches, before)
		names := !named && !option && (!valued || slices.Contains(packageFlags, before) && !slices.Contains(containers, by) || before == "-m")
		switch {
		case joined && secretlike.Name(flag) && !option:
			b.hold(value)
			return refuse("the value of " + flag)
		case option && joined && (secretlike.Name(flag) || keyFlag.MatchString(flag) && b.risky(value)):
			b.hold(value)
			b.note(Secret, what, "the value of %s is not copied: pass it through the environment", flag)
		case option && joined:
			kept, ok := b.option(what, flag, value)
			if !ok {
				b.hold(value)
				return refuse("the value of " + flag)
			}
			out = append(out, flag+"="+kept)
		case userFlag(arg) && slices.Contains(others, by):
			if !user.MatchString(next) || b.holds(next) {
				b.hold(next)
				return refuse("the value of " + arg)
			}
			out = append(out, arg, next)
			i++
		case option && next != "" && !strings.HasPrefix(next, "-") && (secretlike.Name(arg) || headerFlag(arg, next) || keyFlag.MatchString(arg) && b.risky(next)):
			_, headerValue, isHeader := strings.Cut(next, ":")
			b.hold(next)
			if isHeader {
				b.hold(headerValue)
			}
			b.note(Secret, what, "%s and its value are not copied: pass it through the environment", arg)
			i++
		case names && b.plain(arg):
			named = !slices.Contains(launchWords, arg)
			out = append(out, arg)
		case b.risky(arg) && !(valued && b.setting(before, arg)):
			leave(i+1, arg)
		case strings.Contains(arg, "://"):
			kept, ok := b.address(what, arg)
			if !ok {
				leave(i+1, arg)
				continue
			}
			out = append(out, kept)
			named = named || names
		default:
			out = append(out, arg)
			named = named || names
		}
	}
	if left >= 0 && (len(out) > left || !named) {
		return refuse("an argument")
	}
	return out, true
}

// variableOf is a variable that a container is given.
func variableOf(by, arg, next string) (name, value string, given bool) {
	if !slices.Contains(containers, by) {
		return "", "", false
	}
	set, short := strings.CutPrefix(arg, "-e")
	switch long, joined := strings.CutPrefix(arg, "--env="); {
	case arg == "-e" || arg == "--env":
		set = next
	case joined:
		set = long
	case !short:
		return "", "", false
	}
	name, value, given = strings.Cut(strings.TrimPrefix(set, "="), "=")
	// -eNAME=x is one of those, and -endpoint=x is not.
	return name, value, given && name != "" && name[0] != '-' && (!short || arg == "-e" || name == strings.ToUpper(name))
}

// option is the value of an option that has no secret's name.
func (b *builder) option(what, flag, value string) (kept string, ok bool) {
	name, _, set := strings.Cut(value, "=")
	switch {
	case set && secretlike.Name(name), b.risky(value) && !b.setting(flag, value):
		return "", false
	case strings.Contains(value, "://"):
		return b.address(what, value)
	}
	return value, true
}

// base is a command without its folder and extension.
func base(command string) string {
	name := strings.ToLower(path.Base(strings.ReplaceAll(command, `\`, "/")))
	for _, ext := range []string{".exe", ".cmd"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

var (
	// launchers run what their first word names, behind launchWords.
	launchers   = strings.Fields("npx bunx pnpx uvx pipx npm pnpm yarn bun uv docker podman node deno python python3")
	launchWords = strings.Fields("exec dlx x run tool")
	containers  = strings.Fields("docker podman")
	// others run programs as somebody else.
	others = strings.Fields("sudo docker podman su runuser")
	// placeFlags are options whose values say where packages come from, or what runs
	// them, packageFlags those whose value is the package, and switches have none.
	placeFlags   = strings.Fields("--registry --index --index-url --default-index --extra-index-url --python --with --cache --userconfig")
	packageFlags = strings.Fields("-p --package --from --spec")
	switches     = strings.Fields("-y --yes -i -t -it -d -q -u -B -s --rm --init --quiet --silent --no-install --isolated --offline --refresh --no-cache")
)

// plain reports whether what stands where a program or a package is named is a name.
func (b *builder) plain(name string) bool {
	return plainName.MatchString(name) && !tokenLike(name) && !b.holds(name)
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// setting reports whether the value of an option is a word with numbers that is no
// password: 3.12, 512m and 8080:80 of any, us-east-1 and python3 of some.
func (b *builder) setting(flag, value string) bool {
	return (numbers.MatchString(value) || settingFlag.MatchString(flag) && plainName.MatchString(value)) && !tokenLike(value) && !b.holds(value)
}

var (
	numbers     = regexp.MustCompile(`^\d{1,5}([.:]\d{1,5})*[a-z]{0,2}$`)
	settingFlag = regexp.MustCompile(`^--([a-z-]+-)?(region|zone|location|model|platform|arch|profile|level|network|encoding|python|with|version|cache|loglevel)$`)
)

// user is whom a program runs as.
var user = regexp.MustCompile(`^[a-z_][a-z_-]*$|^\d{1,6}(:\d{1,6})?$`)

// keyFlag is an option that may be for a secret, if its value looks like one.
var keyFlag = regexp.MustCompile(`(?i)[-_](key|pass|pwd?|auth|pat)$`)

func userFlag(flag string) bool { return flag == "-u" || flag == "--user" }

func headerFlag(flag, value string) bool {
	return slices.Contains([]string{"-H", "--header", "--headers"}, flag) || userFlag(flag) && strings.Contains(value, ":")
}
