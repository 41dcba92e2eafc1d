package secret

import (
	"bytes"
	"hash/fnv"
	"slices"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
)

// judgeName returns the judgments about a name, as bits.
func (s *scan) judgeName(name []byte) (yes uint8) {
	var buffer [maxJudged]byte
	last := lastWord(buffer[:0], name)
	switch string(last) {
	case "pwd":
		if string(name) != "PWD" && string(name) != "OLDPWD" { // PWD and OLDPWD contain the working directory
			yes |= isPasswordName
		}
	case "pass", "passe", "by":
		yes |= isPasswordName
	}
	if ignoredEnds[string(last)] {
		yes |= isIgnoredName
	}
	words := nameWords()
	squeezed := squeeze(buffer[:0], name)
	words.set.Scan(squeezed, 0, len(squeezed), &s.nameHits)
	for _, lane := range s.nameHits {
		for _, hit := range lane {
			for _, w := range words.set.Words(hit) {
				yes |= words.judgments[w]
			}
		}
	}
	if bytes.IndexByte(name, ' ') >= 0 {
		yes &^= isIgnoredName // the value in IDENTIFIED BY is a password
	}
	if bytes.HasSuffix(name, []byte("_KEY")) && bytes.Equal(name, bytes.ToUpper(name)) {
		yes |= isSecretKey // it is an environment variable
	}
	return yes
}

// nameWords lists the words in names, each with the judgments that follow from the word.
var nameWords = sync.OnceValue(func() (out struct {
	set       *literal.Set
	judgments []uint8
},
) {
	var words []string
	for _, list := range []struct {
		judgment uint8
		words    string
	}{
		{isPasswordName, passwordWords}, {isIgnoredName, ignoredWords}, {isSecretKey, secretKeyWords},
	} {
		for w := range strings.FieldsSeq(list.words) {
			words = append(words, w)
			out.judgments = append(out.judgments, list.judgment)
		}
	}
	var err error
	if out.set, err = literal.New(words, 32); err != nil {
		panic(err) // the words are constants, so they have no errors
	}
	return out
})

// passwordWords lists the words that mark a name as the name of a password.
const passwordWords = `passw passphrase passcode passkey userpwd dbpwd requirepass rootpw kennwort contrase senha identified motdepasse`

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
		"used", "date", "time", "eight", "tag", "reference", "namespace", "scopes", "available", "manager", "mgr", "realm",
		"types", "certificate", "oauth2",
	} {
		out[w] = true
	}
	return out
}()

// ignoredWords lists the words that mark a value as usually not secret, such as an identifier, a hash or a file.
const ignoredWords = `
public pubkey primary foreign partition cache idempot sort range fingerprint integrity csrf xsrf nonce tokenizer
nextpage nexttoken requesttoken synctoken changetoken resumetoken actiontoken pagetoken pagekey cursor
continuation keyboard keypress keycode keyframe monkey secretsmanager keyword lookup hashed versiontoken
insightstoken mediatoken changekey channeltoken locktoken clienttoken updatetoken sequencetoken forwardtoken
backwardtoken startingtoken blobkey authorizationrule thumbprint`

// secretKeyWords lists the words that mark a name as the name of a secret key or token.
const secretKeyWords = `
apikey accesskey authkey privatekey signingkey encryptionkey masterkey accountkey sharedkey servicekey appkey
subscriptionkey storagekey licensekey sshkey sessionkey secretkey hostkey functionskey clientkey adminkey
apimkey saskey linkingkey integrationkey writekey apitoken authorization userauth basicauth authtoken xauth
oauth secret token password credential devicekey presharedkey deploykey restkey`

// isCode reports whether a value without quotes is an expression in a programming language.
func isCode(text []byte, a assignment, q quality) bool {
	value := text[a.start:a.end]
	if a.quoted {
		return isCodeText(value, q)
	}
	call := a.end < len(text) && (text[a.end] == '(' || text[a.end] == '[')
	if call && (q.digits < 3 || q.wordy()) || bytes.HasPrefix(text[a.end:], []byte(" + ")) {
		return true
	}
	if isNumber(value) {
		return true
	}
	if c := value[0]; c == '$' || c == '%' && len(value) > 1 && !hexes[value[1]] || c == '&' || c == '*' || c == '!' || c == '#' || c == '@' {
		return true
	}
	if words := trimDigits(value); isTypeName(words) &&
		(len(words) == len(value) || a.start > 1 && text[a.start-2] == ':' && a.end < len(text) && text[a.end] == ';') {
		return true
	}
	if q.wordy() && isLongName(value) {
		return true
	}
	if bytes.IndexByte(value, '.') <= 0 {
		return false
	}
	if i := bytes.IndexByte(value, '?'); i > 0 && isChain(value[:i], false) { // a conditional expression
		return true
	}
	// A chain of names, such as e.password or process.env.TOKEN2.
	return isChain(value, false) &&
		(q.wordy() || q.digits < 3 && len(value) < sample && (q.digits < 2 || 2*q.common >= q.pairs))
}

