package importer

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/ambit-run/ambit/internal/guard/secret"
	"github.com/ambit-run/ambit/internal/secretlike"
)

// hold keeps a value back. Short ones are not searched for: they stand in many
// words.
func (b *builder) hold(value string) {
	value = strings.TrimSpace(value)
	for _, scheme := range []string{"Bearer ", "bearer ", "Basic ", "Token ", "token "} {
		value = strings.TrimPrefix(value, scheme)
	}
	if len(value) >= 8 && !harmless(value) && !slices.Contains(b.held, value) {
		b.held = append(b.held, value)
	}
}

// holds reports whether a text has a value in it that was held back.
func (b *builder) holds(s string) bool {
	return slices.ContainsFunc(b.held, func(secret string) bool { return strings.Contains(s, secret) })
}

const removed = "[removed]"

// scrub is a text for people without what looks like a secret, and without
// characters that hide.
func (b *builder) scrub(s string) string {
	s = clean(s)
	before := s
	for _, held := range b.held {
		s = strings.ReplaceAll(s, held, removed)
	}
	for f := secretlike.Find(s); f.Found(); f = secretlike.Find(s) {
		s = s[:f.Start] + removed + s[f.End:]
	}
	// What cannot be searched is not copied.
	engine, err := secret.Standard()
	var found []secret.Match
	if err == nil {
		found, err = engine.Scan([]byte(s), nil, nil)
	}
	if err != nil {
		s = ""
		found = nil
	}
	for _, m := range slices.Backward(secret.Merge(found)) {
		s = s[:m.Start] + removed + s[m.End:]
	}
	if s != before {
		b.note(Secret, "text", "what looks like a secret was taken out of it")
	}
	return s
}

// clean takes out what people cannot see.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r' || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r) || r == unicode.ReplacementChar:
			return -1
		case 0xE0000 <= r && r <= 0xE0FFF || 0xFE00 <= r && r <= 0xFE0F:
			return -1
		}
		return r
	}, s)
}

