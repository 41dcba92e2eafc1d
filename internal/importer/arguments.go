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
	launcher := launches(command)
	named := !launcher // what runs has been named
	left := -1         // how many had been copied when a word was left out
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
		placed := launcher && !named && slices.Contains(placeFlags, before)
		switch {
		case path.Base(command) == "docker" && (arg == "-e" || arg == "--env") && strings.Contains(next, "="):
			name, value, _ := strings.Cut(next, "=")
			env(name, value)
			out = append(out, arg, name)
			i++
		case option && joined && (secretlike.Name(flag) || keyFlag.MatchString(flag) && b.risky(value)):
			b.hold(value)
			b.note(Secret, what, "the value of %s is not copied: pass it through the environment", flag)
		case option && joined:
			kept, ok := b.option(what, value)
			if !ok {
				b.hold(value)
				return refuse("the value of " + flag)
			}
			out = append(out, flag+"="+kept)
		case (arg == "-u" || arg == "--user") && user.MatchString(next):
			out = append(out, arg, next)
			i++
		case option && (secretlike.Name(arg) || headerFlag(arg) || keyFlag.MatchString(arg) && b.risky(next)) && next != "" && !strings.HasPrefix(next, "-"):
			_, headerValue, isHeader := strings.Cut(next, ":")
			b.hold(next)
			if isHeader {
				b.hold(headerValue)
			}
			if arg == "-u" || arg == "--user" { // it may say as whom it runs
				return refuse("the value of " + arg)
			}
			b.note(Secret, what, "%s and its value are not copied: pass it through the environment", arg)
			i++
		case placed && b.plain(arg):
			out = append(out, arg)
		case !named && !placed && !option && b.plain(arg):
			named = !slices.Contains(launchWords, arg)
			out = append(out, arg)
		case b.risky(arg) && !(strings.HasPrefix(before, "-") && b.setting(arg)):
			leave(i+1, arg)
		case strings.Contains(arg, "://"):
			kept, ok := b.address(what, arg)
			if !ok {
				leave(i+1, arg)
				continue
			}
			out = append(out, kept)
			named = named || !placed
		default:
			out = append(out, arg)
			named = named || !option && !placed
		}
	}
	if left >= 0 && (len(out) > left || !named) {
		return refuse("an argument")
	}
	return out, true
}

// option is the value of an option that has no secret's name.
func (b *builder) option(what, value string) (kept string, ok bool) {
	switch {
	case b.risky(value) && !b.setting(value):
		return "", false
	case strings.Contains(value, "://"):
		return b.address(what, value)
	}
	return value, true
}

// launches reports whether a command runs what its first word names.
func launches(command string) bool {
	base := strings.ToLower(path.Base(strings.ReplaceAll(command, `\`, "/")))
	for _, ext := range []string{".exe", ".cmd"} {
		base = strings.TrimSuffix(base, ext)
	}
	return slices.Contains(launchers, base)
}

// launchers run what their first word names, behind launchWords. The values of
// placeFlags say where packages come from, or what runs them.
var (
	launchers   = strings.Fields("npx bunx pnpx uvx pipx npm pnpm yarn bun uv docker podman node deno python python3")
	launchWords = strings.Fields("exec dlx x run tool")
	placeFlags  = strings.Fields("--registry --index --index-url --default-index --extra-index-url --python --with --cache --userconfig --loglevel")
	// packageFlags are those whose value is the package.
	packageFlags = strings.Fields("-p --package --from --spec")
)

// plain reports whether what stands where a program, a package or a place is
// named is a name.
func (b *builder) plain(name string) bool {
	return plainName.MatchString(name) && !tokenLike(name) && !b.holds(name)
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// setting reports whether the value of an option is a word with numbers that is no
// password: us-east-1, 3.12, 512m, 8080:80.
func (b *builder) setting(value string) bool {
	return settingWord.MatchString(value) && !tokenLike(value) && !b.holds(value)
}

var settingWord = regexp.MustCompile(`^[a-z]+([._-][a-z]+)*([._-]\d{1,4})*$|^\d{1,5}((\.|:)\d{1,5})*[a-z]{0,2}$`)

// user is whom a program runs as.
var user = regexp.MustCompile(`^[a-z_][a-z_-]*$|^\d{1,6}(:\d{1,6})?$`)

// keyFlag is an option that may be for a secret, if its value looks like one.
var keyFlag = regexp.MustCompile(`(?i)[-_](key|pass|pwd?|auth|pat)$`)

func headerFlag(flag string) bool {
	return slices.Contains([]string{"-H", "--header", "--headers", "-u", "--user"}, flag)
}