// trimDigits returns a value without the digits at its end.
func trimDigits(value []byte) []byte {
	for n := len(value); n > 0; n-- {
		if c := value[n-1]; c < '0' || '9' < c {
			return value[:n]
		}
	}
	return nil
}

// isHash reports whether a value is a hash in lower-case letters.
func isHash(value []byte) bool {
	q := measure(value)
	return q.size >= minHash && q.hex == q.read && q.upper == 0
}

// isLongName reports whether a value is a name of many capitalized words, such as Schema$GoogleApiV2PasswordPolicy.
func isLongName(value []byte) bool {
	if len(value) < 24 {
		return false
	}
	words, digits := 0, 0
	for _, c := range value {
		switch {
		case 'A' <= c && c <= 'Z':
			words++
		case '0' <= c && c <= '9':
			if digits++; digits > 2 {
				return false
			}
		case (c < 'a' || 'z' < c) && c != '$' && c != '_':
			return false
		}
	}
	return words > 2 && 4*words <= len(value)
}

// isNumber reports whether a value is a hexadecimal number of at most 64 bits, such as -0x3f879678.
func isNumber(value []byte) bool {
	value = bytes.TrimPrefix(value, []byte{'-'})
	return bytes.HasPrefix(value, []byte("0x")) && len(value) <= len("0x")+16
}

// isChain reports whether a value consists of at least two names that are separated by dots. If numbers is set, the
// parts after the first may be numbers.
func isChain(value []byte, numbers bool) bool {
	names, first := 1, true
	for _, c := range value {
		switch digit := '0' <= c && c <= '9'; {
		case c == '.' && !first:
			names++
			first = true
		case alnum[c] && !(digit && first && !(numbers && names > 1)) || c == '_' || c == '$':
			first = false
		default:
			return false
		}
	}
	return names > 1 && !first
}

// isDottedName reports whether a value is the name of a class or module with at least two parent modules, such as
// auth.hashers.PBKDF2PasswordHasher.
func isDottedName(value []byte) bool {
	dots := bytes.Count(value, []byte{'.'})
	return dots > 1 && isChain(value, dots > 2) && measure(value).wordy()
}

// isColor reports whether a value is a color, such as #5195CE.
func isColor(value []byte) bool {
	return value[0] == '#' && (len(value) == 4 || len(value) == 7 || len(value) == 9) && measure(value[1:]).hex == len(value)-1
}

// isLabel reports whether a value is the name of a thing: words and short numbers, and perhaps a random suffix, such as
// default-token-x7k2p.
func isLabel(value []byte, q quality) bool {
	if q.letters() {
		return false
	}
	parts, digits, start := 0, 0, 0
	for i, c := range value {
		switch {
		case c == '-' || c == '_' || c == '.':
			if i == start || i-start > maxLabel || digits > 2 {
				return false
			}
			parts, digits, start = parts+1, 0, i+1
		case '0' <= c && c <= '9':
			digits++
		case 'A' <= c && c <= 'Z':
			if i > start {
				return false
			}
		case c < 'a' || 'z' < c:
			return false
		}
	}
	if parts == 0 || len(value)-start > maxSuffix {
		return false
	}
	words := measure(value[:start])
	return 2*words.common > words.pairs
}

// maxLabel is the maximum length of a word in a label, and maxSuffix is the maximum length of the random suffix.
const (
	maxLabel  = 16
	maxSuffix = 7
)

// isDefault reports whether a password is equal to the user name, which is a documented default of many programs.
func isDefault(user, password []byte) bool {
	return bytes.EqualFold(user, password) || string(password) == "tiger" // the default password of Oracle's sample user
}

// isUUID reports whether a value is a UUID.
func isUUID(value []byte) bool {
	return len(value) == len(uuidForm) && value[8] == '-' && value[13] == '-' && value[18] == '-' && value[23] == '-' &&
		measure(value).hex == len(uuidForm)-4
}

const uuidForm = "00000000-0000-0000-0000-000000000000"

// isCodeText reports whether a value in quotes is not a credential but part of a program: the name of a constant, class
// or color, the path of a resource, a call, or the code between two strings.
func isCodeText(value []byte, q quality) bool {
	switch {
	case q.letters():
		return false
	case value[0] == ')' || value[0] == ',' || value[0] == ';' || isColor(value) || isDottedName(value):
		return true
	case bytes.Contains(value, []byte("].")) || bytes.Contains(value, []byte(`:"`)):
		return true
	case bytes.IndexByte(value, '(') == q.lower && q.lower > 0: // a call, such as rgba(0,0,0,0.5)
		return true
	case bytes.Count(value, []byte{'/'}) > 1 && q.digits <= 2 && (q.wordy() || q.upper == 0): // the path of a package
		return true
	case value[0] == '/':
		return q.digits <= 2 && q.upper <= 4 && q.other >= 2
	}
	return q.lower == 0 && q.digits <= 2 && q.upper > 4 && bytes.Count(value, []byte("_")) == q.other && q.other > 0
}

