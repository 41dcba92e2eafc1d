package secret

import (
	"bytes"
	"encoding/base64"
)

// name is a word that occurs in the names of credentials, such as "password" or "token".
type name struct {
	word string
	try  func(s *scan, text []byte, start, end int, dst []Match) []Match
}

// names lists the words in names of credentials. If a name contains several of these words, the scan handles it at each
// word.
var names = []name{
	{"pass", (*scan).tryPassword},
	{"pwd", (*scan).tryPassword},
	{"secret", (*scan).trySecret},
	{"credential", (*scan).trySecret},
	{"creds", (*scan).trySecret},
	{"token", (*scan).tryToken},
	{"sonar", (*scan).tryToken},
	{"cloudflare", (*scan).tryToken},
	{"sourcegraph", (*scan).tryToken},
	{"telegram", (*scan).tryToken},
	{"hubspot", (*scan).tryToken},
	{"messagebird", (*scan).tryToken},
	{"artifactory", (*scan).tryToken},
	{"key", (*scan).tryKey},
	{"auth", (*scan).tryKey},
	{"sig=", (*scan).tryParameter},
	{"code=", (*scan).tryParameter},
	{"bearer", (*scan).tryBearer},
	{"cookie", (*scan).tryCookie},
	{"://", (*scan).tryURL},
	{"-----begin", (*scan).tryPrivateKey},
	{"putty-user-key", (*scan).startPutty},
	{"private-mac:", (*scan).endPutty},
	{"private-hash:", (*scan).endPutty},
	{"kennwort", (*scan).tryPassword},
	{"contraseña", (*scan).tryPassword},
	{"senha", (*scan).tryPassword},
	{"rootpw", (*scan).tryPassword},
	{"identified by", (*scan).tryPassword},
	{"securestring", (*scan).trySecret},
	{"@tcp(", (*scan).tryDSN},
	{"@unix(", (*scan).tryDSN},
	{"docker login", (*scan).startCommand},
	{"sshpass", (*scan).startCommand},
	{"mysql", (*scan).startCommand},
	{"redis-cli", (*scan).startCommand},
	{"ldapsearch", (*scan).startCommand},
	{"snmp-server", (*scan).startCommand},
	{" -p", (*scan).tryFlag},
	{" -a", (*scan).tryFlag},
	{" -w", (*scan).tryFlag},
	{" community", (*scan).tryFlag},
	{"curl", (*scan).startCurl},
	{" -u", (*scan).tryUser},
	{"--user", (*scan).tryUser},
	{"kind:", (*scan).tryKind},
	{"data:", (*scan).tryData},
}

// context stores positions in the text that the scan has already read. Positions are stored plus one, so 0 means that
// there is no such position.
type context struct {
	judged int // the start of the last value that was judged
	bare   int // the end of the last name without a value
	putty  int // the start of a PuTTY key
	curl   int // the last occurrence of the command curl
	kind   int // the last line "kind: Secret" of a Kubernetes manifest
	data   int // the last line "data:"
	// flag is the password option of the last command with such an option, and command is the end of that command's name.
	flag    option
	command int
	line    int // the start of the last line that was searched for the names of columns
	table   int // the end of the last table with a column of credentials
	comment int // the end of the last comment in the manifest of a Kubernetes secret
	prose   int // the end of the last text that was searched for a sentence with a password
}

// The classes of characters in names and values.
var (
	letters   = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	nameClass = bytesOf(letters + "_.-")
	closers   = bytesOf(" \t\"'`])\\")
	operators = bytesOf("=:>|?,")
	quotes    = bytesOf("\"'`")
	padding   = bytesOf("=") // the padding at the end of base64
	spaces    = bytesOf(" ")
	blanks    = bytesOf(" \t\r\n")
	openers   = bytesOf(" \t\r\n([")

	everyByte  = bytesOf("").not()
	solid      = everyByte.without(" \t\r\n\"'`\\")
	bareClass  = solid.without(",;()[]{}<>&|=:")
	userClass  = solid.without("/?#@<>[]{}(),;|")
	line       = everyByte.without("\r\n")
	noDouble   = line.without("\"")
	noSingle   = line.without("'")
	noBacktick = line.without("`")

	stringPrefixes = bytesOf("bBrRuUfFL@") // prefixes of strings in programming languages, as in b"…"
)

// These are the indexes of the classes. The engine adds these classes first, in this order.
const (
	className class = iota
	classBare
	classDouble
	classSingle
	classBacktick
	classUser
	classSolid
	classLine
)

