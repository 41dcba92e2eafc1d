package secretlike

import (
	"bytes"
	"strings"
)

// secretWords contains words that occur in the names of secrets, at any position.
var secretWords = map[string]bool{
	"token": true, "tokens": true, "secret": true, "secrets": true, "password": true, "passwd": true,
	"pwd": true, "passphrase": true, "apikey": true, "credential": true, "credentials": true,
	"authorization": true, "cookie": true, "auth": true, "bearer": true, "pat": true, "jwt": true,
	"dsn": true,
}

// secretPairs contains pairs of adjacent words that occur in the names of secrets. A single word of a pair, such as
// "key", is not enough.
var secretPairs = map[string]bool{
	"api key": true, "access key": true, "private key": true, "secret key": true, "signing key": true,
	"encryption key": true, "account key": true, "service key": true, "master key": true,
	"client key": true, "auth key": true, "license key": true, "deploy key": true, "ssh key": true,
	"connection string": true,
}

// lastWords contains words that mark a secret only as the last word of a name. For example, USER_PIN is the name of a
// secret, but PIN_LAYOUT is not.
var lastWords = map[string]bool{
	"pw": true, "pin": true, "psk": true, "otp": true, "totp": true, "cred": true, "creds": true,
}

// lastSuffixes contains endings of the last word of a name, for names such as PGPASS and ROOTPWD.
var lastSuffixes = []string{"pass", "passwd", "pwd", "passphrase", "passcode", "mnemonic", "seedphrase", "seed phrase"}

// otherNames contains endings that resemble a secret but belong to other names, such as BYPASS and GPIO_PIN.
var otherNames = map[string]bool{
	"bypass": true, "by pass": true, "compass": true, "encompass": true, "overpass": true, "underpass": true,
	"surpass": true, "trespass": true, "single pass": true, "multi pass": true, "two pass": true, "render pass": true,
	"oldpwd": true, "gpio pin": true, "led pin": true, "reset pin": true, "data pin": true, "clock pin": true,
}

// aboutWords contains the last words of names such as TOKEN_LIMIT, AUTH_URL and SECRET_NAME. A value with such a name
// describes a secret, but does not contain one.
var aboutWords = map[string]bool{
	"limit": true, "limits": true, "count": true, "url": true, "uri": true, "endpoint": true, "host": true,
	"path": true, "file": true, "dir": true, "name": true, "type": true, "mode": true, "method": true,
	"ttl": true, "timeout": true, "length": true, "size": true, "max": true, "min": true, "enabled": true,
	"id": true, "issuer": true, "provider": true, "scheme": true, "budget": true, "policy": true,
	"audience": true, "scope": true, "scopes": true, "domain": true, "region": true, "expiry": true,
	"algorithm": true, "alg": true, "version": true, "format": true, "disabled": true, "required": true,
}

// Name reports whether a name usually belongs to a secret. The name can be that of an environment variable
// (GITHUB_TOKEN), a header (X-Api-Key) or a flag (--api-key).
func Name(name string) bool {
	name = strings.TrimRight(name, "0123456789") // the digits in a name such as --token2
	var buffer [96]byte                          // large enough for most names, which avoids an allocation
	words := splitWords(buffer[:0], name)
	first, _, _ := bytes.Cut(words, blank)
	last := words[bytes.LastIndexByte(words, ' ')+1:]
	if aboutWords[string(last)] || string(first) == "max" || string(first) == "num" {
		return false
	}
	before := -1 // the start of the previous word
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
	if endsName(words, last) {
		return true
	}
	// OPENAI_KEY and X-Key are API keys. PRIMARY_KEY is not an API key.
	owner, isKey := bytes.CutSuffix(words, []byte(" key"))
	return isKey && !otherKeys[string(owner[bytes.LastIndexByte(owner, ' ')+1:])]
}

var blank = []byte(" ")

// endsInSecret recognizes names without separators, such as PGPASSWORD and GITHUBTOKEN.
func endsInSecret(word []byte) bool {
	for _, end := range []string{"password", "token", "secret", "apikey"} {
		if len(word) >= len(end) && string(word[len(word)-len(end):]) == end {
			return true
		}
	}
	return false
}

// endsName reports whether the end of a name belongs to a secret. The parameter last is the last word of the name.
func endsName(words, last []byte) bool {
	pair := words[bytes.LastIndexByte(words[:max(len(words)-len(last)-1, 0)], ' ')+1:]
	if otherNames[string(last)] || otherNames[string(pair)] {
		return false
	}
	for _, end := range lastSuffixes {
		if len(words) >= len(end) && string(words[len(words)-len(end):]) == end {
			return true
		}
	}
	return lastWords[string(last)]
}

// otherKeys contains words that precede "key" in the names of keys that are not secrets, such as PRIMARY_KEY.
var otherKeys = map[string]bool{
	"primary": true, "foreign": true, "sort": true, "partition": true, "cache": true, "public": true, "object": true,
	"index": true, "hot": true, "lookup": true, "idempotency": true, "s3": true, "map": true,
}

// splitWords appends the words of a name to a buffer, in lower case and separated by spaces. A word ends at a
// separator, or before a capital letter that follows a lower-case letter or a digit.
func splitWords(b []byte, name string) []byte {
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
