// Package secretlike reports whether a text looks like a credential.
//
// It checks manifests before anything runs. Manifests are shared, journaled and
// content-addressed, so a literal secret in one is an error. There are two kinds of
// evidence. [Find] knows the formats of providers' tokens: a distinctive prefix
// followed by enough of the right characters. [Name] knows which names of environment
// variables, headers and flags belong to secrets, whatever the value looks like.
//
// A manifest is checked on every load, so Find allocates nothing and examines only
// runs of characters that are long enough for a token. [MayHold] rules out a whole
// file at once. Find prefers precision: prose about tokens, placeholders such as
// "sk-..." or "<your token>" and references such as $env:NAME are not findings.
package secretlike

import "strings"

// Finding is the location of a secret-like text. The zero Finding means none.
type Finding struct {
	Start, End int
	// Kind names the credential for a message: "GitHub token".
	Kind string
}

// Found reports whether there is a finding.
func (f Finding) Found() bool { return f.Kind != "" }

// shape is one kind of token: prefix, then at least min characters of class.
type shape struct {
	prefix string
	kind   string
	min    int
	class  *[256]bool
	// mixed requires both a letter and a digit after the prefix, for prefixes that
	// begin ordinary words.
	mixed bool
}

var (
	base62  = class("A-Za-z0-9")
	base64u = class("A-Za-z0-9_-")
	base64s = class("A-Za-z0-9+/=")
	hexes   = class("0-9a-f")
	upper   = class("A-Z0-9")
)

// shapes are in no particular order: byFirst indexes them by first byte.
var shapes = []shape{
	{"AKIA", "AWS access key", 16, upper, true},
	{"ASIA", "AWS access key", 16, upper, true},
	{"AIza", "Google API key", 35, base64u, false},
	{"GOCSPX-", "Google OAuth secret", 28, base64u, false},
	{"ya29.", "Google access token", 20, base64u, false},
	{"ghp_", "GitHub token", 36, base62, false},
	{"gho_", "GitHub token", 36, base62, false},
	{"ghu_", "GitHub token", 36, base62, false},
	{"ghs_", "GitHub token", 36, base62, false},
	{"ghr_", "GitHub token", 36, base62, false},
	{"github_pat_", "GitHub token", 60, base64u, false},
	{"glpat-", "GitLab token", 20, base64u, true},
	{"glrt-", "GitLab token", 20, base64u, true},
	{"gldt-", "GitLab token", 20, base64u, true},
	{"xoxb-", "Slack token", 20, base64u, true},
	{"xoxp-", "Slack token", 20, base64u, true},
	{"xoxa-", "Slack token", 20, base64u, true},
	{"xoxs-", "Slack token", 20, base64u, true},
	{"xapp-", "Slack token", 20, base64u, true},
	{"hooks.slack.com/services/T", "Slack webhook", 20, class("A-Za-z0-9/"), false},
	{"sk-ant-", "Anthropic API key", 24, base64u, true},
	{"sk-proj-", "OpenAI API key", 24, base64u, true},
	{"sk-svcacct-", "OpenAI API key", 24, base64u, true},
	{"sk-or-v1-", "OpenRouter API key", 32, base62, true},
	{"sk-", "API key", 32, base62, true},
	{"sk_live_", "Stripe secret key", 16, base62, true},
	{"sk_test_", "Stripe secret key", 16, base62, true},
	{"rk_live_", "Stripe restricted key", 16, base62, true},
	{"rk_test_", "Stripe restricted key", 16, base62, true},
	{"whsec_", "webhook signing secret", 24, base64s, true},
	{"pk_live_", "Stripe key", 24, base62, true},
	{"SG.", "SendGrid API key", 60, class("A-Za-z0-9_.-"), true},
	{"key-", "Mailgun API key", 32, hexes, true},
	{"npm_", "npm token", 36, base62, true},
	{"pypi-AgEIcHlwaS5vcmc", "PyPI token", 50, base64u, false},
	{"hf_", "Hugging Face token", 30, base62, false},
	{"dop_v1_", "DigitalOcean token", 64, hexes, false},
	{"doo_v1_", "DigitalOcean token", 64, hexes, false},
	{"shpat_", "Shopify token", 32, hexes, false},
	{"shpss_", "Shopify secret", 32, hexes, false},
	{"lin_api_", "Linear API key", 32, base62, false},
	{"ntn_", "Notion token", 40, base62, true},
	{"secret_", "Notion token", 43, base62, true},
	{"figd_", "Figma token", 30, base64u, true},
	{"dapi", "Databricks token", 32, hexes, true},
	{"hvs.", "Vault token", 24, base64u, true},
	{"AGE-SECRET-KEY-1", "age identity", 50, upper, false},
	{"tskey-", "Tailscale key", 20, base64u, true},
	{"glsa_", "Grafana token", 32, base64u, true},
	{"PMAK-", "Postman API key", 50, base64u, true},
	{"tvly-", "Tavily API key", 20, base64u, true},
	{"gsk_", "Groq API key", 40, base62, true},
	{"xai-", "xAI API key", 60, base62, true},
	{"pplx-", "Perplexity API key", 40, base62, true},
	{"r8_", "Replicate token", 30, base62, true},
	{"eyJ", "JSON Web Token", 30, class("A-Za-z0-9_.-"), true},
}