// assignment is a value and the name before it.
type assignment struct {
	name       []byte
	start, end int
	quoted     bool
	spaced     bool // only a space, or the slash of a path, is between the name and the value
	directive  bool // the name and the value are a line of their own
}

// maxName is the maximum number of bytes of a name that are read on each side of a word.
const maxName = 48

// assignmentAt reads an assignment whose name contains text[start:end]. It returns false if there is no value.
func (s *scan) assignmentAt(text []byte, start, end int) (a assignment, ok bool) {
	nameEnd := s.runEnd(text, className, end, len(text))
	s.effort += 2
	if nameEnd-end > maxName || s.context.bare == nameEnd+1 {
		return a, false
	}
	s.context.bare = nameEnd + 1
	at, spaced := valueStart(text, start, nameEnd)
	if at < 0 || at >= len(text) {
		return a, false
	}
	s.context.bare = 0
	a.spaced = spaced
	if !s.readValue(text, at, &a) || a.end-a.start < minValue || s.context.judged == a.start+1 || a.end <= s.named {
		return a, false
	}
	s.context.judged = a.start + 1
	s.effort += 2 + judgeEffort(a.end-a.start)
	first := nameStart(text, start)
	a.name = text[first:nameEnd]
	a.directive = a.spaced && isDirective(text, first, a)
	switch {
	case first == 0:
	case first > 1 && text[first-1] == ':' && text[first-2] == ':' && nameEnd < len(text) && quotes[text[nameEnd]]:
		return a, false // the value is the name of a type, such as "AWS::ApiGateway::ApiKey"
	case text[first-1] == '/' && (a.spaced && text[a.start-1] != '/' || foldHasSuffix(text[:first], "checksum/")):
		return a, false // the value is the checksum of a file or a manifest
	}
	// A placeholder such as [secret:…], which ambit wrote, contains words that are not names of credentials.
	return a, !bytes.HasSuffix(text[:first], []byte("[secret:"))
}

// valueStart returns the offset of the value after a name, or -1 if no value follows. The name ends at offset nameEnd.
// The second result reports whether only a space, or the slash of a path, separates the name and the value.
func valueStart(text []byte, start, nameEnd int) (at int, spaced bool) {
	at = closers.skip(text, nameEnd, 3)
	for at > nameEnd && at < len(text) && at-nameEnd < 24 && text[at-1] == ' ' && text[at] == ' ' { // a column of a table
		at++
	}
	if at == len(text) {
		return -1, false
	}
	switch {
	case valueMember(text, nameEnd, &at):
	case text[at] == ',' && !isArgument(text, start), at == nameEnd && isPadding(text[at:]):
		return -1, false
	case isOperator(text[at:]):
		return afterOperator(text, at), false
	case at > nameEnd && blanks[text[at-1]] && declared(text, &at):
		return afterOperator(text, at), false
	case at > nameEnd && blanks[text[at-1]]:
		return at, true
	case at > nameEnd+1 && quotes[text[at-1]] && blanks[text[at-2]]:
		return at - 1, true
	case text[at] == '/' && at == nameEnd && start > 0 && text[start-1] == '/':
		return at + 1, true
	case text[at] == '(' && at+1 < len(text) && quotes[text[at+1]] && isSetter(text, start, nameEnd):
		return at + 1, false
	default:
		return -1, false
	}
	return at, false
}

// readValue reads the value that begins at text[at], with or without quotes. It returns false if the value has no end.
func (s *scan) readValue(text []byte, at int, a *assignment) bool {
	if a.spaced && foldHasPrefix(text[at:], "is ") { // "the API key is …"
		at += len("is ")
	}
	if at >= len(text) {
		return false
	}
	if stringPrefixes[text[at]] && at+1 < len(text) && quotes[text[at+1]] {
		at++
	}
	if quote := text[at]; quotes[quote] {
		for n := 0; n < 3 && at < len(text) && text[at] == quote; n++ {
			at++
		}
		k := classDouble
		switch quote {
		case '\'':
			k = classSingle
		case '`':
			k = classBacktick
		}
		a.start, a.end, a.quoted = at, s.runEnd(text, k, at, len(text)), true
		return at == len(text) || !blanks[text[at]]
	}
	if bytes.HasPrefix(text[at:], []byte("base64:")) {
		at += len("base64:")
	}
	a.start, a.end = at, s.runEnd(text, classBare, at, len(text))
	if a.end-a.start < 16 && a.end+1 < len(text) && (text[a.end] == ':' || text[a.end] == '=') &&
		bareClass[text[a.end+1]] && text[a.end+1] != '/' {
		a.end = s.runEnd(text, classBare, a.end+1, len(text))
	}
	if a.end > a.start {
		a.end = padding.skip(text, a.end, 3)
	}
	if bytes.HasSuffix(text[a.start:a.end], ellipsis) {
		return false
	}
	for a.end > a.start && (text[a.end-1] == '.' || text[a.end-1] == '!' || text[a.end-1] == '?') {
		a.end--
	}
	return true
}

