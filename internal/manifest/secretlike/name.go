package secretlike

import "bytes"

// secretWords make a name a secret's, anywhere between the name's separators.
var secretWords = map[string]bool{
	"token": true, "tokens": true, "secret": true, "secrets": true, "password": true, "passwd": true,
	"pwd": true, "passphrase": true, "apikey": true, "credential": true, "credentials": true,
	"authorization": true, "cookie": true, "auth": true, "bearer": true, "pat": true, "jwt": true,
	"dsn": true,
}

// secretPairs make a name a secret's, where neither word does alone.
var secretPairs = map[string]bool{
	"api key": true, "access key": true, "private key": true, "secret key": true, "signing key": true,
	"encryption key": true, "account key": true, "service key": true, "master key": true,
	"client key": true, "auth key": true, "license key": true, "deploy key": true, "ssh key": true,
	"connection string": true,
}

// aboutWords end a name that describes a secret but does not contain one: TOKEN_LIMIT,
// AUTH_URL, SECRET_NAME, MAX_TOKENS.
var aboutWords = map[string]bool{
	"limit": true, "limits": true, "count": true, "url": true, "uri": true, "endpoint": true, "host": true,
	"path": true, "file": true, "dir": true, "name": true, "type": true, "mode": true, "method": true,
	"ttl": true, "timeout": true, "length": true, "size": true, "max": true, "min": true, "enabled": true,
	"id": true, "issuer": true, "provider": true, "scheme": true, "budget": true, "policy": true,
	"audience": true, "scope": true, "scopes": true, "domain": true, "region": true, "expiry": true,
	"algorithm": true, "alg": true, "version": true, "format": true, "disabled": true, "required": true,
}

// Name reports whether an environment variable (GITHUB_TOKEN), header (X-Api-Key) or
// flag (--api-key) of this name contains a secret.
func Name(name string) bool {
	var room [96]byte // large enough for most names without an allocation
	words := split(room[:0], name)
	first, _, _ := bytes.Cut(words, blank)
	last := words[bytes.LastIndexByte(words, ' ')+1:]
	if aboutWords[string(last)] || string(first) == "max" || string(first) == "num" {
		return false
	}
	before := -1 // where the word before this one starts
	for start := 0; start < len(words); {
		end := len(words)
		if i := bytes.IndexByte(words[start:], ' '); i >= 0 {
			end = start + i
		}
		w := words[start:end]
		if secretWords[string(w)] || before >= 0 && secretPairs[string(words[before:end])] || endsInSecret(w) {
			return true
		}
		before, start = start, end+1
	}
	// OPENAI_KEY, X-Key: an API key, unless it is another kind of key.
	owner, isKey := bytes.CutSuffix(words, []byte(" key"))
	return isKey && !otherKeys[string(owner[bytes.LastIndexByte(owner, ' ')+1:])]
}

var blank = []byte(" ")

// endsInSecret recognizes words without separators: PGPASSWORD, GITHUBTOKEN.
func endsInSecret(word []byte) bool {
	for _, end := range []string{"password", "token", "secret", "apikey"} {
		if len(word) >= len(end) && string(word[len(word)-len(end):]) == end {
			return true
		}
	}
	return false
}

// otherKeys are kinds of keys that are not secrets.
var otherKeys = map[string]bool{
	"primary": true, "foreign": true, "sort": true, "partition": true, "cache": true, "public": true, "object": true,
	"index": true, "hot": true, "lookup": true, "idempotency": true, "s3": true, "map": true,
}

// split appends the words of a name to b, in lower case and separated by spaces. Words
// end at separators and at capitals in camelCase.
func split(b []byte, name string) []byte {
	inWord, lower := false, false
	for i := range len(name) {
		c := name[i]
		isUpper := 'A' <= c && c <= 'Z'
		if !isUpper && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			inWord, lower = false, false
			continue
		}
		if (!inWord || isUpper && lower) && len(b) > 0 {
			b = append(b, ' ')
		}
		inWord, lower = true, !isUpper
		if isUpper {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}
