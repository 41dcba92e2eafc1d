package importer

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// withhold adds a value to b.withheld. It ignores harmless values. It also ignores short values, because a short value
// could be part of an ordinary word.
func (b *builder) withhold(value string) {
	value = strings.TrimSpace(value)
	for _, scheme := range []string{"Bearer ", "bearer ", "Basic ", "Token ", "token "} {
		value = strings.TrimPrefix(value, scheme)
	}
	if u, err := url.Parse(value); err == nil && u.User != nil { // the value can be the URL of a database
		if password, set := u.User.Password(); set {
			b.withhold(password)
		}
	}
	if len(value) >= 8 && !harmless(value) && !slices.Contains(b.withheld, value) {
		b.withheld = append(b.withheld, value)
	}
}

// containsWithheld reports whether s contains a withheld value. If the withheld value is an ordinary word, it must be
// equal to s, because the word can also be part of the name of a package.
func (b *builder) containsWithheld(s string) bool {
	return slices.ContainsFunc(b.withheld, func(secret string) bool {
		return s == secret || !plainWords[secret] && strings.Contains(s, secret)
	})
}

const removed = "[removed]"

// scrub removes invisible characters and everything that looks like a secret from a text that people read.
func (b *builder) scrub(s string) string {
	s = clean(s)
	before := s
	for _, value := range b.withheld {
		if !plainWords[value] {
			s = strings.ReplaceAll(s, value, removed)
		}
	}
	for f := secretlike.Find(s); f.Found(); f = secretlike.Find(s) {
		s = s[:f.Start] + removed + s[f.End:]
	}
	for _, m := range slices.Backward(secret.Standard().Scan([]byte(s), nil, nil)) {
		s = s[:m.Start] + removed + s[m.End:]
	}
	if s != before {
		b.note(Secret, "text", "something that looks like a secret was removed")
	}
	return s
}

// clean removes invisible characters from s.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r' || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r) ||
			r == unicode.ReplacementChar:
			return -1
		case 0xE0000 <= r && r <= 0xE0FFF || 0xFE00 <= r && r <= 0xFE0F:
			return -1
		}
		return r
	}, s)
}