// minValue is the minimum length of a value, including its authentication scheme if it has one.
const minValue = 3

// nameStart returns the beginning of the name around text[at]. It reads at most maxName bytes.
func nameStart(text []byte, at int) int {
	for from := at; at > 0 && from-at < maxName && nameClass[text[at-1]]; {
		at--
	}
	return at
}

// isArgument reports whether the name around text[at] is the first argument of a call, as in set("token", "…").
func isArgument(text []byte, at int) bool {
	at = nameStart(text, at)
	return at > 1 && quotes[text[at-1]] && text[at-2] == '('
}

func isOperator(text []byte) bool {
	switch text[0] {
	case '=', ':', '>', ',':
		return true
	case '?': // "a?: b" and "a ?? b", but not the query of a URL
		return len(text) > 1 && !nameClass[text[1]]
	case '|': // "a"|"b" is a type, and a|b is an expression
		return len(text) > 1 && !quotes[text[1]] && !nameClass[text[1]]
	case '.', '+', '-', '~':
		return len(text) > 1 && (text[1] == '=' || text[1] == '>')
	}
	return false
}

// isPadding reports whether the text begins with equal signs at the end of a line. Such signs are the padding of
// base64, or follow a variable without a value.
func isPadding(text []byte) bool {
	rest := bytes.TrimLeft(text[:min(len(text), 4)], "=")
	return text[0] == '=' && len(rest) > 0 && (rest[0] == '\n' || rest[0] == '\r')
}

// afterOperator returns the offset after an operator and the blanks that follow it, or -1 if no value can follow.
func afterOperator(text []byte, at int) int {
	comma := text[at] == ','
	for n := 0; n < 4 && at < len(text) && (operators[text[at]] || n == 0); n++ {
		at++
	}
	for n := 0; n < 12 && at < len(text) && (openers[text[at]] || text[at] == '*' && n < 2); n++ {
		at++
	}
	if comma && (at == len(text) || !quotes[text[at]]) {
		return -1
	}
	return at
}

// declared reports whether a type and an operator follow, as in "token string = ". It advances *at to the operator.
func declared(text []byte, at *int) bool {
	i := *at
	for i < len(text) && i-*at < 16 && alnum[text[i]] {
		i++
	}
	if !stringTypes[string(text[*at:i])] {
		return false
	}
	i = spaces.skip(text, i, 3)
	if i >= len(text) || text[i] != '=' && text[i] != ':' {
		return false
	}
	*at = i
	return true
}

// stringTypes lists the types of strings in programming languages.
var stringTypes = map[string]bool{"string": true, "String": true, "str": true, "char": true, "NSString": true, "byte": true, "text": true}

// valueMember reports whether the value is in a member or attribute called "value", or in the element that follows, as
// in {"name": "TOKEN", "value": "…"}, <add key="token" value="…"/> and <key>token</key><string>…</string>. It advances
// *at to the value.
func valueMember(text []byte, nameEnd int, at *int) bool {
	i := nameEnd
	if i+2 < len(text) && text[i] == '<' && text[i+1] == '/' {
		n := bytes.IndexByte(text[i:min(len(text), i+maxName)], '>')
		if n < 0 {
			return false
		}
		for i += n + 1; i < len(text) && blanks[text[i]] && i-nameEnd < maxName+32; i++ {
		}
		if i == len(text) || text[i] != '<' {
			return false
		}
		if n = bytes.IndexByte(text[i:min(len(text), i+maxName)], '>'); n < 0 {
			return false
		}
		if i += n + 1; i == len(text) {
			return false
		}
		*at = i
		return true
	}
	i = skipMember(text, i)
	if foldHasPrefix(text[i:], "type") { // {"key": "token", "type": "string", "value": "…"}
		for n := 0; i < len(text) && n < maxName && text[i] != ',' && text[i] != '\n'; n++ {
			i++
		}
		i = skipMember(text, i)
	}
	switch {
	case foldHasPrefix(text[i:], "value"):
		i += len("value")
	case foldHasPrefix(text[i:], "default"):
		i += len("default")
	default:
		return false
	}
	if i+1 >= len(text) || alnum[text[i]] {
		return false
	}
	for n := 0; n < 4 && i < len(text) && (closers[text[i]] || text[i] == '=' || text[i] == ':'); n++ {
		i++
	}
	for i > 0 && quotes[text[i-1]] {
		i--
	}
	*at = i
	return true
}

