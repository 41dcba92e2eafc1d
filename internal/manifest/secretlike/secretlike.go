// Package secretlike reports whether a string looks like a credential.
//
// ambit checks every manifest with this package before anything runs. Manifests are shared, recorded in the audit log
// and addressed by their content. A manifest with a literal secret is therefore invalid. [Find] recognizes a secret
// by its format. The tokens of most providers have a distinctive prefix and a minimum length. [Name] recognizes a
// secret by the name of its environment variable, header or flag.
//
// A manifest is checked on every load, so Find must be fast. Find allocates nothing and skips text that is too short
// for a token. One call of [MayHold] rules out secrets in a whole file. Find avoids false findings. Find does not
// report references such as $env:NAME, placeholders such as "sk-..." or "<your token>", or prose about tokens.
package secretlike

import "strings"

// Finding is the location and kind of a secret-like text. The zero Finding means that no secret was found.
type Finding struct {
	Start, End int
	// Kind is the type of credential for messages, such as "GitHub token".
	Kind string
}

// Found reports whether a secret was found.
func (f Finding) Found() bool { return f.Kind != "" }

// shape is the format of one kind of token: a prefix, followed by at least a minimum number of characters of one class.
type shape struct {
	prefix string
	kind   string
	min    int
	class  *[256]bool
	// If mixed is set, the token must contain a letter and a digit after the prefix. Prefixes that also occur in
	// ordinary words need this check.
	mixed bool
}

var (
	base62  = class("A-Za-z0-9")
	base64u = class("A-Za-z0-9_-")
	base64s = class("A-Za-z0-9+/=")
	hexes   = class("0-9a-f")
	upper   = class("A-Z0-9")
)

// shapes lists all formats, in no particular order.
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

// byFirst lists the shapes by the first byte of their prefix.
var byFirst = func() (t [256][]*shape) {
	for i := range shapes {
		c := shapes[i].prefix[0]
		t[c] = append(t[c], &shapes[i])
	}
	return t
}()

// tokenBytes contains the characters of tokens. A sequence of these characters is called a run.
var tokenBytes = class("A-Za-z0-9_.+/=-")

const (
	// minTokenLength is the length of the shortest token. Shorter runs contain no token.
	minTokenLength = 20
	lowest         = '+' // the smallest byte in tokenBytes
	window         = 8   // the number of bytes that are checked together
	// windowStep is the distance between the windows that findToken checks. Every run that is long enough for a token
	// contains a whole window and at least 12 (windowStep) more bytes. At least 6 (margin) of them are directly before
	// the window, or at least 6 are directly after it.
	windowStep = minTokenLength - window
	margin     = windowStep / 2
)

// All returns every secret-like text in a string: first tokens, then private keys, then passwords in URLs. Callers
// use All to mask secrets, and [Find] to detect a secret.
func All(s string) []Finding {
	var found []Finding
	for _, find := range []func(string) Finding{findToken, findPEM, findUserinfo} {
		for off := 0; off < len(s); {
			f := find(s[off:])
			if !f.Found() {
				break
			}
			f.Start, f.End = f.Start+off, f.End+off
			found = append(found, f)
			off = f.End
		}
	}
	return found
}

// Find returns the first token in a string. If there is no token, Find returns the first private key, or else the
// first password in a URL.
func Find(s string) Finding {
	if f := findToken(s); f.Found() {
		return f
	}
	if f := findPEM(s); f.Found() {
		return f
	}
	return findUserinfo(s)
}

// MayHold reports whether a file may contain a secret. If not, the caller need not check each string of the file.
func MayHold(s string) bool {
	// A search for "BEGIN " is faster than a search for pemHead, because B is rarer than a hyphen.
	return findToken(s).Found() || strings.Contains(s, "BEGIN ") || mayHoldUserinfo(s)
}

// findToken finds the first token that matches one of the shapes.
func findToken(s string) Finding {
	if len(s) < minTokenLength {
		return Finding{}
	}
	for i := 0; i+window <= len(s); {
		before := i - margin
		behind := i + margin
		if !mayBeInRun(s, i) || (before < 0 || !mayBeInRun(s, before)) && (behind+window > len(s) || !mayBeInRun(s, behind)) {
			i += windowStep // the usual case: most words are shorter than tokens
			continue
		}
		other := i + window - 1
		for other >= i && tokenBytes[s[other]] {
			other--
		}
		if other >= i {
			i = other + 1 // a run can start only after this byte
			continue
		}
		start, end := i, i+window
		for start > 0 && tokenBytes[s[start-1]] {
			start--
		}
		for end < len(s) && tokenBytes[s[end]] {
			end++
		}
		if end-start >= minTokenLength {
			if f := findInRun(s, start, end); f.Found() {
				return f
			}
		}
		i = end + 1
	}
	return Finding{}
}

// mayBeInRun reports whether the window at an offset can be part of a run. Bytes below '+', such as a space or a
// quote, are never part of a run.
func mayBeInRun(s string, i int) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	x := loadWord(s, i)
	return (x-lowest*ones)&^x&highs == 0
}

// loadWord returns the eight bytes s[i:i+8] as one little-endian word.
func loadWord(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// findInRun finds a token in the run s[start:end]. A token can begin at the start of the run. A token can also begin
// after each byte that is neither a letter nor a digit.
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

// maxExamined is the maximum number of characters after the prefix that are examined to recognize a token.
const maxExamined = 96

// match reports whether a token of this shape starts at an offset, and where the token ends. It reads at most
// maxExamined characters of a text that is not a token. Otherwise, a text that contains many prefixes would take
// quadratic time.
func (sh *shape) match(s string, start int) (end int, ok bool) {
	body := start + len(sh.prefix)
	end = body
	var letter, digit, dot bool
	distinct := 0
	var seen [256]bool
	for end < len(s) && sh.class[s[end]] && end-body < maxExamined {
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
	// Placeholders such as xxxxxxxx and 00000000 have few distinct characters.
	if end-body < sh.min || sh.mixed && !(letter && digit) || distinct < 6 || sh.prefix == "eyJ" && !dot {
		return end, false
	}
	for end < len(s) && sh.class[s[end]] {
		end++
	}
	return end, true
}

// findPEM finds a private key in PEM format. The finding extends to the end of the string.
func findPEM(s string) Finding {
	for off := 0; ; off += len(pemHead) {
		i := strings.Index(s[off:], pemHead)
		if i < 0 {
			return Finding{}
		}
		off += i
		name, _, closed := strings.Cut(s[off+len(pemHead):], "-----")
		if closed && len(name) < 40 && strings.HasSuffix(name, "PRIVATE KEY") {
			return Finding{Start: off, End: len(s), Kind: "private key"}
		}
	}
}

// hostEnds contains the bytes that terminate the authority of a URL, which is the part after "://".
var hostEnds = class("/?# \t\n\"'<>")

// findUserinfo finds a password in a URL such as scheme://user:password@host.
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
			if _, password, ok := strings.Cut(s[start:start+at], ":"); ok && couldBePassword(password) {
				return Finding{Start: start, End: start + at, Kind: "password in a URL"}
			}
		}
		from = end
	}
}

// mayHoldUserinfo reports whether the authority of a URL contains an @. It searches for @ first, because @ is rarer in
// a file than a colon.
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

// couldBePassword reports whether a text could be a real password. An empty text, a reference or a placeholder is not a
// password.
func couldBePassword(v string) bool {
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
