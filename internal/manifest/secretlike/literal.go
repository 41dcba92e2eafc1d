package secretlike

import (
	"regexp"
	"slices"
	"strings"
)

// Named is a literal credential in a text, recognized by its name. The credential is text[Start:End].
type Named struct {
	Start, End int
	// Name is the option, header, variable or parameter that has the credential as its value.
	Name string
}

// Argument is a literal credential in one argument of a command.
type Argument struct {
	// Index is the position of the argument in the list.
	Index int
	Named
}

// Args returns the literal credentials in the arguments of a command: values of options such as --token, headers after
// -H or --header, and everything that [UserPassword] and [Pairs] find.
func Args(args []string) []Argument {
	var found []Argument
	option := "" // the previous argument, if it is an option without a value
	for i, arg := range args {
		for _, n := range inArgument(option, arg) {
			found = append(found, Argument{i, n})
		}
		option = ""
		if strings.HasPrefix(arg, "-") && !strings.ContainsAny(arg, "=:") {
			option = arg
		}
	}
	return found
}

func inArgument(option, arg string) []Named {
	if strings.HasPrefix(arg, "-") {
		option = ""
	}
	at := 0 // the start of the option's value
	if name, _, joined := strings.Cut(arg, "="); joined && strings.HasPrefix(arg, "-") {
		option, at = name, len(name)+1
	}
	if strings.HasPrefix(arg, "-H") && len(arg) > 2 && arg[2] != '=' {
		option, at = "-H", 2
	} else if m := colonOption.FindStringSubmatch(arg); m != nil && Name(m[1]) {
		option, at = m[1], len(m[1])+1
	}
	value := arg[at:]
	switch {
	case option == "" || value == "" || strings.Contains(value, "$env:") && !isLiteral(value):
	case HeaderOption(option):
		if n, ok := inHeader(value); ok {
			return []Named{n.shift(at)}
		}
	case Name(option):
		if PlainURL(value) || PlainValue(value) {
			return nil
		}
		return []Named{{at, len(arg), option}}
	default:
		if password := UserPassword(option, value); password != "" && isLiteral(password) {
			return []Named{{len(arg) - len(password), len(arg), option}}
		}
	}
	return Pairs(arg)
}

// UserPassword returns the password in the value of an option that takes a user name and a password, such as --user or
// --login. It returns "" for any other option, and for a value without a password.
func UserPassword(option, value string) string {
	separators := ""
	switch strings.ToLower(option) {
	case "-u", "--user":
		separators = ":"
	case "--login", "--logon", "--userid":
		separators = ":/" // the password can follow a slash, as in scott/tiger
	}
	i := strings.IndexAny(value, separators)
	if i <= 0 || strings.Contains(value, "://") || value[:i] == value[i+1:] || userAndGroup.MatchString(value) {
		return ""
	}
	if j := strings.IndexByte(value[i+1:], ':'); value[i] == '/' && j >= 0 {
		i += 1 + j
	}
	return value[i+1:]
}

func (n Named) shift(by int) Named { return Named{n.Start + by, n.End + by, n.Name} }

// HeaderOption reports whether the value of an option is an HTTP header.
func HeaderOption(option string) bool {
	return option == "-H" || option == "--header" || option == "--headers"
}

// inHeader finds the credential in a header such as "Authorization: Bearer …".
func inHeader(text string) (n Named, ok bool) {
	name, value, ok := strings.Cut(text, ":")
	if !ok || !headerName.MatchString(name) || !Name(name) && !scheme.MatchString(value) || !isLiteral(value) {
		return Named{}, false
	}
	return Named{len(text) - len(strings.TrimLeft(value, " \t")), len(text), name}, true
}

// Pairs returns the literal credentials that follow their name in a text. It recognizes variables (API_KEY=…), parameters
// in the query of a URL (?token=…), fields of a JSON object ("token": "…") and headers with an authorization scheme.
// A value is not literal if it is a reference such as ${NAME}, a switch such as "true", a login method or a file.
func Pairs(text string) []Named {
	var found []Named
	for at := 0; ; {
		i := strings.IndexByte(text[at:], '=')
		if i < 0 {
			break
		}
		equals := at + i
		start := equals
		for start > at && nameBytes[text[start-1]] {
			start--
		}
		name := text[start:equals]
		query := start > 0 && (text[start-1] == '?' || text[start-1] == '&')
		at = equals + 1
		// "==" is followed by a version, not by a value.
		if !Name(name) && !(query && QueryName(name)) || strings.HasPrefix(text[at:], "=") {
			continue
		}
		if from, to := valueAt(text, at); mayBeSecret(text[from:to]) {
			found = append(found, Named{from, to, name})
			at = to
		}
	}
	if !strings.Contains(text, ":") {
		return found
	}
	for _, pattern := range []*regexp.Regexp{field, schemeHeader} {
		for _, m := range pattern.FindAllStringSubmatchIndex(text, -1) {
			name, value := text[m[2]:m[3]], text[m[4]:m[5]]
			if (Name(name) || pattern == field && scheme.MatchString(value)) && mayBeSecret(value) {
				found = append(found, Named{m[4], m[5], name})
			}
		}
	}
	return merge(found)
}

// mayBeSecret reports whether the value of a pair can be a credential. It does not call [Pairs], because a text can
// contain pairs within pairs, and the work would grow exponentially.
func mayBeSecret(value string) bool {
	return !isAddress(value) && isLiteral(value) && !plainPair.MatchString(value)
}

// merge sorts credentials by their position, and joins those that overlap.
func merge(found []Named) []Named {
	slices.SortStableFunc(found, func(a, b Named) int { return a.Start - b.Start })
	out := found[:0]
	for _, n := range found {
		if last := len(out) - 1; last >= 0 && n.Start < out[last].End {
			out[last].End = max(out[last].End, n.End)
			continue
		}
		out = append(out, n)
	}
	return out
}