// skipMember returns the offset of the next name in an object.
func skipMember(text []byte, at int) int {
	for n := 0; at < len(text) && n < 24 && (blanks[text[at]] || closers[text[at]] || memberSigns[text[at]]); n++ {
		at++
	}
	return at
}

var memberSigns = bytesOf(",-:{")

func foldHasPrefix(text []byte, prefix string) bool {
	if len(text) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if lower(text[i]) != prefix[i] {
			return false
		}
	}
	return true
}

// The rules for values that are recognized by the name before them.
const (
	rulePassword = "generic-password"
	ruleKey      = "generic-api-key"
)

// rankName is the rank of values that are recognized by the name before them. It is higher than the rank of any format.
const rankName = 1 << 20

func (s *scan) tryPassword(text []byte, start, end int, dst []Match) []Match {
	dst = s.tryTable(text, start, end, dst)
	a, ok := s.assignmentAt(text, start, end)
	if !ok {
		return s.tryProse(text, start, end, dst)
	}
	value := text[a.start:a.end]
	q := measure(value)
	switch {
	case !s.judge(isPasswordName, a.name), string(a.name) == "PASS" && text[a.start-1] != '=': // the result of a test
		return dst
	case !a.spaced:
	case string(a.name) == "pass": // a verb
		return dst
	case a.quoted && q.digits > 0, isOption(text, a) && value[0] != '-' && !isFileName(value):
	case !a.directive || !q.password(a.quoted) || isFileName(value):
		return s.tryProse(text, start, end, dst)
	}
	if !q.password(a.quoted || a.spaced) && !isMixed(value, q) || isCode(text, a, q) || isPlaceholder(value) ||
		s.judge(isIgnoredName, a.name) {
		return dst
	}
	return s.found(text, a.start, s.wholeValue(text, a), rulePassword, rankName, dst)
}

// isFileName reports whether a value looks like the name of a file, such as test.7z.
func isFileName(value []byte) bool {
	dot := bytes.LastIndexByte(value, '.')
	return dot > 0 && len(value)-dot <= 5 && measure(value).other == 1
}

// isOption reports whether a value after a space belongs to a command-line option or to a line of a netrc file.
func isOption(text []byte, a assignment) bool {
	if len(a.name) > 1 && a.name[0] == '-' {
		return true
	}
	before := text[max(0, a.start-128):a.start]
	return bytes.Contains(before, []byte("login ")) || bytes.Contains(before, []byte("login\n"))
}

func (s *scan) trySecret(text []byte, start, end int, dst []Match) []Match {
	if start > 0 && (text[start-1] == '[' || text[start-1] == ':') && end < len(text) && text[end] == ':' {
		return dst // a placeholder of ambit, or a part of an ARN
	}
	dst = s.tryTable(text, start, end, dst)
	a, ok := s.assignmentAt(text, start, end)
	if !ok {
		return dst
	}
	value := text[a.start:a.end]
	q := measure(value)
	good := q.token(12) || q.mixed() || a.quoted && q.digits+q.upper > 0 && !q.wordy() && q.password(true)
	if a.spaced {
		good = text[a.start-1] != '/' && q.clear() || (a.directive || a.quoted || isOption(text, a)) && good
	}
	if !good || isCode(text, a, q) || isPlaceholder(value) || isLabel(value, q) ||
		s.judge(isIgnoredName, a.name) {
		return dst
	}
	if isUUID(value) && bytes.HasSuffix(a.name, []byte("redentials")) {
		return dst // a UUID that refers to the credentials
	}
	return s.found(text, a.start, s.wholeValue(text, a), ruleKey, rankName, dst)
}

func (s *scan) tryToken(text []byte, start, end int, dst []Match) []Match {
	return s.tryStrong(text, start, end, true, dst)
}

func (s *scan) tryKey(text []byte, start, end int, dst []Match) []Match {
	return s.tryStrong(text, start, end, false, dst)
}

