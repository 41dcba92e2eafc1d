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

// hold keeps a value back. Short ones are not searched for: they stand in many
// words.
func (b *builder) hold(value string) {
	value = strings.TrimSpace(value)
	for _, scheme := range []string{"Bearer ", "bearer ", "Basic ", "Token ", "token "} {
		value = strings.TrimPrefix(value, scheme)
	}
	if u, err := url.Parse(value); err == nil && u.User != nil { // a database's
		if password, set := u.User.Password(); set {
			b.hold(password)
		}
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

// usualName is a variable's as most are written.
var usualName = regexp.MustCompile(`^[A-Z]+(_[A-Z0-9]+)*$`)

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
		if m[g] < 0 {
			continue
		}
		name = value[m[g]:m[g+1]]
		if bare := g >= len(m)-4; bare && !usualName.MatchString(name) {
			return "", "" // a password may begin with $, too
		}
		return scheme, variable(name)
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

func joint(r rune) bool { return strings.ContainsRune("-_.~", r) }

// keyLike tells a part of an address that is a number nobody chose, or letters of both
// cases with digits among them, as short keys have.
func keyLike(s string) bool {
	return longNumber.MatchString(s) || len(s) >= 6 && digitWithin.MatchString(s) && !apiVersion.MatchString(s) && strings.ToLower(s) != s && strings.ToUpper(s) != s
}

var (
	longNumber  = regexp.MustCompile(`^\d{10,}$`)
	digitWithin = regexp.MustCompile(`\d[A-Za-z]`)
	apiVersion  = regexp.MustCompile(`^v\d{1,2}[A-Z][a-z]+\d?$`) // v2Beta1
)

// address is a URL without user, fragment and the secrets in its query; ok is false if
// what is left still may hold a secret, or is no address.
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
	if !b.query(what, u) {
		return "", false
	}
	u.Fragment, u.RawFragment = "", ""
	for part := range strings.SplitSeq(u.Path, "/") {
		if tokenLike(part) || slices.ContainsFunc(strings.FieldsFunc(part, joint), keyLike) {
			b.hold(part)
			b.note(Dropped, what, "its address has a secret in its path, and cannot be copied")
			return "", false
		}
	}
	if hasPassword(u.String()) {
		b.hold(raw)
		b.note(Dropped, what, "its address has a password in it, and cannot be copied")
		return "", false
	}
	return u.String(), true
}

// query leaves the secrets out of an address's query. The rest may be a bound: it stays,
// or, where it may be a secret, it is not ok.
func (b *builder) query(what string, u *url.URL) (ok bool) {
	var kept []string
	left := false
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		text, err := url.QueryUnescape(value)
		switch {
		case pair == "":
		case secretName(name) || keyName.MatchString(name):
			b.hold(text)
			left = true
		case err != nil || !queryName.MatchString(name) || doubtName.MatchString(name) || b.risky(text) || !queryValue.MatchString(text):
			b.hold(text)
			b.note(Dropped, what, "the query of its address may hold a secret, and without it something else would be reached")
			return false
		default:
			kept = append(kept, pair)
		}
	}
	if left {
		b.note(Dropped, what, "the query of its address is not copied: it may hold a secret")
	}
	u.RawQuery, u.ForceQuery = strings.Join(kept, "&"), false
	return true
}

var (
	keyName    = regexp.MustCompile(`(?i)^(key|sig|signature)$`)
	doubtName  = regexp.MustCompile(`(?i)(key|code|session|sid|login|user|hash)$`) // a secret's, or a bound's
	queryName  = regexp.MustCompile(`^[A-Za-z][A-Za-z_.-]{2,31}$`)
	queryValue = regexp.MustCompile(`^[A-Za-z0-9][\w.,-]*$`)
	userinfo   = regexp.MustCompile(`(?:^|[\s/,;='"({\[])([^\s/@:,;='"({\[]*):[^\s@/\\][^\s@]*@`)
)

// hasPassword reports whether a text has user:password@ in it, anywhere.
func hasPassword(text string) bool {
	for _, m := range userinfo.FindAllStringSubmatch(imageDigest.ReplaceAllString(text, ""), -1) {
		if !among(m[1], "npm jsr file git github gitlab bitbucket mailto") { // npm:name@version
			return true
		}
	}
	return false
}

// spec is a package with its version, or words with slashes, which may look like a
// token; user/password9x is none of them. Versioned is a package only where one is named: Admin@12 is one, too.
const (
	word  = `(?:[a-z]+\d{0,2}|[a-z]\d{1,2}[a-z]+|v?\d{1,5}[a-z]?)` // mcp2, k8s, 7b
	words = word + `(?:[._-]+` + word + `)*`
)

var (
	spec = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[a-z][a-z0-9_.-]*(\[[\w,]+\])?(@|==)([~^]?v?\d+(\.\d+)+[\w.+-]*|latest|next)$` +
		`|^@[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*(@\d{1,2})?$` +
		`|^` + words + `(:\d+)?(/` + words + `)+(:` + words + `)?(@sha256:[0-9a-f]{64})?$`)
	versioned = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z][\w.-]*(\[[\w,]+\])?(@|==)([~^]?v?\d{1,2}|[~^]?v?\d+(\.\d+)+[\w.+-]*|latest|next)$`)
)

// risky tells an argument that may be a secret.
func (b *builder) risky(arg string) bool {
	switch {
	case b.holds(arg), secretlike.Find(arg).Found(), hasPassword(arg), reference.MatchString(arg), strings.Contains(arg, "$"):
		return true
	case strings.Contains(arg, "://"):
		scheme, _, _ := strings.Cut(arg, "://")
		return scheme != "http" && scheme != "https" // a database's has its password in it
	case slashOption.MatchString(arg):
		_, value, _ := strings.Cut(arg, ":")
		return b.risky(value)
	case strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") || arg == "~" || strings.HasPrefix(arg, "~/"):
		if name := strings.TrimPrefix(arg, "/"); !strings.Contains(name, "/") && tokenLike(name) && !fileName.MatchString(name) {
			return true // a secret may begin with a slash
		}
		return slices.ContainsFunc(strings.Split(arg, "/"), func(s string) bool { return secretlike.Find(s).Found() })
	case spec.MatchString(arg), harmless(arg), drive.MatchString(arg):
		return false
	case strings.HasPrefix(arg, "-"):
		return tokenLike(arg)
	}
	// A word with a digit in it is as likely a password as a name, unless it is a file.
	return tokenLike(arg) || passwordLike.MatchString(arg) || strings.ContainsAny(arg, "0123456789") && !fileName.MatchString(arg)
}

// passwordLike are words with signs that few others have, what begins as tokens do,
// passwords of four times four letters, and the words that open a wallet.
var passwordLike = regexp.MustCompile(`^\S*([!%^]|#\w|=$)\S*$|^(sk|gh[opsu]|glpat|xox[abeprs])[-_]\S{12,}$|^([a-z]{4} ){3}[a-z]{4}$|^([a-z]{3,8} ){11,}[a-z]{3,8}$`)

// slashOption is an option of other systems, /p:value.
var slashOption = regexp.MustCompile(`^/[A-Za-z][\w.-]*:[^/\\]`)

// fileName is a file as programs are given them.
var fileName = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)*\.(py|[cm]?[jt]s|rb|jar|wasm|sh|json|toml|ya?ml|ini|db|sqlite3?|csv|txt|md|log)$`)

var drive = regexp.MustCompile(`^[A-Za-z]:[\\/]`)