const pemHead = "-----BEGIN "

// byFirst lists, for each first byte, the shapes that can start there.
var byFirst = func() (t [256][]*shape) {
	for i := range shapes {
		c := shapes[i].prefix[0]
		t[c] = append(t[c], &shapes[i])
	}
	return t
}()

// tokenBytes are the characters of tokens, and shortest is the length of the shortest
// token: text without a run of that length contains none.
var tokenBytes = class("A-Za-z0-9_.+/=-")

const (
	shortest = 20
	lowest   = '+' // of the tokenBytes
	window   = 8   // bytes looked at together
	// Windows at this distance miss no run of a token's length. At least half of the
	// rest of such a run is on one side of the window.
	step = shortest - window
	half = step / 2
)

// All returns every secret-like text in s, ordered within each kind. It is for
// masking; Find is enough to report a problem.
func All(s string) []Finding {
	var found []Finding
	for off := 0; off < len(s); {
		f := findToken(s[off:])
		if !f.Found() {
			break
		}
		f.Start, f.End = f.Start+off, f.End+off
		found = append(found, f)
		off = f.End
	}
	for off := 0; off < len(s); {
		i := strings.Index(s[off:], pemHead)
		if i < 0 {
			break
		}
		if f := findPEM(s, off+i); f.Found() {
			found = append(found, f)
			break // it covers the rest
		}
		off += i + len(pemHead)
	}
	for off := 0; off < len(s); {
		f := findUserinfo(s[off:])
		if !f.Found() {
			break
		}
		f.Start, f.End = f.Start+off, f.End+off
		found = append(found, f)
		off = f.End
	}
	return found
}

// Find returns the first secret-like text in s.
func Find(s string) Finding {
	if f := findToken(s); f.Found() {
		return f
	}
	if i := strings.Index(s, pemHead); i >= 0 {
		if f := findPEM(s, i); f.Found() {
			return f
		}
	}
	return findUserinfo(s)
}

// MayHold reports whether a quoted text in s may contain what Find finds. One check of
// a whole file avoids checking each text.
func MayHold(s string) bool {
	// The first letter of BEGIN is rarer than the first hyphen of pemHead.
	return findToken(s).Found() || strings.Contains(s, "BEGIN ") || mayHoldUserinfo(s)
}

// findToken finds the tokens of providers.
func findToken(s string) Finding {
	if len(s) < shortest {
		return Finding{}
	}
	for i := 0; i+window <= len(s); {
		before := i - half
		behind := i + half
		if !mayBeInRun(s, i) || (before < 0 || !mayBeInRun(s, before)) && (behind+window > len(s) || !mayBeInRun(s, behind)) {
			i += step // most text ends here: words are shorter than tokens
			continue
		}
		other := i + window - 1
		for other >= i && tokenBytes[s[other]] {
			other--
		}
		if other >= i {
			i = other + 1 // a run can only start after it
			continue
		}
		start, end := i, i+window
		for start > 0 && tokenBytes[s[start-1]] {
			start--
		}
		for end < len(s) && tokenBytes[s[end]] {
			end++
		}
		if end-start >= shortest {
			if f := findInRun(s, start, end); f.Found() {
				return f
			}
		}
		i = end + 1
	}
	return Finding{}
}

