package secret

import (
	"bytes"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
)

// passwordName reports whether a name with the word "pass" or "pwd" is the name of a password.
func passwordName(name []byte) bool {
	var buffer [2*maxName + maxWord]byte
	last := string(lastWord(buffer[:0], name))
	switch last {
	case "pwd":
		return string(name) != "PWD" && string(name) != "OLDPWD" // the working directory
	case "pass":
		return true
	}
	return passwords().Contains(squeeze(buffer[:0], name))
}

var passwords = wordSet("passw", "passphrase", "passcode", "passkey", "userpwd", "dbpwd")

// ignoredName reports whether the value of a name is usually not secret: the name of a file, an identifier, a hash.
func ignoredName(name []byte) bool {
	var buffer [2*maxName + maxWord]byte
	return ignoredEnds[string(lastWord(buffer[:0], name))] || ignoredWords().Contains(squeeze(buffer[:0], name))
}

// lastWord appends the last word of a name to dst, in lower case. The last word of tokenUrl, token_url and TOKEN-URL is
// "url".
func lastWord(dst, name []byte) []byte {
	start := len(name)
	for start > 0 && alnum[name[start-1]] {
		start--
		if c := name[start]; 'A' <= c && c <= 'Z' && start > 0 && 'a' <= name[start-1] && name[start-1] <= 'z' {
			break
		}
	}
	return squeeze(dst, name[start:])
}

// squeeze appends a name to dst, in lower case and without separators.
func squeeze(dst, name []byte) []byte {
	for _, c := range name {
		if alnum[c] {
			dst = append(dst, lower(c))
		}
	}
	return dst
}

var ignoredEnds = func() map[string]bool {
	out := map[string]bool{}
	for _, w := range []string{
		"id", "ids", "name", "names", "type", "url", "uri", "path", "file", "filename", "length", "len", "size", "count", "hash",
		"digest", "checksum", "sum", "field", "label", "ref", "arn", "version", "policy", "expires", "expiry", "ttl",
		"format", "prefix", "suffix", "index", "hint", "endpoint", "host", "algorithm", "alg", "author", "authors", "by", "at",
		"used", "date", "time",
	} {
		out[w] = true
	}
	return out
}()

var ignoredWords = wordSet(
	"public", "pubkey", "primary", "foreign", "partition", "cache", "idempot", "sort", "range", "fingerprint", "integrity",
	"csrf", "xsrf", "nonce", "tokenizer", "nextpage", "nexttoken", "requesttoken", "synctoken", "changetoken", "resumetoken",
	"actiontoken", "pagetoken", "pagekey", "cursor", "continuation", "keyboard", "keypress", "keycode", "keyframe",
	"monkey", "secretsmanager", "keyword", "lookup",
)

// secretKey reports whether a name is the name of a secret key.
func secretKey(name []byte) bool {
	var buffer [2*maxName + maxWord]byte
	if bytes.HasSuffix(name, []byte("_KEY")) && bytes.Equal(name, bytes.ToUpper(name)) {
		return true // an environment variable
	}
	return secretKeys().Contains(squeeze(buffer[:0], name))
}

var secretKeys = wordSet(
	"apikey", "accesskey", "authkey", "privatekey", "signingkey", "encryptionkey", "masterkey", "accountkey", "sharedkey",
	"servicekey", "appkey", "subscriptionkey", "storagekey", "licensekey", "sshkey", "sessionkey", "secretkey",
	"hostkey", "functionskey", "clientkey", "adminkey", "apimkey", "saskey", "linkingkey", "integrationkey", "userkey",
	"writekey", "projectkey", "apitoken", "authorization", "userauth", "basicauth", "authtoken", "xauth", "oauth",
	"secret", "token", "password", "credential", "devicekey", "presharedkey", "deploykey", "restkey",
)

// wordSet compiles a set of words on first use.
func wordSet(words ...string) func() *literal.Set {
	return sync.OnceValue(func() *literal.Set {
		set, err := literal.New(words, 32)
		if err != nil {
			panic(err) // the words are part of the program
		}
		return set
	})
}