// plainValue are the settings that can be no secret.
var plainValue = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|\d{1,5}|debug|info|warn|warning|error|trace|production|development|test|stdio|http|https|json|text|utf-8|none)$`)

func harmless(value string) bool { return plainValue.MatchString(value) }

// reference is how other formats refer to a variable or an input.
var reference = regexp.MustCompile(`\$\{(?:env:|input:|user_config\.)?([A-Za-z_][\w.-]*)(?::-?[^}]*)?\}|\{env:(\w+)\}|\$env:(\w+)|^\$([A-Za-z_]\w*)$|^\{([A-Za-z_]\w*)\}$`)

// referred is the one variable that a value stands for, with the scheme before
// it; empty if the value is anything else.
func referred(value string) (scheme, name string) {
	m := reference.FindStringSubmatchIndex(value)
	if m == nil || m[1] != len(value) {
		return "", ""
	}
	scheme = value[:m[0]]
	if scheme != "" && !slices.Contains([]string{"Bearer ", "Basic ", "Token "}, scheme) {
		return "", ""
	}
	for g := 2; g < len(m); g += 2 {
		if m[g] >= 0 {
			return scheme, variable(value[m[g]:m[g+1]])
		}
	}
	return "", ""
}

// variable makes the name of an environment variable of another name.
func variable(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, name)
	if name == "" || '0' <= name[0] && name[0] <= '9' {
		name = "X_" + name
	}
	return name
}

// tokenLike tells a text that is long and mixed enough to be a token.
func tokenLike(s string) bool {
	if secretlike.Find(s).Found() {
		return true
	}
	letters, digits := 0, 0
	for _, r := range s {
		switch {
		case unicode.IsLetter(r):
			letters++
		case unicode.IsDigit(r):
			digits++
		}
	}
	return len(s) >= 16 && letters >= 4 && digits >= 3
}

// address is a URL without user, query and fragment; ok is false if what is
// left still may hold a secret, or is no address.
func (b *builder) address(what, raw string) (clean string, ok bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.ContainsAny(raw, "${}") {
		b.hold(raw)
		b.note(Dropped, what, "its address is not a plain http or https address")
		return "", false
	}
	if u.User != nil {
		b.hold(u.User.Username())
		if password, set := u.User.Password(); set {
			b.hold(password)
		}
		b.note(Secret, what, "the user name and password in its address are not copied: send them in a header")
		u.User = nil
	}
	if u.RawQuery != "" {
		for _, values := range u.Query() {
			for _, v := range values {
				b.hold(v)
			}
		}
		b.note(Dropped, what, "the query of its address is not copied: it may hold a secret")
		u.RawQuery, u.ForceQuery = "", false
	}
	u.Fragment, u.RawFragment = "", ""
	for part := range strings.SplitSeq(u.Path, "/") {
		if tokenLike(part) {
			b.hold(part)
			b.note(Secret, what, "its address has a secret in its path, and cannot be copied")
			return "", false
		}
	}
	return u.String(), true
}

// arguments are the arguments that do not look like a secret: flags, paths,
// addresses, packages, plain words. Others become variables where the program
// takes them, and are dropped where it does not. It is not ok where that is the
// package: what follows would run in its place.
func (b *builder) arguments(what, command string, args []string, env func(name, value string)) (out []string, ok bool) {
	out = []string{}
	runner := slices.Contains([]string{"npx", "bunx", "pnpx", "uvx", "pipx"}, command)
	awaited := runner // the package is still to come
	for i := 0; i < len(args); i++ {
		arg := args[i]
		flag, value, joined := strings.Cut(arg, "=")
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		number := i + 1
		switch {
		case command == "docker" && (arg == "-e" || arg == "--env") && strings.Contains(next, "="):
			name, value, _ := strings.Cut(next, "=")
			env(name, value)
			out = append(out, arg, name)
			i++
		case strings.HasPrefix(arg, "-") && joined && (secretlike.Name(flag) || b.risky(value)):
			b.hold(value)
			if awaited && slices.Contains(packageFlags, flag) {
				b.note(Dropped, what, "the value of %s may be a secret, or refers to one, and without it another package would run", flag)
				return nil, false
			}
			b.note(Secret, what, "the value of %s is not copied: pass it through the environment", flag)
		case strings.HasPrefix(arg, "-") && !joined && (secretlike.Name(arg) || headerFlag(arg)) && next != "" && !strings.HasPrefix(next, "-"):
			_, headerValue, isHeader := strings.Cut(next, ":")
			b.hold(next)
			if isHeader {
				b.hold(headerValue)
			}
			b.note(Secret, what, "%s and its value are not copied: pass it through the environment", arg)
			i++
		case runner && !strings.HasPrefix(arg, "-") && !tokenLike(arg) && !b.holds(arg) && bareName.MatchString(arg):
			runner, awaited = false, false // the first word is the package
			out = append(out, arg)
		case b.risky(arg):
			b.hold(arg)
			if awaited && !strings.HasPrefix(arg, "-") {
				b.note(Dropped, what, "argument %d may be a secret, or refers to one, and without it another package would run", number)
				return nil, false
			}
			b.note(Secret, what, "argument %d is not copied: it may be a secret, or refers to one", number)
		case strings.Contains(arg, "://"):
			kept, ok := b.address(what, arg)
			switch {
			case ok:
				out = append(out, kept)
				awaited = awaited && i > 0 && slices.Contains(placeFlags, args[i-1])
			case awaited:
				return nil, false
			}
		default:
			out = append(out, arg)
			awaited = awaited && (strings.HasPrefix(arg, "-") || i > 0 && slices.Contains(placeFlags, args[i-1]))
		}
	}
	return out, true
}

// Options of what runs packages: those whose value is the package, and those whose
// value says where packages come from, or what runs them.
var (
	packageFlags = []string{"-p", "--package", "--from", "--spec"}
	placeFlags   = []string{"--registry", "--index", "--index-url", "--default-index", "--extra-index-url", "--python", "--cache", "--userconfig"}
)

// bareName is a package without a version.
var bareName = regexp.MustCompile(`^[a-z][a-z0-9._-]*$`)

func headerFlag(flag string) bool {
	return slices.Contains([]string{"-H", "--header", "--headers", "-u", "--user"}, flag)
}

// spec is a package with its version, or a container's image, which may look
// like a token.
var spec = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z][\w.-]*(\[[\w,]+\])?(@|==)v?(\d+(\.\d+)+[\w.+-]*|latest|next)$` +
	`|^@[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*$` +
	`|^[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)+(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$`)

// risky tells an argument that may be a secret.
func (b *builder) risky(arg string) bool {
	switch {
	case b.holds(arg), secretlike.Find(arg).Found(), reference.MatchString(arg), strings.Contains(arg, "$"):
		return true
	case strings.Contains(arg, "://"):
		scheme, _, _ := strings.Cut(arg, "://")
		return scheme != "http" && scheme != "https" // a database's has its password in it
	case strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") || strings.HasPrefix(arg, "~"):
		return slices.ContainsFunc(strings.Split(arg, "/"), func(s string) bool { return secretlike.Find(s).Found() })
	case spec.MatchString(arg), harmless(arg), drive.MatchString(arg):
		return false
	case strings.HasPrefix(arg, "-"):
		return tokenLike(arg)
	}
	// A word with a digit in it is as likely a password as a name.
	return tokenLike(arg) || strings.ContainsAny(arg, "0123456789")
}

var drive = regexp.MustCompile(`^[A-Za-z]:[\\/]`)