// mayBeInRun reports whether the window at i may be in a run: no byte is below all
// token bytes, as spaces and quotes are.
func mayBeInRun(s string, i int) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	x := eight(s, i)
	return (x-lowest*ones)&^x&highs == 0
}

// eight is eight bytes of s from i, as one word.
func eight(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// findInRun finds a token in a run of token bytes, at its start and after every
// separator.
func findInRun(s string, start, end int) Finding {
	for i := start; i+16 <= end; i++ {
		if i > start && base62[s[i-1]] {
			continue
		}
		for _, sh := range byFirst[s[i]] {
			if !strings.HasPrefix(s[i:end], sh.prefix) {
				continue
			}
			if tokenEnd, ok := sh.match(s, i); ok {
				return Finding{Start: i, End: tokenEnd, Kind: sh.kind}
			}
		}
	}
	return Finding{}
}

// looked is how many characters of a token are examined to distinguish it from other
// text.
const looked = 96

// match examines a limited part of the text after the prefix, so that text made of
// prefixes costs no more than other text. Only an actual token is read to its end.
func (sh *shape) match(s string, start int) (end int, ok bool) {
	body := start + len(sh.prefix)
	end = body
	var letter, digit, dot bool
	distinct := 0
	var seen [256]bool
	for end < len(s) && sh.class[s[end]] && end-body < looked {
		c := s[end]
		switch {
		case '0' <= c && c <= '9':
			digit = true
		case c == '.':
			dot = true
		default:
			letter = true
		}
		if !seen[c] {
			seen[c] = true
			distinct++
		}
		end++
	}
	// A placeholder repeats itself: xxxxxxxx, 00000000.
	if end-body < sh.min || sh.mixed && !(letter && digit) || distinct < 6 || sh.prefix == "eyJ" && !dot {
		return end, false
	}
	for end < len(s) && sh.class[s[end]] {
		end++
	}
	return end, true
}

func findPEM(s string, i int) Finding {
	line := s[i+len(pemHead):]
	if end := strings.Index(line, "-----"); end >= 0 && end < 40 && strings.HasSuffix(line[:end], "PRIVATE KEY") {
		return Finding{Start: i, End: len(s), Kind: "private key"}
	}
	return Finding{}
}

// hostEnds are the bytes that end a URL's authority.
var hostEnds = class("/?# \t\n\"'<>")

// findUserinfo finds a password in a URL: scheme://user:password@host.
func findUserinfo(s string) Finding {
	if strings.IndexByte(s, '@') < 0 {
		return Finding{}
	}
	for from := 0; ; {
		i := strings.Index(s[from:], "://")
		if i < 0 {
			return Finding{}
		}
		start := from + i + len("://")
		end := start
		for end < len(s) && !hostEnds[s[end]] {
			end++
		}
		if at := strings.LastIndexByte(s[start:end], '@'); at > 0 {
			if _, password, ok := strings.Cut(s[start:start+at], ":"); ok && literal(password) {
				return Finding{Start: start, End: start + at, Kind: "password in a URL"}
			}
		}
		from = end
	}
}

// mayHoldUserinfo reports whether there is an @ where findUserinfo looks for one. It
// searches for @, which is rarer in a file than a colon.
func mayHoldUserinfo(s string) bool {
	for from := 0; ; {
		i := strings.IndexByte(s[from:], '@')
		if i < 0 {
			return false
		}
		start := from + i
		for start > from && !hostEnds[s[start-1]] {
			start--
		}
		if strings.HasSuffix(s[:start], "://") {
			return true
		}
		from += i + 1
	}
}

// literal reports whether a value is neither a reference nor a placeholder.
func literal(v string) bool {
	if v == "" || strings.ContainsAny(v, "${}<>*") {
		return false
	}
	switch strings.ToLower(v) {
	case "password", "pass", "pw", "secret", "token", "xxx", "xxxx", "changeme", "…", "...":
		return false
	}
	return true
}

func class(spec string) *[256]bool {
	var t [256]bool
	for i := 0; i < len(spec); i++ {
		if i+2 < len(spec) && spec[i+1] == '-' {
			for c := int(spec[i]); c <= int(spec[i+2]); c++ {
				t[c] = true
			}
			i += 2
			continue
		}
		t[spec[i]] = true
	}
	return &t
}