// valueAt returns the bounds of the value that starts at an offset. The value can be in quotes.
func valueAt(text string, at int) (from, to int) {
	if rest := text[at:]; rest != "" && (rest[0] == '"' || rest[0] == '\'') {
		if i := strings.IndexByte(rest[1:], rest[0]); i >= 0 {
			return at + 1, at + 1 + i
		}
	}
	body := at + len(scheme.FindString(text[at:])) // the credential follows the scheme, as in Bearer …
	if i := strings.IndexAny(text[body:], " \t\r\n;&\"'"); i >= 0 {
		return at, body + i
	}
	return at, len(text)
}

// QueryName reports whether the name of a parameter in the query of a URL suggests a secret.
func QueryName(name string) bool { return Name(name) || keyName.MatchString(name) }

// PlainURL reports whether a value is a URL without a credential: it has no user, no password, no parameter whose name
// suggests a secret, and no token. Such a value is not a credential, even if its name is CONNECTION_STRING.
func PlainURL(value string) bool {
	return isAddress(value) && len(Pairs(value)) == 0
}

// isAddress reports whether a value is a URL without a user, a password or a token. It does not check the query.
func isAddress(value string) bool {
	i := strings.Index(value[:min(len(value), 40)], "://")
	return i > 0 && len(value) > i+len("://") && len(value) <= 2048 && addressScheme.MatchString(value[:i]) &&
		!strings.ContainsAny(value, "@ \t\r\n") && !Find(value).Found()
}

// PlainValue reports whether a value is harmless under any name: a switch, a login method or the path of a file.
func PlainValue(value string) bool { return plainPair.MatchString(value) }

// isLiteral reports whether a value contains literal text. References and the name of an authorization scheme are not
// literal. Up to seven other characters around a reference are allowed, because they can be separators.
func isLiteral(value string) bool {
	value = strings.Trim(value, " \t\"'\\")
	if bare := strings.TrimSpace(scheme.ReplaceAllString(value, "")); bare != "" {
		value = bare
	}
	rest := reference.ReplaceAllString(value, "")
	if len(rest) < len(value) {
		return len(strings.Trim(rest, " :;,=/")) >= 8
	}
	return value != "" && !strings.HasPrefix(value, "$(") && !strings.HasPrefix(value, "`")
}

// Redact returns a copy of a command, for display. Every literal credential is replaced.
func Redact(argv []string) []string {
	out := append([]string(nil), argv...)
	found := Args(argv)
	for i := len(found) - 1; i >= 0; i-- {
		f := found[i]
		out[f.Index] = cut(out[f.Index], f.Start, f.End)
	}
	for i := range out {
		for f := Find(out[i]); f.Found(); f = Find(out[i]) {
			out[i] = cut(out[i], f.Start, f.End)
		}
	}
	return out
}

// RedactSetting returns the value of an environment variable or header, for display. Every literal credential is
// replaced.
func RedactSetting(name, value string) string {
	if Name(name) && isLiteral(value) && !PlainURL(value) {
		return redacted
	}
	return Redact([]string{value})[0]
}

const redacted = "[redacted]"

func cut(text string, start, end int) string {
	return text[:start] + redacted + text[min(end, len(text)):]
}

var (
	nameBytes   = class("A-Za-z0-9_.-")
	headerName  = regexp.MustCompile(`^[A-Za-z][\w-]*$`)
	keyName     = regexp.MustCompile(`(?i)^(key|sig|signature)$`)
	colonOption = regexp.MustCompile(`(?s)^(--?[A-Za-z][\w.-]*):.`)
	// addressScheme also matches compound schemes, such as jdbc:postgresql.
	addressScheme = regexp.MustCompile(`^[A-Za-z][\w+.:-]*$`)
	scheme        = regexp.MustCompile(`^\s*(?i:bearer|basic|token|apikey)\s+`)
	field         = regexp.MustCompile(`["']([A-Za-z][\w.-]*)\\?["']\s*:\s*\\?["']([^"'\\]+)`)
	// schemeHeader matches a header anywhere in a text, for example in a shell command.
	schemeHeader = regexp.MustCompile(`([A-Za-z][\w-]*):\s*((?i:bearer|basic|token)\s+[^\s"']+)`)
	// reference matches references to variables and inputs. A bare name must be in capital letters, because a password can
	// also begin with $. A reference with a default value, as in ${NAME:-value}, does not match.
	reference = regexp.MustCompile(`\$\{\{[^}]*\}\}|\$\{(?:env:|input:|user_config\.)?[A-Za-z_][\w.-]*\}|\{env:\w+\}|` +
		`\$env:\w+|\$[A-Z_][A-Z0-9_]*\b`)
	// userAndGroup matches a user and a group for a container, such as 1000:1000 or node:users.
	userAndGroup = regexp.MustCompile(`^\d+:\d+$|^[a-z_][a-z0-9_-]*:(root|users|staff|wheel|nogroup|nobody|docker|www-data)$`)
	// plainPair matches values that are not credentials: switches, login methods and names of files.
	plainPair = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|null|[01]|none|` + methods + `)$|` +
		`^(\.{0,2}|~)/[\w./-]*\.[a-z][a-z0-9]{1,4}$|^/run/secrets/[\w./-]+$`)
)

const methods = `basic|bearer|digest|oauth2?|oidc|saml|sso|ntlm|kerberos|iam|azcli|[a-z]+-cli|cli|env|envvar|interactive|` +
	`browser|device|default|auto|managed|anonymous|integrated`
