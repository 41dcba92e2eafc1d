package secretlike

import "strings"

// Words that make a name that of a secret, wherever they stand between the
// name's separators.
var secretWords = map[string]bool{
	"token": true, "tokens": true, "secret": true, "secrets": true, "password": true, "passwd": true,
	"pwd": true, "passphrase": true, "apikey": true, "credential": true, "credentials": true,
	"authorization": true, "cookie": true, "auth": true, "bearer": true, "pat": true, "jwt": true,
	"dsn": true,
}

// Pairs that make one, where neither word does alone.
var secretPairs = map[string]bool{
	"api key": true, "access key": true, "private key": true, "secret key": true, "signing key": true,
	"encryption key": true, "account key": true, "service key": true, "master key": true,
	"client key": true, "auth key": true, "license key": true, "deploy key": true, "ssh key": true,
	"connection string": true,
}

// Words after which a name is about a secret but does not hold one:
// TOKEN_LIMIT, AUTH_URL, SECRET_NAME, MAX_TOKENS.
var aboutWords = map[string]bool{
	"limit": true, "limits": true, "count": true, "url": true, "uri": true, "endpoint": true, "host": true,
	"path": true, "file": true, "dir": true, "name": true, "type": true, "mode": true, "method": true,
	"ttl": true, "timeout": true, "length": true, "size": true, "max": true, "min": true, "enabled": true,
	"id": true, "issuer": true, "provider": true, "scheme": true, "budget": true, "policy": true,
	"audience": true, "scope": true, "scopes": true, "domain": true, "region": true, "expiry": true,
	"algorithm": true, "alg": true, "version": true, "format": true, "disabled": true, "required": true,
}

// Name reports whether something of this name holds a secret: an environment
// variable (GITHUB_TOKEN), a header (X-Api-Key) or a flag (--api-key).
func Name(name string) bool {
	words := split(name)
	if len(words) == 0 || aboutWords[words[len(words)-1]] {
		return false
	}
	if words[0] == "max" || words[0] == "num" {
		return false
	}
	for i, w := range words {
		if secretWords[w] || i > 0 && secretPairs[words[i-1]+" "+w] {
			return true
		}
		// PGPASSWORD, GITHUBTOKEN: words run together.
		for _, end := range []string{"password", "token", "secret", "apikey"} {
			if strings.HasSuffix(w, end) {
				return true
			}
		}
	}
	// OPENAI_KEY, X-Key: a key of somebody's, unless it is of another kind.
	last := len(words) - 1
	return last > 0 && words[last] == "key" && !otherKeys[words[last-1]]
}

// otherKeys are the kinds of keys that are no secrets.
var otherKeys = map[string]bool{
	"primary": true, "foreign": true, "sort": true, "partition": true, "cache": true, "public": true, "object": true,
	"index": true, "hot": true, "lookup": true, "idempotency": true, "s3": true, "map": true,
}

// split cuts a name at separators and at the humps of camelCase.
func split(name string) []string {
	var words []string
	var word strings.Builder
	flush := func() {
		if word.Len() > 0 {
			words = append(words, strings.ToLower(word.String()))
			word.Reset()
		}
	}
	lower := false
	for i := range len(name) {
		c := name[i]
		isUpper := 'A' <= c && c <= 'Z'
		if !isUpper && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			flush()
			lower = false
			continue
		}
		if isUpper && lower {
			flush()
		}
		lower = !isUpper
		word.WriteByte(c)
	}
	flush()
	return words
}