// isCode reports whether a value without quotes is an expression of a program.
func isCode(text []byte, a assignment) bool {
	if a.quoted {
		return isCodeText(text[a.start:a.end])
	}
	if a.end < len(text) && (text[a.end] == '(' || text[a.end] == '[') {
		return true
	}
	value := text[a.start:a.end]
	if c := value[0]; c == '$' || c == '%' && len(value) > 1 && !hexes[value[1]] || c == '&' || c == '*' || c == '!' || c == '#' || c == '@' {
		return true
	}
	if isTypeName(text, a) {
		return true
	}
	// A chain of names, such as e.password or process.env.TOKEN2.
	dot := bytes.IndexByte(value, '.')
	return dot > 0 && dot < len(value)-1 && measure(value).wordy()
}

// isCodeText reports whether a value in quotes is the name of a constant, the path of a resource, or the text between two
// strings.
func isCodeText(value []byte) bool {
	q := measure(value)
	switch {
	case value[0] == ')' || value[0] == ',':
		return true
	case value[0] == '/':
		return q.digits <= 2 && q.upper <= 4 && q.other >= 2
	}
	return q.lower == 0 && q.digits <= 2 && q.upper > 4 && bytes.Count(value, []byte("_")) == q.other && q.other > 0
}

// isTypeName reports whether a value is the name of a type, as in "password?: StringMaxLen256;".
func isTypeName(text []byte, a assignment) bool {
	if a.start < 2 || text[a.start-2] != ':' || a.end == len(text) || text[a.end] != ';' {
		return false
	}
	value, words := text[a.start:a.end], 0
	value = bytes.TrimRight(value, "0123456789")
	for i, c := range value {
		upper := 'A' <= c && c <= 'Z'
		if i == 0 && !upper || !upper && (c < 'a' || c > 'z') {
			return false
		}
		if upper {
			words++
		}
	}
	return words > 1 && words < len(value)/2
}

// isPlaceholder reports whether a value is an example or a placeholder that people write in place of a secret.
func isPlaceholder(value []byte) bool {
	if len(value) == 0 || isTime(value) {
		return true
	}
	switch value[0] {
	case '<', '{', '[', '$', '*', '%':
		if value[0] != '%' || len(value) > 1 && !hexes[value[1]] {
			return true
		}
	}
	switch string(value[:min(len(value), 10)]) {
	case "password", "Password", "PASSWORD", "passwd", "pass", "token", "secret", "test", "xxx", "yyy", "user", "username":
		return true
	}
	return placeholders().Contains(value[:min(len(value), sample)])
}

// isTime reports whether a value begins with a date, as in 2026-03-01T10:00:00Z.
func isTime(value []byte) bool {
	const form = "0000-00-00"
	if len(value) < len(form) {
		return false
	}
	for i, c := range value[:len(form)] {
		if digit := '0' <= c && c <= '9'; digit != (form[i] == '0') || !digit && c != '-' {
			return false
		}
	}
	return len(value) == len(form) || value[len(form)] == 'T' || value[len(form)] == ' '
}

var placeholders = wordSet(
	"example", "abcdefghijkl", "changeme", "changeit", "your_", "your-", "yourpass", "yourtoken", "yoursecret", "yourkey",
	"placeholder", "redacted", "dummy", "xxxxx", "....", "****", "${", "{{", "[secret", "insert", "replaceme", "getenv",
	"process.env", "undefined",
)

// isPublished reports whether a token is one of the keys in the public samples of Google's SDKs, which scanners such as
// gitleaks accept.
func isPublished(token []byte) bool {
	h := fnv.New64a()
	h.Write(token)
	return slices.Contains(published[:], h.Sum64())
}

var published = [...]uint64{
	0x08b545962adc7d8b, 0x12113c2e6979f447, 0x1354c1d4bf369ae5, 0x294c63f8344d5df1, 0x29a336c7244f48dd,
	0x515cb771a4238032, 0x6835e0f288832a40, 0x6acbd824bd32bbd4, 0x816cd10fdb11ead0, 0x828818f833257868,
	0x99b2726346a1e92a, 0xadbd04e3fe1b6d49, 0xbcc7a26af087ae93, 0xc73f1e61952e6987, 0xc800bf2100a21c67,
	0xdb9422f1dd332dcc, 0xe754678ea2b14ef1, 0xe7666dbb286c6c2e,
}