// isTypeName reports whether a value is the name of a type in capitalized words, such as BadPassphrase.
func isTypeName(value []byte) bool {
	words := 0
	for i, c := range value {
		upper := 'A' <= c && c <= 'Z'
		if i == 0 && !upper || !upper && (c < 'a' || c > 'z') {
			return false
		}
		if upper {
			words++
		}
	}
	return words > 1 && 3*words <= len(value)
}

// isPlaceholder reports whether a value is an example or a placeholder that people write in place of a secret.
func isPlaceholder(value []byte) bool {
	if len(value) == 0 || isTime(value) || isVersion(value) || isResource(value) {
		return true
	}
	switch value[0] {
	case '{':
		if q := measure(value); q.digits < 2 || q.upper < 2 || q.lower < 2 {
			return true
		}
	case '<', '[', '$', '*', '%':
		if value[0] != '%' || len(value) > 1 && !hexes[value[1]] {
			return true
		}
	}
	switch string(value[:min(len(value), 10)]) {
	case "password", "Password", "PASSWORD", "passwd", "pass", "token", "secret", "test", "xxx", "yyy", "user", "username":
		return true
	}
	head := value[:min(len(value), sample)]
	words := placeholders()
	return words.mayContain(head) && words.set.Contains(head) ||
		len(value) > sample && bytes.Contains(value[sample-len(ellipsis):], ellipsis)
}

// mayContain reports whether a value can contain a word of the set. It compares three bytes at a time, which is much
// faster than the search for whole words.
func (p *placeholderSet) mayContain(value []byte) bool {
	last, found := uint(0), uint64(0)
	for _, c := range value {
		last = (last<<5 | uint(c&0x1f)) & (1<<15 - 1)
		found |= p.starts[last>>6] >> (last & 63)
	}
	return found&1 != 0
}

var ellipsis = []byte("...") // a part of the value is left out

// isMixed reports whether a value without digits mixes upper-case and lower-case letters, as random passwords do, or
// contains a character that only passwords contain.
func isMixed(value []byte, q quality) bool {
	return q.size >= 10 && q.size <= 64 && q.blanks == 0 && q.upper > 1 && q.lower > 1 && q.distinct >= 8 && !q.wordy() &&
		(q.other == 0 && q.digits == 0 && 2*q.common < q.pairs || bytes.ContainsAny(value, "!#^~"))
}

// isVersion reports whether a value is a version, such as v1.13.26 or 1.1.2-1_amd64.deb.
func isVersion(value []byte) bool {
	if c := value[0]; c != 'v' && (c < '0' || '9' < c) || bytes.IndexByte(value, '.') < 0 {
		return false
	}
	numbers := bytes.TrimLeft(value, "v")
	rest := bytes.TrimLeft(numbers, "0123456789.")
	numbers = numbers[:len(numbers)-len(rest)]
	word := bytes.HasSuffix(numbers, []byte{'.'}) // a word follows, as in 2.6.0.Final
	return len(numbers) < 12 && bytes.Count(bytes.TrimRight(numbers, "."), []byte{'.'}) == 2 &&
		(len(rest) == 0 || word && len(rest) < 10 || !word && versionEnds[rest[0]])
}

var versionEnds = bytesOf("-_+~@")

// isResource reports whether a value is the name of an AWS resource, an object identifier, or the scope of a signature.
func isResource(value []byte) bool {
	return bytes.HasPrefix(value, []byte("arn:")) || bytes.HasPrefix(value, []byte("1.2.840.")) ||
		bytes.HasSuffix(value, []byte("/aws4_request"))
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

// placeholderSet contains the words of placeholders.
type placeholderSet struct {
	set *literal.Set
	// starts has a bit for the first three bytes of each word, or for any byte before a word of two bytes. The number of
	// three bytes consists of the lowest five bits of each byte, so letter case does not matter.
	starts [1 << 15 / 64]uint64
}

var placeholders = sync.OnceValue(func() *placeholderSet {
	words := []string{
		"example", "abcdefghijkl", "changeme", "changeit", "your_", "your-", "yourpass", "yourtoken", "yoursecret", "yourkey",
		"placeholder", "redacted", "dummy", "xxxxx", string(ellipsis), "****", "${", "{{", "[secret", "insert", "replaceme", "getenv",
		"process.env", "undefined", "sha256:", "dxnlcm5hbwu6cgfzc3dvcm", // username:password in base64
	}
	out := &placeholderSet{}
	for _, w := range words {
		for before := range uint(32) {
			n := before
			for _, c := range []byte(w[:min(len(w), 3)]) {
				n = (n<<5 | uint(c&0x1f)) & (1<<15 - 1)
			}
			out.starts[n>>6] |= 1 << (n & 63)
		}
	}
	var err error
	if out.set, err = literal.New(words, 32); err != nil {
		panic(err) // the words are constants, so they have no errors
	}
	return out
})

// isPublished reports whether a token is one of the keys in the public samples of Google's SDKs. Other scanners, such
// as gitleaks, ignore these keys too.
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