// plainValue matches values that cannot be secrets.
var plainValue = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|\d{1,5}|debug|info|warn|warning|error|trace` +
	`|production|development|test|stdio|http|https|json|text|utf-8|none)$`)

func harmless(value string) bool { return plainValue.MatchString(value) }

// usualName matches the usual form of an environment variable's name, such as API_KEY.
var usualName = regexp.MustCompile(`^[A-Z]+(_[A-Z0-9]+)*$`)

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

// tokenLike reports whether s could be a token. It returns true if s looks like a known kind of secret, or if s is
// long and mixes letters with digits.
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

// isSeparator reports whether r separates the words of a name in a URL.
func isSeparator(r rune) bool { return strings.ContainsRune("-_.~", r) }

// keyLike reports whether a part of a URL looks like a key. It returns true for a long number, and for a mix of upper
// case, lower case and digits.
func keyLike(s string) bool {
	return longNumber.MatchString(s) || mixed(s)
}

// mixed reports whether a word mixes upper case, lower case and digits as a key does.
func mixed(s string) bool {
	return len(s) >= 6 && digitWithin.MatchString(s) && !apiVersion.MatchString(s) &&
		strings.ToLower(s) != s && strings.ToUpper(s) != s
}

var (
	longNumber  = regexp.MustCompile(`^\d{10,}$`)
	digitWithin = regexp.MustCompile(`\d[A-Za-z]`)
	apiVersion  = regexp.MustCompile(`^v\d{1,2}[A-Z][a-z]+\d?$`) // a version such as v2Beta1
)

// cleanURL removes the user and the fragment of a URL, and the secrets in its query. The second result is false if raw
// is not an http or https URL, or if the cleaned URL could still contain a secret.
func (b *builder) cleanURL(what, raw string) (clean string, ok bool) {
	u, err := url.Parse(raw)
	if host, _, _ := strings.Cut(raw, "?"); strings.Contains(host, "$env:") {
		b.note(Dropped, what, "the address refers to a variable, which a manifest cannot express: write the address itself")
		return "", false
	}
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.ContainsAny(u.Host+u.Path, "${}") {
		b.withhold(raw)
		b.note(Dropped, what, "the address is not a plain http or https address")
		return "", false
	}
	if u.User != nil {
		b.withhold(u.User.Username())
		if password, set := u.User.Password(); set {
			b.withhold(password)
		}
		b.note(Secret, what, "the user name and password in the address are not copied: send them in a header")
		u.User = nil
	}
	if !b.query(what, u) {
		return "", false
	}
	u.Fragment, u.RawFragment = "", ""
	for part := range strings.SplitSeq(u.Path, "/") {
		if isKeyInPath(part) {
			b.withhold(part)
			b.note(Dropped, what, "the path of the address could contain a secret, so the address is not copied")
			return "", false
		}
	}
	if hasPassword(u.String()) {
		b.withhold(raw)
		b.note(Dropped, what, "the address contains a password, so it is not copied")
		return "", false
	}
	return u.String(), true
}

// query filters the query string of u. It removes each parameter whose name suggests a secret. It keeps all other
// parameters, because they could be limits that the user set. It returns false if one of the other parameters could
// also be a secret.
func (b *builder) query(what string, u *url.URL) (ok bool) {
	var kept []string
	left := false
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		text, err := url.QueryUnescape(value)
		switch {
		case pair == "":
		case secretlike.QueryName(name):
			b.withhold(text)
			left = true
		case err != nil || !b.isPlainParameter(name, text):
			b.withhold(text)
			b.note(Dropped, what,
				"the query of the address could contain a secret, so the address is not copied")
			return false
		default:
			kept = append(kept, pair)
		}
	}
	if left {
		b.note(Dropped, what,
			"a query parameter in the address is not copied, because its name suggests a secret: send it in a header")
	}
	u.RawQuery, u.ForceQuery = strings.Join(kept, "&"), false
	return true
}

var (
	// Parameters with these names can be secrets or limits.
	doubtName  = regexp.MustCompile(`(?i)(key|code|session|sid|login|user|hash)$`)
	queryName  = regexp.MustCompile(`^[A-Za-z][A-Za-z_.-]{2,31}$`)
	queryValue = regexp.MustCompile(`^[A-Za-z0-9][\w.,-]*$`)
	userinfo   = regexp.MustCompile(`(?:^|[\s/,;='"({\[])([^\s/@:,;='"({\[]*):[^\s@/\\][^\s@]*@`)
)

// hasPassword reports whether a text contains a user and a password in the form user:password@.
func hasPassword(text string) bool {
	for _, m := range userinfo.FindAllStringSubmatch(imageDigest.ReplaceAllString(text, ""), -1) {
		if !inList(m[1], "npm jsr file git github gitlab bitbucket mailto") { // not a user, as in npm:name@version
			return true
		}
	}
	return false
}

const (
	word  = `(?:[a-z]+\d{0,2}|[a-z]\d{1,2}[a-z]+|v?\d{1,5}[a-z]?)` // a short word with digits, such as mcp2, k8s or 7b
	words = word + `(?:[._-]+` + word + `)*`
)

// packageSpec matches arguments that look like tokens but are harmless: packages with a scope or a version, and words
// separated by slashes. It does not match user/password9x. The expression in versioned matches only packages with a
// version, but it is less strict. For example, it matches Admin@12, which could be a password. Therefore, versioned is
// used only where a package is expected.
var (
	packageSpec = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[a-z][a-z0-9_.-]*(\[[\w,]+\])?(@` +
		`|==)([~^]?v?\d+(\.\d+)+[\w.+-]*|latest|next)$` +
		`|^@[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*(@\d{1,2})?$` +
		`|^` + words + `(:\d+)?(/` + words + `)+(:` + words + `)?(@sha256:[0-9a-f]{64})?$`)
	versioned = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z][\w.-]*(\[[\w,]+\])?(@|==)([~^]?v?\d{1,2}` +
		`|[~^]?v?\d+(\.\d+)+[\w.+-]*|latest|next)$`)
)

// risky reports whether an argument could be a secret.
func (b *builder) risky(arg string) bool {
	switch {
	case b.containsWithheld(arg), secretlike.Find(arg).Found(), hasPassword(arg), reference.MatchString(arg),
		strings.Contains(arg, "$"):
		return true
	case strings.Contains(arg, "://"):
		scheme, _, _ := strings.Cut(arg, "://")
		return scheme != "http" && scheme != "https" && !b.plainURL(arg) // the URL of a database can contain a password
	case slashOption.MatchString(arg):
		_, value, _ := strings.Cut(arg, ":")
		return b.risky(value)
	case strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") || arg == "~" ||
		strings.HasPrefix(arg, "~/"):
		if name := strings.TrimPrefix(arg, "/"); !strings.Contains(name, "/") && tokenLike(name) &&
			!fileName.MatchString(name) {
			return true // the argument can be a secret, because a secret can begin with a slash
		}
		return slices.ContainsFunc(strings.Split(arg, "/"), func(s string) bool {
			// The argument can be a URL without its scheme.
			return secretlike.Find(s).Found() || strings.HasPrefix(arg, "//") && isKeyInPath(s)
		})
	case packageSpec.MatchString(arg), harmless(arg), drive.MatchString(arg):
		return false
	case strings.HasPrefix(arg, "-"):
		return tokenLike(arg)
	}
	// A word with a digit could be a password, unless the word is a file name.
	return tokenLike(arg) || passwordLike.MatchString(arg) || strings.ContainsAny(arg, "0123456789") &&
		!fileName.MatchString(arg)
}

// passwordLike matches words with unusual characters, user names with passwords, tokens with a known prefix, app
// passwords (four groups of four letters), and mnemonic phrases.
var passwordLike = regexp.MustCompile(`^\S*([!%^]|#\w|=$)\S*$|^[A-Za-z]{8,}:[A-Za-z]{8,}$|^(sk|gh[opsu]|glpat|xox[abeprs])[-_]\S{12,}$` +
	`|^([a-z]{4} ){3}[a-z]{4}$|^([a-z]{3,8} ){11,}[a-z]{3,8}$`)

// slashOption matches options such as /p:value.
var slashOption = regexp.MustCompile(`^/[A-Za-z][\w.-]*:[^/\\]`)

var fileName = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)*\.(py|[cm]?[jt]s|rb|jar|wasm|sh|json|toml|ya?ml|ini|db` +
	`|sqlite3?|csv|txt|md|log)$`)

var drive = regexp.MustCompile(`^[A-Za-z]:[\\/]`)