// tryStrong handles the values of keys and tokens. Many keys are not secret, so a key needs a name that marks it as
// secret.
func (s *scan) tryStrong(text []byte, start, end int, token bool, dst []Match) []Match {
	dst = s.tryTable(text, start, end, dst)
	a, ok := s.assignmentAt(text, start, end)
	if !ok {
		return dst
	}
	s.effort += 2
	basic := foldHasPrefix(text[a.start:], "basic ")
	if !a.quoted || foldHasPrefix(a.name, "auth") || foldHasPrefix(a.name, "proxy-auth") {
		s.skipScheme(text, &a)
	}
	value := text[a.start:a.end]
	q := measure(value)
	if len(value) < 10 {
		return dst
	}
	if (basic || a.quoted && string(a.name) == "auth") && isBasic(value) && !isPlaceholder(value) {
		return s.found(text, a.start, a.end, "authorization-header", rankName, dst)
	}
	if !q.token(10) {
		return dst
	}
	if a.spaced && !q.clear() && !a.directive && !isOption(text, a) || isCode(text, a, q) || isPlaceholder(value) ||
		isLabel(value, q) || s.judge(isIgnoredName, a.name) || isPublicKey(value) || isPublicToken(text[:start]) {
		return dst
	}
	inQuery := start > 0 && (text[start-1] == '?' || text[start-1] == '&') && len(value) >= 20 && q.mixed()
	if !s.judge(isSecretKey, a.name) && !isQualified(text, start) && !inQuery &&
		(!token && !q.strong() || isMember(text, start, a)) {
		return dst
	}
	return s.found(text, a.start, s.wholeValue(text, a), ruleKey, rankName, dst)
}

// isPublicToken reports whether the token is public according to the text before the word "token": the address of a
// status badge, such as build.svg?token=…, or the words "page token".
func isPublicToken(before []byte) bool {
	return foldHasSuffix(before, ".svg?") || foldHasSuffix(before, "page ")
}

// isMember reports whether a value belongs to a member of a JSON object. In JSON, a member named "key" often contains
// the name of another object, and not a credential.
func isMember(text []byte, at int, a assignment) bool {
	at = nameStart(text, at)
	return a.quoted && at > 0 && text[at-1] == '"' && bytes.IndexByte(text[at:a.start], ':') > 0
}

// isPublicKey reports whether a value is a public key in SSH or X.509 format. It compares the beginning of the key in
// base64, which contains its length and algorithm.
func isPublicKey(value []byte) bool {
	switch string(value[:min(len(value), 8)]) {
	case "AAAAB3Nz", "AAAAC3Nz", "AAAAE2Vj", // ssh-rsa, ssh-ed25519, ecdsa-sha2
		"MFkwEwYH", "MHYwEAYH", "MCowBQYD", // P-256, P-384, Ed25519
		"MIIBIjAN", "MIIBojAN", "MIICIjAN", "MIGfMA0G": // RSA
		return true
	}
	return false
}

// isBasic reports whether a value is a user name and a password in base64.
func isBasic(value []byte) bool {
	var plain [sample]byte
	n, _ := base64.StdEncoding.Decode(plain[:], value[:min(len(value), sample)&^3])
	return n > 5 && bytes.IndexByte(plain[:n], ':') >= 0
}

// skipScheme moves the start of a value to the first byte after an authentication scheme, such as "Bearer".
func (s *scan) skipScheme(text []byte, a *assignment) {
	i := a.start
	for i < len(text) && i-a.start < 12 && nameClass[text[i]] {
		i++
	}
	if i == a.start || i >= len(text) || text[i] != ' ' {
		return
	}
	i = spaces.skip(text, i, 3)
	if end := s.runEnd(text, classBare, i, len(text)); end-i > minValue {
		a.start, a.end = i, end
		a.end = padding.skip(text, a.end, 3)
	}
}

// maxColons is the maximum number of colons in a value without quotes.
const maxColons = 8

// wholeValue returns the end of a value that is a secret. A value without quotes can contain colons.
func (s *scan) wholeValue(text []byte, a assignment) int {
	end := a.end
	if a.quoted {
		return end
	}
	for n := 0; n < maxColons && end+1 < len(text) && text[end] == ':'; n++ {
		next := s.runEnd(text, classBare, end+1, len(text))
		if next-end <= 2*minValue {
			break
		}
		end = next
	}
	return end
}
